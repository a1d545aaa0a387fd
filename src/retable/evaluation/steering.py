"""What FUDGE gives, and what it costs: how many of the sentences that a model writes have the label that was asked for,
with a discriminator and without, and how likely they are, on the embedded language, which knows both for certain.

Three rows. `sampled`: drawn from the model. `steered`: drawn by `FUDGE`. `kept`: those of the sampled that have the
label, that is, drawn from the model's exact distribution given the label. With a right discriminator FUDGE's would be
it, and its sentences as likely as these, of which one costs as many draws as the label is rare.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed
from retable.core.systems import LanguageModel
from retable.evaluation.grammar_words import LINE_END, words_of
from retable.generation.fudge import FUDGE
from retable.generation.next_token import next_token
from retable.generation.sampling import Sampling, seeded
from retable.generation.steered import Discriminator
from retable.generation.strategy import Strategy
from retable.metrics.diversity import distinct
from retable.tokenizers.tokenizer import Tokenizer

SHOWN = 5  # sentences of a row that are written down


class Language(Protocol):
    """What the benchmark asks of the grammar."""

    def score_tokens(self, tokens: Sequence[str]) -> np.ndarray:
        """The log-probability of each of a document's first tokens, −inf from the first impossible one on."""
        ...

    def sentence_log_probability(self, sentence: str) -> float:
        """log p of a sentence with its line end, −inf outside the language."""
        ...


class Judge(Protocol):
    """What knows for certain."""

    def __call__(self, sentence: str) -> str:
        """The label of a sentence."""
        ...


class Sentence(NamedTuple):
    begun: list[str]
    written: list[str]  # with the line end, where it came to it
    log_prob: float  # of what was written, by the model alone

    @property
    def text(self) -> str:
        return " ".join([*self.begun, *self.written]).removesuffix(f" {LINE_END}")


class Steering:
    """The benchmark, of a language model of the grammar's words; `inputs` are the files that the scores depend on.

    label: what sentences are steered to, one of the discriminator's. beginnings: what they begin with.
    samples: sentences for each beginning, cut where they end, or after `length` tokens.
    top_k: see FUDGE.
    """

    asks_for = LanguageModel

    def __init__(
        self,
        tokens: str,
        language: Language,
        judge: Judge,
        discriminator: Discriminator,
        label: str,
        beginnings: Sequence[str],
        samples: PositiveInt = 500,
        length: PositiveInt = 60,
        top_k: PositiveInt = 200,
        seed: Seed = 1,
    ):
        self._language, self._judge, self._discriminator, self._label = language, judge, discriminator, label
        self._beginnings, self._seed = [each.split() for each in beginnings], seed
        self._samples, self._length, self._top_k = samples, length, top_k
        self.inputs = [Path(tokens, "tokenizer.json"), *discriminator.files]

    def __call__(self, system: LanguageModel, folder: Path) -> dict[str, float]:
        """Write `steering.csv`, a row for each of the three, with the scores of `scores`, and `samples.txt`, some
        sentences of each. Returns `steering/<row>/<score>`.

        UsageError where the tokens are not the grammar's words, or those of the discriminator.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        words = words_of(tokenizer)
        self._discriminator.require_tokens(tokenizer.digest)
        for word in {word for begun in self._beginnings for word in begun} - set(words):
            raise UsageError(f"benchmark.steering.beginnings: {word!r} is no word of the text; write one that it has")
        model = next_token(system)
        ids = {word: i for i, word in enumerate(words)}
        prompts = [[tokenizer.boundary, *(ids[word] for word in begun)] for begun in self._beginnings]

        def sampling() -> Sampling:
            return Sampling(seeded(self._seed), self._length, num_return_sequences=self._samples)

        strategies: dict[str, Strategy | FUDGE] = {
            "sampled": sampling(),
            "steered": FUDGE(sampling(), self._discriminator, self._label, self._top_k),
        }
        found = {
            name: [
                Sentence(begun, [words[token] for token in each.ids], each.log_prob)
                for begun, several in zip(self._beginnings, strategy(model, prompts, tokenizer.boundary), strict=True)
                for each in several
            ]
            for name, strategy in strategies.items()
        }
        found["kept"] = [each for each in found["sampled"] if self._judge(each.text) == self._label]
        rows = {name: self.scores(sentences) for name, sentences in found.items() if sentences}
        with (folder / "steering.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("sentences", *rows["sampled"]))
            writer.writerows((name, *(f"{value:.6g}" for value in row.values())) for name, row in rows.items())
        shown = ["".join(f"{each.text}\n" for each in sentences[:SHOWN]) for sentences in found.values()]
        pages = zip(found, shown, strict=True)
        (folder / "samples.txt").write_text("\n".join(f"{name}\n\n{page}" for name, page in pages), encoding="utf-8")
        return {
            f"steering/{name}/{score}": value
            for name, row in rows.items()
            for score, value in row.items()
            if np.isfinite(value)
        }

    def scores(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """What sentences are worth: their number; the shares of those that have the label, and that the language has;
        how long they are, in tokens, and how varied, see `retable.metrics.diversity`; the nats of what was written by
        the model, a sentence and a token, and by the true distribution, of those that the language has."""
        tokens = sum(len(each.written) for each in sentences)
        nats = -sum(each.log_prob for each in sentences)
        known = [(value, len(each.written)) for each in sentences if np.isfinite(value := self._true_log_prob(each))]
        true_log_prob, true_tokens = map(sum, zip(*known, strict=True)) if known else (np.nan, 1)
        return {
            "n": len(sentences),
            "label": sum(self._judge(each.text) == self._label for each in sentences) / len(sentences),
            "grammatical": len(known) / len(sentences),
            "length": tokens / len(sentences),
            "distinct_2": distinct([each.written for each in sentences], 2),
            "nats_sentence": nats / len(sentences),
            "nats_token": nats / tokens,
            "true_nats_sentence": -true_log_prob / max(len(known), 1),
            "true_nats_token": -true_log_prob / true_tokens,
        }

    def _true_log_prob(self, sentence: Sentence) -> float:
        """Of what was written, after its beginning; −∞ where the language has no such sentence."""
        if sentence.written[-1] != LINE_END:
            return -np.inf
        whole = self._language.sentence_log_probability(sentence.text)
        return whole - self._language.score_tokens(sentence.begun).sum() if sentence.begun else whole
