"""Multiple choice in the embedded language, as in SWAG and HellaSwag: choose the right one of four endings.

The beginning consists of the first sentences of a document, and the right ending is the document's next sentence. A
wrong ending is generated as if it followed the same number of sentences of another document. A wrong ending has the
topic, mood, tense and pronoun antecedent of the other document, but does not repeat that document's nouns and names. A
model must therefore compare topics, moods, tenses and genders, and find repeated names and nouns. All probabilities are
known, so the best answer is known, too:

    p(y | b, e_1 … e_C) ∝ p(b, e_y) Π_{i ≠ y} q(e_i)

Here, b is the beginning, e_1 … e_C are the endings, y is the index of the right ending, and q(e_i) is the probability
of e_i as a wrong ending.
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
LONGEST = 3  # maximum number of sentences in a beginning
START_DOCUMENTS = 1000  # number of sampled documents that provide the antecedents and tenses of wrong endings


class Example(NamedTuple):
    """A multiple-choice question."""

    beginning: list[str]  # one string per sentence
    endings: list[str]  # one sentence each
    label: int  # index of the right ending


class GrammarEndings:
    """Generates examples, and computes the best answer to each example."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._starts = starts_after_sentences(grammar)
        self._log_shares = {n: log_shares(Counter(starts)) for n, starts in self._starts.items()}
        self._log_merged = {n: log_shares(Counter(map(merged, starts))) for n, starts in self._starts.items()}

    def examples(self, seed: int, split: str) -> Iterator[Example]:
        """Yield an endless series of examples; example i depends only on (seed, split, i)."""
        for index in count():
            uniform = uniforms(seed, f"endings/{split}", index)
            latent, n_sentences = int(uniform() * N_LATENTS), 1 + int(uniform() * LONGEST)
            *beginning, ending = self._generate(uniform, latent, n_sentences + 1)
            label = int(uniform() * ENDINGS)
            endings = [self._wrong(uniform, n_sentences) for _ in range(ENDINGS - 1)]
            yield Example(beginning, [*endings[:label], ending, *endings[label:]], label)

    def _wrong(self, uniform: Uniform, n_before: int) -> str:
        latent, starts = int(uniform() * N_LATENTS), self._starts[n_before]
        (sentence,) = self._generate(uniform, latent, 1, starts[int(uniform() * len(starts))])
        return sentence

    def _generate(self, uniform: Uniform, latent: int, n_sentences: int, start: Start = (None, "open")) -> list[str]:
        def part(discourse: Discourse) -> None:
            _sentences(discourse, n_sentences, start)

        return " ".join(self._grammar.sample(uniform, latent, part)[:-1]).split(f" {LINE_END} ")

    def judge(self, beginning: Sequence[str], endings: Sequence[str]) -> int:
        """Return the index of the most probable ending; on ties, the smallest index."""
        return int(np.argmax(self.log_posterior(beginning, endings)))

    def log_posterior(self, beginning: Sequence[str], endings: Sequence[str]) -> NDArray:
        """Return log p(ending is right | beginning, all endings) for each ending, (endings,), in nats."""
        wrong = [self._log_wrong(ending, len(beginning)) for ending in endings]
        log_joint = [
            self._log_probability([*beginning, ending], (None, "open")) + np.delete(wrong, place).sum()
            for place, ending in enumerate(endings)
        ]
        return np.array(log_joint) - logsumexp(log_joint)

    def _log_wrong(self, sentence: str, n_before: int) -> float:
        """Return log p(sentence) as a wrong ending after `n_before` sentences, in nats."""
        is_pronoun = sentence.split(" ")[0] in PRONOUNS.values()
        starts = (self._log_shares if is_pronoun else self._log_merged)[n_before]
        log_joint = [log_share + self._log_probability([sentence], start) for start, log_share in starts.items()]
        return float(logsumexp(log_joint))

    def _log_probability(self, sentences: Sequence[str], start: Start) -> float:
        tokens = [token for sentence in sentences for token in (*sentence.split(" "), LINE_END)]
        log_joint = self._grammar.log_joint(tokens, lambda discourse: _sentences(discourse, len(sentences), start))
        return float(logsumexp(log_joint))


def write_endings(
    folder: Path, seed: Seed, examples: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
) -> dict[str, float]:
    """Write `<split>.jsonl` in HellaSwag's format, and the best answers to the test split to `units.csv`.

    Args:
        folder: output folder.
        seed: seed of the random streams, one per split.
        examples: maps a split to its number of examples.
        scale, lexicon: see `Grammar`.

    Returns:
        `choices/test/accuracy`, the accuracy of the best answers, from 0 to 1.

    Raises:
        UsageError: the size of a split is missing or below 1.
    """
    if set(examples) != set(SPLITS) or min(examples.values()) < 1:
        raise UsageError(f"examples={dict(examples)}; write a size of at least 1 for each of {', '.join(SPLITS)}")
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


def starts_after_sentences(grammar: Grammar) -> dict[int, list[Start]]:
    """For each n from 1 to `LONGEST`, sample pairs (antecedent without its word, tense) after n sentences."""
    starts_after: dict[int, list[Start]] = {n: [] for n in range(1, LONGEST + 1)}
    for index in range(START_DOCUMENTS):
        uniform = uniforms(0, "endings/starts", index)
        discourse = Discourse(grammar.tables, Sampler(uniform, int(uniform() * N_LATENTS)))
        for starts in starts_after.values():
            discourse.sentence()
            starts.append((discourse.antecedent and discourse.antecedent._replace(word=""), discourse.tense))
    return starts_after


def merged(start: Start) -> Start:
    """Replace the antecedent in `start` by a fixed antecedent, for sentences that do not open with a pronoun."""
    antecedent, tense = start
    return antecedent and Referent("thing", "neuter", word=""), tense


def _sentences(discourse: Discourse, n: int, start: Start) -> None:
    """Generate or parse `n` sentences after the state `start`, which is an antecedent and a tense."""
    discourse.antecedent, discourse.tense = start
    for _ in range(n):
        discourse.sentence()
