"""The tokenizer or vocabulary for a task's texts, and samples of the task's training examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.data.spelling import Vocabulary
from retable.data.word_vectors import vectors_of
from retable.inference.texts import tokenizer_files
from retable.models.base import Estimated, Model
from retable.models.word2vec_format import read_word2vec
from retable.tasks.base import Example, Task, Text
from retable.tokenizers.tokenizer import Tokenizer

Vectors = dict[str, np.ndarray]


def text_of_task(
    cfg: DictConfig, task: Task[Example, Any], model: type[Model], examples: Mapping[str, Sequence[Example]]
) -> tuple[Text, Vectors, list[Path]]:
    """Open the tokenizer, or build the vocabulary, that turns a task's texts into ids.

    Args:
        cfg: configuration of finetune; `tokens` and `embedding` are used.
        task: the task.
        model: class of the model, which reads tokens or the spelling of words.
        examples: the task's examples by split.

    Returns: the tokenizer, or the vocabulary of the examples' words; the vectors in the file `cfg.embedding` for the
        words of the vocabulary; and the files that were read. The vocabulary is empty for a task without words, and for
        an `Estimated` model, which reads the words themselves.
    """
    if task.has_no_text or issubclass(model, Estimated):
        return Vocabulary([], []), {}, []
    if not (task.in_words and model.reads_words):
        files = tokenizer_files(Path("outputs/tokenize", cfg.tokens, "tokenizer.json"))
        return Tokenizer.load(files[0]), {}, files
    texts = {split: list(task.words(rows)) for split, rows in examples.items()}
    vectors, inputs = {}, []
    if cfg.embedding != "random":
        inputs.append(require(Path(cfg.embedding)))
        words = (word for of_split in texts.values() for words in of_split for word in words)
        vectors = vectors_of(words, *read_word2vec(inputs[0]), task.convention or str)
    others = (words for split, of_split in texts.items() if split != "train" for words in of_split)
    return Vocabulary.of_texts(texts["train"], others, vectors), vectors, inputs


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
