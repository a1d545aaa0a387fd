"""Multiple choice on the embedded language, shaped like SWAG and HellaSwag: a beginning, and which of four endings is
its own.

The beginning is a document's first sentences, the right ending its next one. A wrong ending is told as if behind as
many sentences of another document: of that one it has the topic and the mood, the tense, and whom a pronoun stands for,
but what that one mentioned it does not recall. So a reader has to compare topics and moods, tenses and genders, and to
look for the names and nouns that come again. All of these probabilities are known, and so is the best answer:

    p(y | b, e_1 … e_C) ∝ p(b, e_y) Π_{i ≠ y} q(e_i)

for the beginning b, the endings e, the place y of the right one, and the probability q of a wrong one.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.corpora.text import SPLITS
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler
from retable.grammar.language import Grammar, Uniform, Words, uniforms
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.sentence_pairs import Start, log_shares
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS

ENDINGS = 4
LONGEST = 3  # sentences of a beginning
START_DOCUMENTS = 1000  # whose sentences tell what wrong endings start from


class Example(NamedTuple):
    beginning: list[str]  # sentences
    endings: list[str]  # a sentence each
    label: int  # the place of the right one


class GrammarEndings:
    """Examples, and the best answer to each."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._starts = starts_behind(grammar)
        self._log_shares = {n: log_shares(Counter(starts)) for n, starts in self._starts.items()}
        self._log_merged = {n: log_shares(Counter(map(merged, starts))) for n, starts in self._starts.items()}

    def examples(self, seed: int, split: str) -> Iterator[Example]:
        """Endless; example i is a function of (seed, split, i) alone."""
        for index in count():
            uniform = uniforms(seed, f"endings/{split}", index)
            latent, n_sentences = int(uniform() * N_LATENTS), 1 + int(uniform() * LONGEST)
            *beginning, ending = self._tell(uniform, latent, n_sentences + 1)
            label = int(uniform() * ENDINGS)
            endings = [self._wrong(uniform, n_sentences) for _ in range(ENDINGS - 1)]
            yield Example(beginning, [*endings[:label], ending, *endings[label:]], label)

    def _wrong(self, uniform: Uniform, n_before: int) -> str:
        latent, starts = int(uniform() * N_LATENTS), self._starts[n_before]
        (sentence,) = self._tell(uniform, latent, 1, starts[int(uniform() * len(starts))])
        return sentence

    def _tell(self, uniform: Uniform, latent: int, n_sentences: int, start: Start = (None, "open")) -> list[str]:
        def part(discourse: Discourse) -> None:
            _sentences(discourse, n_sentences, start)

        return " ".join(self._grammar.sample(uniform, latent, part)[:-1]).split(f" {LINE_END} ")

    def judge(self, beginning: Sequence[str], endings: Sequence[str]) -> int:
        """The most probable place of the right ending, the first of equals."""
        return int(np.argmax(self.log_posterior(beginning, endings)))

    def log_posterior(self, beginning: Sequence[str], endings: Sequence[str]) -> NDArray:
        """(endings,): log p(the right ending is here), given the beginning and all endings."""
        wrong = [self._log_wrong(ending, len(beginning)) for ending in endings]
        log_joint = [
            self._log_probability([*beginning, ending], (None, "open")) + np.delete(wrong, place).sum()
            for place, ending in enumerate(endings)
        ]
        return np.array(log_joint) - logsumexp(log_joint)

    def _log_wrong(self, sentence: str, n_before: int) -> float:
        """log p(the sentence is told as a wrong ending behind `n_before` sentences)."""
        is_pronoun = sentence.split(" ")[0] in PRONOUNS.values()
        starts = (self._log_shares if is_pronoun else self._log_merged)[n_before]
        told = [log_share + self._log_probability([sentence], start) for start, log_share in starts.items()]
        return float(logsumexp(told))

    def _log_probability(self, sentences: Sequence[str], start: Start) -> float:
        tokens = [token for sentence in sentences for token in (*sentence.split(" "), LINE_END)]
        log_joint = self._grammar.log_joint(tokens, lambda discourse: _sentences(discourse, len(sentences), start))
        return float(logsumexp(log_joint))


def write_endings(
    folder: Path, seed: Seed, examples: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
) -> dict[str, float]:
    """Write `<split>.jsonl`, in HellaSwag's format, and `units.csv` with the best answers to the test split.

    Args:
        folder: where to.
        seed: of all streams; each split has its own.
        examples: split → how many.
        scale, lexicon: see `Grammar`.

    Returns:
        `choices/test/accuracy` of the best answers.

    Raises:
        UsageError: a split without a size, or with a size below 1.
    """
    if set(examples) != set(SPLITS) or min(examples.values()) < 1:
        raise UsageError(f"examples is {dict(examples)}; give a size of 1 at least to each of {', '.join(SPLITS)}")
    folder, language = Path(folder), GrammarEndings(Grammar(scale, lexicon))
    right = 0
    with (folder / "units.csv").open("w", newline="", encoding="utf-8") as units:
        writer = csv.writer(units, lineterminator="\n")
        writer.writerow(("split", "unit", "label", "prediction", "accuracy"))
        for split in SPLITS:
            with (folder / f"{split}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
                for index, each in enumerate(islice(language.examples(seed, split), examples[split])):
                    fields = {"ctx": " ".join(each.beginning), "endings": each.endings, "label": each.label}
                    file.write(f"{json.dumps(fields)}\n")
                    if split == "test":
                        answer = language.judge(each.beginning, each.endings)
                        writer.writerow((split, index, each.label, answer, int(answer == each.label)))
                        right += answer == each.label
    return {"choices/test/accuracy": right / examples["test"]}


def starts_behind(grammar: Grammar) -> dict[int, list[Start]]:
    """By the number of sentences, what sampled documents leave behind them: the antecedent, its word left out, and the
    tense."""
    found: dict[int, list[Start]] = {n: [] for n in range(1, LONGEST + 1)}
    for index in range(START_DOCUMENTS):
        uniform = uniforms(0, "endings/starts", index)
        discourse = Discourse(grammar.tables, Sampler(uniform, int(uniform() * N_LATENTS)))
        for starts in found.values():
            discourse.sentence()
            starts.append((discourse.antecedent and discourse.antecedent._replace(word=""), discourse.tense))
    return found


def merged(start: Start) -> Start:
    """The start for a sentence that opens with no pronoun, to which any antecedent is as good."""
    antecedent, tense = start
    return antecedent and Referent("thing", "neuter", word=""), tense


def _sentences(discourse: Discourse, n: int, start: Start) -> None:
    """So many sentences, none of which ends the document."""
    discourse.antecedent, discourse.tense = start
    for _ in range(n):
        discourse.sentence()
