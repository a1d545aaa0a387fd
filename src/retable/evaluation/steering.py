"""How often sentences written with FUDGE have the requested label, and how likely such sentences are.

The grammar computes the exact label and probability of any sentence. Three sets of sentences are compared:

- `sampled`: drawn from the model.
- `steered`: drawn by `FUDGE`.
- `kept`: the sentences of `sampled` that have the requested label. The sentences of `kept` are samples from the model's
  exact distribution given the label.

With a perfect discriminator, FUDGE would sample from the same distribution as `kept`. On average, 1 / (frequency of the
label) sentences must be sampled for one sentence with the label.
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

SHOWN = 5  # number of sentences of each set in samples.txt


class Language(Protocol):
    """The methods of the grammar that this benchmark uses."""

    def score_tokens(self, tokens: Sequence[str]) -> np.ndarray:
        """Return the log-probabilities of a document's first tokens, (tokens,).

        The value is −inf for the first impossible token and all later tokens.
        """
        ...

    def sentence_log_probability(self, sentence: str) -> float:
        """Return log p of a sentence and its line end, or −inf for an impossible sentence."""
        ...


class Judge(Protocol):
    """A function that returns the true label of a sentence."""

    def __call__(self, sentence: str) -> str:
        """Return the label of a sentence."""
        ...


class Sentence(NamedTuple):
    begun: list[str]
    written: list[str]  # The words that the model wrote, and the line end if the sentence is complete.
    log_prob: float  # The log-probability of `written` under the model without the discriminator, in nats.

    @property
    def text(self) -> str:
        return " ".join([*self.begun, *self.written]).removesuffix(f" {LINE_END}")


class Steering:
    """A benchmark of FUDGE with a language model whose tokens are the grammar's words.

    Args:
        label: the requested label, which must be one of the discriminator's labels.
        beginnings: first words of the sentences; the model writes the rest.
        samples: number of sentences per beginning. A sentence has at most `length` tokens.
        top_k: number of tokens that the discriminator rates at each step, see `FUDGE`.

    `inputs` lists the files that the scores depend on.
    """

    requires = LanguageModel

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
        """Write scores to `steering.csv` and some sentences to `samples.txt`, and return the scores.

        `steering.csv` has one row per set of sentences.

        Returns: `steering/<set>/<score>` for each score that the method `scores` computes.
        Raises: UsageError: the tokens are not the grammar's words, or the discriminator has a different tokenizer.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        words = words_of(tokenizer)
        self._discriminator.require_tokens(tokenizer.digest)
        for word in {word for begun in self._beginnings for word in begun} - set(words):
            raise UsageError(f"benchmark.steering.beginnings: {word!r} is not in the vocabulary; write another word")
        model = next_token(system)
        ids = {word: i for i, word in enumerate(words)}
        prompts = [[tokenizer.boundary, *(ids[word] for word in begun)] for begun in self._beginnings]

        def sampling() -> Sampling:
            return Sampling(seeded(self._seed), self._length, num_return_sequences=self._samples)

        strategies: dict[str, Strategy | FUDGE] = {
            "sampled": sampling(),
            "steered": FUDGE(sampling(), self._discriminator, self._label, self._top_k),
        }
        sentences_of = {
            name: [
                Sentence(begun, [words[token] for token in each.ids], each.log_prob)
                for begun, several in zip(self._beginnings, strategy(model, prompts, tokenizer.boundary), strict=True)
                for each in several
            ]
            for name, strategy in strategies.items()
        }
        sentences_of["kept"] = [each for each in sentences_of["sampled"] if self._judge(each.text) == self._label]
        rows = {name: self.scores(sentences) for name, sentences in sentences_of.items() if sentences}
        with (folder / "steering.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("sentences", *rows["sampled"]))
            writer.writerows((name, *(f"{value:.6g}" for value in row.values())) for name, row in rows.items())
        shown = ["".join(f"{each.text}\n" for each in sentences[:SHOWN]) for sentences in sentences_of.values()]
        pages = zip(sentences_of, shown, strict=True)
        (folder / "samples.txt").write_text("\n".join(f"{name}\n\n{page}" for name, page in pages), encoding="utf-8")
        return {
            f"steering/{name}/{score}": value
            for name, row in rows.items()
            for score, value in row.items()
            if np.isfinite(value)
        }

    def scores(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """Compute the label frequency, diversity and likelihood of a set of sentences.

        Returns:
            - `n`: number of sentences; `label`: share of sentences with the requested label; `grammatical`: share of
              sentences in the language.
            - `length`: mean number of tokens per sentence; `distinct_2`: diversity, see `retable.metrics.diversity`.
            - `nats_sentence`, `nats_token`: nats, under the model, of the words after the beginning, per sentence and
              per token.
            - `true_nats_sentence`, `true_nats_token`: nats, under the grammar, of the words after the beginning, for
              sentences in the language.
        """
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
        """Return log p of the words after the beginning, or −∞ for an impossible sentence."""
        if sentence.written[-1] != LINE_END:
            return -np.inf
        whole = self._language.sentence_log_probability(sentence.text)
        return whole - self._language.score_tokens(sentence.begun).sum() if sentence.begun else whole
