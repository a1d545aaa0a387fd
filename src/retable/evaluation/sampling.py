"""Quality and diversity of sampled texts; the built-in grammar judges their quality.

Models are compared over a range of temperatures instead of at a single temperature, as in Caccia et al. 2020, arXiv
1811.02549. Low temperatures and small values of `top_p` produce better texts with less diversity. The grammar measures
quality; comparisons among the samples measure diversity. For comparison, the row `text` of the results contains the
scores of the held-out text.
"""

import csv
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed, Share
from retable.core.systems import LanguageModel
from retable.evaluation.grammar_words import LINE_END, spans, words_of
from retable.evaluation.perplexity import read_split
from retable.generation.next_token import next_token
from retable.generation.sampling import Sampling, seeded
from retable.metrics.diversity import distinct, repetition, self_bleu, zipf_exponent
from retable.tokenizers.tokenizer import Tokenizer


class Language(Protocol):
    """The method of the grammar that this benchmark uses."""

    def sentence_log_probability(self, sentence: str) -> float:
        """Return log p of a sentence and its line end, or −inf for an impossible sentence."""
        ...


class Samples:
    """A benchmark of the quality and diversity of texts sampled from a language model.

    Args:
        temperatures, top_p: values of temperature and of top-p to sample with. While one of these settings is varied,
            the other is 1.
        samples: number of texts per setting. A text ends at the end of its document or after `length` tokens.

    `inputs` lists the files that the scores depend on.
    """

    requires = LanguageModel

    def __init__(
        self,
        tokens: str,
        language: Language,
        temperatures: Sequence[Positive],
        top_p: Sequence[Share],
        samples: PositiveInt = 64,
        length: PositiveInt = 128,
        seed: Seed = 1,
    ):
        if samples < 2:
            raise UsageError(f"benchmark.sampling.samples={samples} is too few to compare; write 2 or more")
        self.folder, self.language = Path(tokens), language
        self.settings = [("temperature", value) for value in temperatures] + [("top_p", value) for value in top_p]
        self.samples, self.length, self.seed = samples, length, seed
        self.inputs = [self.folder / name for name in ("tokenizer.json", "test.bin", "test.units.npy")]

    def __call__(self, system: LanguageModel, folder: Path) -> dict[str, float]:
        """Write `sampling.csv` and `samples.txt`, and return the scores.

        `sampling.csv` has one row per setting: the method (temperature or top_p), its value, and the results of
        `scores`. `samples.txt` has three texts per setting.

        Returns: `sampling/<method>_<value>/<score>` for the samples, and `sampling/text/<score>` for the held-out text.
        Raises: UsageError: the tokens are not the grammar's words, or the held-out text is not in the language.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        words = words_of(tokenizer)
        tokens, units = read_split(self.folder, "test", len(words))
        beginnings = [tokens[span][: self.length] for span in islice(spans(units), self.samples)]
        held_out = [[words[token] for token in beginning] for beginning in beginnings]
        rows = {("text", ""): scores(self.language, held_out)}
        if rows["text", ""]["grammatical"] != 1:
            raise UsageError(f"{self.inputs[1]} is not in the language of the grammar; use corpus=grammar")
        model, shown = next_token(system), []
        for method, value in self.settings:
            settings: dict[str, Any] = {method: float(value), "num_return_sequences": self.samples}
            strategy = Sampling(seeded(self.seed), self.length, **settings)
            # Two line ends close a document, so the model begins a new document after a prompt of two line ends.
            (completions,) = strategy(model, [[tokenizer.boundary] * 2], eos=None)
            texts = [document([words[token] for token in completion.ids]) for completion in completions]
            rows[method, f"{value:g}"] = scores(self.language, texts)
            shown += [f"{method} {value:g}\n\n" + "".join(map(_readable, texts[:3]))]
        (folder / "samples.txt").write_text("\n".join(shown), encoding="utf-8")
        with (folder / "sampling.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("method", "value", *rows["text", ""]))
            writer.writerows((*setting, *(f"{value:.6g}" for value in row.values())) for setting, row in rows.items())
        return {
            f"sampling/{'_'.join(filter(None, setting))}/{name}": value
            for setting, row in rows.items()
            for name, value in row.items()
            if np.isfinite(value)
        }


def document(tokens: Sequence[str]) -> list[str]:
    """Return the tokens up to the end of the document, or all tokens if the document does not end."""
    ends = (i for i, pair in enumerate(pairwise(tokens), 2) if pair == (LINE_END, LINE_END))
    return list(tokens[: next(ends, len(tokens))])


def scores(language: Language, texts: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute quality and diversity of texts, which are documents or beginnings of documents.

    Returns: maps each score's name to its value, or to NaN if the score is undefined for the texts:
        - `tokens` and `sentences`: the numbers of tokens and of sentences.
        - `grammatical`: share of complete sentences that are in the language.
        - `nats`: mean nats per token under the grammar, for sentences that are in the language. Each sentence is judged
          by itself, so that a mistake does not affect later sentences.
        - `self_bleu`, `distinct_1` to `distinct_3`, `repetition`, `zipf`: see `retable.metrics.diversity`.
    """
    sentences = [sentence for text in texts for sentence in whole_sentences(text)]
    log_probs = [language.sentence_log_probability(" ".join(sentence)) for sentence in sentences]
    known = [(value, len(s) + 1) for value, s in zip(log_probs, sentences, strict=True) if np.isfinite(value)]
    log_prob, n_tokens = map(sum, zip(*known, strict=True)) if known else (np.nan, 1)
    return {
        "tokens": sum(map(len, texts)),
        "sentences": len(sentences),
        "grammatical": len(known) / len(sentences) if sentences else np.nan,
        "nats": -log_prob / n_tokens,
        "self_bleu": self_bleu(texts),
        **{f"distinct_{n}": distinct(texts, n) for n in (1, 2, 3)},
        "repetition": repetition(texts),
        "zipf": zipf_exponent(texts),
    }


def whole_sentences(text: Sequence[str]) -> list[list[str]]:
    """Split a text into its complete sentences; a complete sentence ends with a line end.

    The empty line at a document's end is omitted.
    """
    ends = [-1, *(i for i, token in enumerate(text) if token == LINE_END)]
    return [list(text[before + 1 : end]) for before, end in pairwise(ends) if end > before + 1]


def _readable(text: Sequence[str]) -> str:
    return " ".join(text).replace(f" {LINE_END} ", LINE_END).strip() + "\n\n"
