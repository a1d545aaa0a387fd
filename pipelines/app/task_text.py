"""The tokenizer or vocabulary for a task's texts, pretrained vectors of its words, and samples of training examples."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from retable.core.artifacts import require
from retable.core.compressed import file_of
from retable.core.errors import UsageError
from retable.data.spelling import Vocabulary
from retable.data.word_vectors import FORMS, coverage, look_up
from retable.inference.texts import tokenizer_files
from retable.models.base import Estimated, Model
from retable.models.vector_files import read_vectors
from retable.tasks.base import Example, Task, Text
from retable.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from retable.exchange.checkpoint import Checkpoint


class Pretrained(NamedTuple):
    """The vectors in the file `embedding` for the words that a model reads."""

    words: list[str]  # the N words that have a vector
    vectors: np.ndarray  # (N, D)
    coverage: dict[str, Any]  # the words that have a vector, see `retable.data.word_vectors.coverage`
    inputs: list[Path]  # the file that was read


def text_of_task(
    cfg: DictConfig,
    task: Task[Example, Any],
    model: type[Model],
    examples: Mapping[str, Sequence[Example]],
    checkpoint: "Checkpoint | None",
) -> tuple[Text, Pretrained | None, list[Path]]:
    """Open the tokenizer, or build the vocabulary, that turns a task's texts into ids.

    Args:
        cfg: configuration of finetune; `tokens`, `embedding` and `lookup` are used.
        task: the task.
        model: class of the model, which reads tokens or the spelling of words.
        examples: the task's examples by split.
        checkpoint: the checkpoint that the model starts from, whose tokenizer is used.

    Returns: the tokenizer, or the vocabulary of the examples' words; the pretrained vectors; and the files that were
        read. The vocabulary is empty for a task without words, and for an `Estimated` model, which reads the words
        themselves.
    """
    if checkpoint is None and (task.has_no_text or issubclass(model, Estimated)):
        return Vocabulary([], []), None, []
    if checkpoint is None and task.in_words and model.reads_words:
        texts = {split: list(task.words(rows)) for split, rows in examples.items()}
        counts = {split: Counter(chain.from_iterable(of_split)) for split, of_split in texts.items()}
        words = dict.fromkeys(chain.from_iterable(counts.values()))
        pretrained = pretrained_vectors(cfg, words, counts, task.convention)
        others = chain.from_iterable(of_split for split, of_split in texts.items() if split != "train")
        known = {*pretrained.words} if pretrained else ()
        return Vocabulary.of_texts(texts["train"], others, known), pretrained, pretrained.inputs if pretrained else []
    files = tokenizer_files(Path("outputs/tokenize", cfg.tokens, "tokenizer.json")) if checkpoint is None else []
    tokenizer = Tokenizer.load(files[0]) if checkpoint is None else checkpoint.tokenizer
    counts = {} if cfg.embedding == "random" else _token_counts(task, tokenizer, examples)
    pretrained = pretrained_vectors(cfg, tokenizer.words, counts, task.convention, tokenizer.unknown)
    return tokenizer, pretrained, files + (pretrained.inputs if pretrained else [])


def pretrained_vectors(
    cfg: DictConfig,
    words: Collection[str],
    counts: Mapping[str, Mapping[str, int]],
    convention: Callable[[str], str] | None = None,
    unknown: int | None = None,
) -> Pretrained | None:
    """Read the file `cfg.embedding`, look up words in it, and count the words that have a vector.

    Args:
        cfg: configuration of finetune or pretrain; `embedding` and `lookup` are used.
        words: the words to look up.
        counts: for each split, the frequency of each word.
        convention: the task's convention, see `look_up`.
        unknown: the index of the unknown token in `words`. If the file has a vector for it, the words that it
            represents still count as words without a vector.

    Returns: the vectors, or None if `cfg.embedding` is "random".
    Raises: UsageError: the file cannot be read, or no word has a vector.
    """
    if cfg.embedding == "random":
        return None
    lookup: Collection[Any] | None = cfg.get("lookup")
    file = require(file_of(cfg.embedding))
    known, vectors = read_vectors(cfg.embedding)
    rows = {word: row for row, word in enumerate(known)}
    found = look_up(words, rows, FORMS if lookup is None else lookup, convention)
    if not found:
        raise UsageError(
            f"none of the text's words has a vector in {cfg.embedding}; set embedding= to vectors of its language"
        )
    chosen = vectors[[rows[other] for other, _ in found.values()]]  # a copy, so that the file's other vectors are freed
    names = [*found]
    if unknown is not None:
        found.pop([*words][unknown], None)
    return Pretrained(names, chosen, coverage(words, found, counts), [file])


def _token_counts(
    task: Task[Example, Any], tokenizer: Tokenizer, examples: Mapping[str, Sequence[Example]]
) -> dict[str, Counter[str]]:
    """Return, for each split, the frequency of each token, or an empty mapping if the task does not give its words.

    A word with an unknown token is counted as itself, because different words have the same unknown token.
    """
    if type(task).words is Task.words:
        return {}
    counts = {split: Counter[str]() for split in examples}
    for split, rows in examples.items():
        texts = task.words(rows)
        # Byte-level tokenizers, which have no unknown token, encode a word differently at the start of a text.
        units = Counter(map(" ".join, texts) if tokenizer.unknown is None else chain.from_iterable(texts))
        for unit, ids in zip(units, tokenizer.encode_batch([*units]), strict=True):
            for i in ids:
                counts[split][unit if i == tokenizer.unknown else tokenizer.words[i]] += units[unit]
    return counts


def subsample(examples: Sequence[Example], number: int, seed: int) -> list[Example]:
    """Draw `number` examples without replacement and return them in their original order.

    With the same seed, a smaller sample is a subset of a larger one.

    Raises: UsageError: there are fewer than `number` examples.
    """
    available = len(examples)
    if number not in range(1, available + 1):
        raise UsageError(
            f"examples={number}, but there are {available} training examples; write 1 to {available}, or null for all"
        )
    drawn = np.random.default_rng(seed).permutation(available)[: int(number)]  # 1e3 is a float
    return [examples[place] for place in np.sort(drawn)]
