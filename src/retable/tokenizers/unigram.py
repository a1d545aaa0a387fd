"""The unigram tokenizer (Kudo 2018) with T5's order of ids, and sampling of segmentations.

System A5 of docs/systems.yaml.
"""

import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.tokenizers.tokenizer import LEARN_FROM, Tokenizer, _require_characters, to_learn_from

MARKS = ["<pad>", "</s>", "<unk>"]
SENTINELS = [f"<extra_id_{i}>" for i in reversed(range(100))]  # in T5, <extra_id_0> is the last id of the vocabulary
UNKNOWN_PENALTY = 10.0  # nats between the lowest score of a piece and an unknown character's score, as in SentencePiece


def train(
    lines: Iterable[str],
    vocab_size: PositiveInt,
    vocabulary: Iterable[str] = (),
    learn_from: PositiveInt = LEARN_FROM,
) -> Tokenizer:
    """Train a unigram tokenizer in T5's layout: `<pad> </s> <unk>`, pieces by falling score, `<extra_id_99>` to
    `<extra_id_0>`.

    Args:
        vocab_size: total number of tokens; the result has fewer tokens if the text does not have enough pieces.
        vocabulary: ignored, because new words are split into pieces or characters.
        learn_from: number of characters to learn from; from a longer text, random lines are drawn, see `to_learn_from`.

    Raises: UsageError: `vocab_size` leaves no room for pieces.
    """
    n_pieces = vocab_size - len(MARKS) - len(SENTINELS)
    learner = _t5(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=max(n_pieces, 0) + len(MARKS), special_tokens=MARKS, unk_token="<unk>", show_progress=False
    )
    learner.train_from_iterator(_with_room(to_learn_from(lines, learn_from), n_pieces), trainer)
    learnt = json.loads(learner.to_str())["model"]["vocab"][len(MARKS) :]
    pieces = canonical(
        [(piece, score) for piece, score in learnt if piece not in SENTINELS]
    )  # removes sentinels, which a text may contain
    marks, sentinels = ([(mark, 0.0) for mark in group] for group in (MARKS, SENTINELS))
    tokenizer = _t5(models.Unigram([*marks, *pieces, *sentinels], unk_id=MARKS.index("<unk>")))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", MARKS.index("</s>"))]
    )
    tokenizer.add_special_tokens([*MARKS, *SENTINELS])
    return Tokenizer(tokenizer)


def _t5(model: models.Unigram) -> HuggingFaceTokenizer:
    tokenizer = HuggingFaceTokenizer(model)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return tokenizer


def _with_room(lines: Iterable[str], n_pieces: int) -> Iterator[str]:
    """Yield the lines; after the last line, check that `n_pieces` exceeds the number of different characters.

    The library always keeps one piece per character. If `n_pieces` is smaller than the number of characters, the
    library returns more pieces, or does not terminate. The check after the last line is early enough, because the
    library reads all lines before it starts to train.
    """
    characters, other = set[str](), _t5(models.Unigram())  # a second tokenizer, because training locks the first
    for line in lines:
        characters.update(line if line.isascii() else other.normalizer.normalize_str(line))
        yield line
    words = other.pre_tokenizer.pre_tokenize_str("".join(characters))
    known, marks = len({*"".join(word for word, _ in words)}), len(MARKS) + len(SENTINELS)
    if n_pieces <= known:
        raise UsageError(
            f"tokenizer.vocab_size={marks + n_pieces} leaves no room for a piece in addition to {known} characters and "
            f"{marks} marks; write {marks + known + 1} or more"
        )


def canonical(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make the trainer's result independent of the trainer's hash tables, whose order differs between runs.

    The order of the hash tables affects the last bits of sums, and the scores of characters that EM dropped: the
    trainer sets each of these scores to the lowest score plus a different multiple of 0.0001. Here, all dropped
    characters get the lowest score, and all scores are rounded to 4 digits.
    """
    lowest = min((score for _, score in pieces), default=0.0)
    band = lowest + 0.0001 * sum(len(piece) == 1 for piece, _ in pieces)
    scores = {piece: lowest if len(piece) == 1 and score < band else score for piece, score in pieces}
    rounded = [(piece, round(score, 4)) for piece, score in scores.items()]
    return sorted(rounded, key=lambda scored: (-scored[1], scored[0]))


class Sampler:
    """A sampler of a text's segmentations, with probabilities ∝ exp(alpha · log p) (Kudo 2018, section 3.2).

    The algorithm is forward filtering over all segmentations of each word, followed by backward sampling. With `alpha`
    = 0, all segmentations are equally likely; with a large `alpha`, the sample is nearly always the result of `encode`.
    (The library's own `alpha` uses a generator that cannot be seeded.)
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float):
        """Prepare the sampler.

        Raises: UsageError: `tokenizer` is not a unigram model.
        """
        self._reader, self.alpha = tokenizer._reader, alpha
        model = json.loads(self._reader.to_str())["model"]
        if model["type"] != "Unigram":
            raise UsageError(
                f"a {model['type']} tokenizer has no piece probabilities to sample from; write tokenizer=unigram"
            )
        self.unknown: int = model["unk_id"]
        self.pieces = {piece: (i, score) for i, (piece, score) in enumerate(model["vocab"])}
        self._longest = max(map(len, self.pieces))
        self._unknown_score = min(score for _, score in self.pieces.values()) - UNKNOWN_PENALTY
        self._lattice = lru_cache(1 << 16)(self._filter)

    def sample(self, text: str, generator: np.random.Generator) -> list[int]:
        """Sample one segmentation of `text`, and return its ids; special tokens' names are ordinary text.

        Args:
            generator: random generator, which draws one number per piece.

        Raises: UsageError: the text contains a lone surrogate (half of a character, which has no UTF-8 encoding).
        """
        _require_characters([text])
        normalizer, pre_tokenizer = self._reader.normalizer, self._reader.pre_tokenizer
        words = pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text) if normalizer else text)
        return [i for word, _ in words for i in self._draw(word, generator)]

    def _draw(self, word: str, generator: np.random.Generator) -> list[int]:
        lattice, end, drawn = self._lattice(word), len(word), []
        while end:
            arcs, cumulative = lattice[end]
            i, end = arcs[int(np.searchsorted(cumulative, generator.random() * cumulative[-1], side="right"))]
            drawn.append(i)
        runs = groupby(reversed(drawn), key=lambda i: i == self.unknown)  # joins adjacent unknown characters
        return [i for unknown, run in runs for i in ([self.unknown] if unknown else run)]

    def _filter(self, word: str) -> list[tuple[list[tuple[int, int]], np.ndarray]]:
        """For each place in `word`, return the pieces (id, start) that can end there, and their cumulative weights."""
        totals, lattice = [0.0], [([(0, 0)], np.ones(1))]
        for end in range(1, len(word) + 1):
            arcs, weights = [], []
            for start in range(max(0, end - self._longest), end):
                i, score = self.pieces.get(word[start:end], (self.unknown, self._unknown_score))
                if i != self.unknown or start == end - 1:
                    arcs.append((i, start))
                    weights.append(totals[start] + self.alpha * score)
            top = max(weights)
            cumulative = np.cumsum(np.exp(np.array(weights) - top))
            totals.append(top + math.log(cumulative[-1]))
            lattice.append((arcs, cumulative))
        return lattice
