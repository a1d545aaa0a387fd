"""Use of loaded language models: probabilities of texts, continuations, and hidden states.

Dimensions: n texts, T tokens of a text, K layers, D state size.
"""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.core.artifacts import require as require_file
from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed, require
from retable.core.systems import LanguageModel as Probabilities
from retable.core.systems import System, TrainedSystem
from retable.corpora.text import lines_of
from retable.evaluation.scoring import Scorer
from retable.generation.beam_search import BeamSearch
from retable.generation.contrastive_search import ContrastiveSearch
from retable.generation.fudge import FUDGE
from retable.generation.sampling import Greedy, Sampling, TokenByToken, seeded
from retable.generation.strategy import Strategy
from retable.inference.discriminator import load_discriminator
from retable.inference.loaded import Loaded, listed, warn_of_cut, warn_of_unknown
from retable.inference.writing import Writer
from retable.metrics.likelihood import likelihood_metrics
from retable.models.base import BothDirections, LeftToRight, MarkedEncoder, Model
from retable.models.t5 import T5
from retable.objectives.text_to_text import TextToText
from retable.tokenizers.tokenizer import Token, Tokenizer

Decoding = Literal["greedy", "beam", "sample", "contrastive"]

BATCH = 32  # number of texts whose hidden states are computed together


class Scored(NamedTuple):
    """A text's log-probability in nats, in total, for each token and for each word."""

    text: str
    log_prob: float
    tokens: list[tuple[str, float]]
    words: list[tuple[str, float]]  # a token belongs to the word that contains its last character


class Language(Loaded):
    """A language model (counted, neural or a mixture), an encoder such as BERT, or a T5.

    Each text is scored independently of other texts, after the boundary token.
    """

    def __init__(self, folder: Path, system: System):
        super().__init__(folder, system.objective if isinstance(system, TrainedSystem) else None)
        self.system, self.tokenizer = system, Tokenizer.load(require_file(folder / "tokenizer.json"))
        self._scorer = Scorer(system, self.tokenizer)

    @property
    def can(self) -> tuple[str, ...]:
        reads = isinstance(self.system, TrainedSystem) and isinstance(self.system.objective, TextToText)
        names = ["perplexity"] if isinstance(self.system, Probabilities) else []
        names += ["score", "choose"] if names or reads else []
        try:
            self._writer()
            names += ["generate", "continue_", "alternatives", "stream"]
        except UsageError:
            pass
        return (*names, *(["encode"] if self._model is not None else []))

    @property
    def continues_prompt(self) -> bool:
        """True if generated texts continue the prompt; False for T5s and prefix LMs, which write a separate text."""
        return self._writer().continues_prompt

    def perplexity(self, texts: str | Sequence[str], per: Literal["token", "word"] = "word") -> float:
        """Compute the perplexity per token or per word, over the texts as one stream.

        The result is exp of the mean negative log-probability, as in the benchmark `perplexity`. Each text counts as
        one unit of the corpus, which is a line or a document of several lines.

        Raises: UsageError: `texts` is empty, or the system computes no probabilities of texts.
        """
        return self.likelihood(texts)[f"perplexity_{per}"]

    def likelihood(self, texts: str | Sequence[str]) -> dict[str, float]:
        """Measure the likelihood of the texts as one stream.

        Returns: `nats` (the negative log-likelihood), the counts `tokens`, `words` and `bytes`, and `perplexity_token`,
            `perplexity_word` and `bits_per_byte`. Each line end counts as one word and one byte. If the text cannot be
            restored from its tokens, the result contains `bytes_lost`, the share of the bytes that are lost, instead of
            `bits_per_byte`.
        """
        system = self._probabilities()
        if not (texts := listed(texts)):
            raise UsageError("perplexity needs a text; pass one or more")
        documents = self.config["corpus"]["unit"] == "document"
        lines = [lines_of(text) for text in texts]
        warn_of_unknown(self.tokenizer, chain.from_iterable(lines))
        ids, words, sizes = zip(*self.tokenizer.encode_units(lines, documents), strict=True)
        tokens = np.concatenate([np.array(each, dtype=np.int64) for each in ids])
        nats = -float(system.log_prob(tokens).sum())
        lost = self.tokenizer.lost(chain.from_iterable(lines)).bytes
        return likelihood_metrics(nats, len(tokens), sum(words), sum(sizes), lost)

    def score(self, texts: str | Sequence[str], context: str = "", end: bool = False) -> list[Scored]:
        """Return the log-probability of each text, of its tokens and of its words, in nats.

        Args:
            texts: one or more texts, which are scored independently.
            context: text before each of the texts; it is not scored.
            end: also score the end of the line, as a token that belongs to the last word; only allowed without
                `context`.
        """
        if not (texts := listed(texts)):
            return []
        if end and context:
            raise UsageError("end=True needs texts without context; leave context= out, or write end=False")
        if end and not all(text.split() for text in texts):
            raise UsageError("one of the texts is empty, and end=True needs a line of words; remove the empty text")
        (context,) = listed(context)
        warn_of_unknown(self.tokenizer, [context, *texts])
        befores, ids = self._scorer.encode([context] * len(texts), texts)
        ids = self._scorer.encode_lines(texts, end=True) if end else ids
        log_probs = self._scorer.log_prob_of_tokens(befores, ids)
        return [self._scored(context, *each) for each in zip(texts, ids, log_probs, strict=True)]

    def choose(self, context: str, endings: Sequence[str]) -> int:
        """Return the index of the most probable ending after the context.

        Endings are compared by the summed log-probability of their tokens.

        Raises: UsageError: `endings` is empty.
        """
        if not endings:
            raise UsageError("choose needs an ending; pass one or more")
        context, *endings = listed([context, *endings])
        warn_of_unknown(self.tokenizer, [context, *endings])
        return int(np.argmax(self._scorer.log_prob(*self._scorer.encode([context] * len(endings), endings))))

    def generate(
        self, n: int = 1, *, max_new_tokens: int = 40, min_new_tokens: int = 1, seed: int = 1, **sampling: Any
    ) -> list[str]:
        """Return `n` texts sampled from the model without a prompt.

        Args:
            max_new_tokens, min_new_tokens: maximum and minimum number of tokens of a text.
            sampling: settings of `Sampling`, such as `temperature`, `top_k`, `top_p` and `repetition_penalty`.

        Raises: UsageError: a setting is unknown or out of range.
        """
        lengths = {"max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens}
        strategy = _strategy("sample", seed=seed, num_return_sequences=n, **lengths, **sampling)
        return [text for _, text in self._complete([""], strategy)[0]]

    def continue_(
        self,
        prompts: str | Sequence[str],
        *,
        strategy: Decoding = "greedy",
        max_new_tokens: int = 40,
        special_tokens: bool = False,
        **settings: Any,
    ) -> list[str]:
        """Return a continuation of each prompt up to the end of the text, without the prompt.

        Args:
            prompts: one or more texts.
            strategy: greedy, beam, sample or contrastive.
            max_new_tokens: maximum length of a continuation.
            special_tokens: read names of special tokens in a prompt, such as <extra_id_0>, as special tokens and not as
                text.
            settings: those of `Greedy`, `BeamSearch`, `Sampling` or `ContrastiveSearch`, named as in Hugging Face's
                `generate`. Sampling also accepts `seed`. To steer texts towards a `label` with `FUDGE`, set
                `discriminator` to the discriminator's cell.
        """
        chosen = self._chosen(strategy, max_new_tokens, **settings)
        if not special_tokens:
            warn_of_unknown(self.tokenizer, prompts := listed(prompts))
        return [best for ((_, best), *_) in self._complete(listed(prompts), chosen, special_tokens)]

    def alternatives(
        self,
        prompt: str,
        strategy: Decoding = "beam",
        *,
        max_new_tokens: int = 40,
        n: int = 4,
        special_tokens: bool = False,
        **settings: Any,
    ) -> list[tuple[str, float]]:
        """Return `n` texts that begin with the prompt, each with the log-probability of its continuation, in nats.

        Beam search returns the best text first. `settings` are the same as in `continue_`.

        Raises: UsageError: a setting is unknown or out of range.
        """
        chosen, writer = self._chosen(strategy, max_new_tokens, **settings, num_return_sequences=n), self._writer()
        (prompt,) = listed(prompt)
        if not special_tokens:
            warn_of_unknown(self.tokenizer, [prompt])
        begun = writer.encode([prompt], special_tokens)
        (completions,) = chosen(writer.model, begun, writer.end)
        return [(writer.whole(begun[0], each.ids), each.log_prob) for each in completions]

    def stream(
        self,
        prompt: str = "",
        strategy: Decoding = "greedy",
        *,
        max_new_tokens: int = 40,
        special_tokens: bool = False,
        **settings: Any,
    ) -> Iterator[str]:
        """Yield the continuation of a prompt in pieces while it is generated; pieces contain the spaces between words.

        `settings` are the same as in `continue_`.

        Raises: UsageError: the strategy is beam search, or a setting is unknown or out of range.
        """
        chosen, writer = self._chosen(strategy, max_new_tokens, **settings), self._writer()
        (prompt,) = listed(prompt)
        if not isinstance(chosen, TokenByToken | FUDGE):
            raise UsageError(f"strategy={strategy} cannot stream; write greedy, sample or contrastive")
        if not special_tokens:
            warn_of_unknown(self.tokenizer, [prompt])
        (begun,) = writer.encode([prompt], special_tokens)
        return self._text_parts(writer, chosen, begun)

    @staticmethod
    def _text_parts(writer: Writer, chosen: TokenByToken | FUDGE, begun: list[int]) -> Iterator[str]:
        written = list[int]()
        shown = writer.whole(begun, [])
        for token in chosen.stream(writer.model, begun, writer.end):
            written.append(token)
            text = writer.whole(begun, written)
            if not text.endswith("\ufffd"):  # U+FFFD stands for an incomplete character
                if text != shown:
                    yield text[len(shown) :]
                shown = text

    def encode(
        self,
        texts: str | Sequence[str],
        pooling: Literal["mean", "max", "first", "last"] | None = None,
        max_length: int | None = None,
    ) -> list[np.ndarray] | np.ndarray:
        """Return the hidden states of each text, float32.

        Args:
            texts: one or more texts.
            pooling: how to reduce the last layer to one vector: the mean or maximum over all tokens, including marks
                such as [CLS], or the state of the first token ([CLS] of a BERT) or of the last token. If `pooling` is
                None, all states are returned. In sentence-transformers, these poolings are called mean, max, cls and
                lasttoken.
            max_length: maximum number of tokens, including marks; by default the model's limit. Longer texts are cut at
                the end, with a warning. In sentence-transformers, `max_length` is called max_seq_length.

        Returns: with `pooling`, one vector per text, (n, D). Without `pooling`, a list with the states of each text,
            (K, T, D). For BERT and ELMo, the K layers are all layers; the first one is the input layer, which has no
            context. For other models, K is 1, the last layer. The T tokens include the marks around the text.
        """
        if self._model is None:
            raise UsageError(f"{self.folder} has no hidden states; use an LSTM, a GPT, an ELMo, a BERT or a T5")
        warn_of_unknown(self.tokenizer, texts := listed(texts))
        rows = self._rows(texts, max_length)
        states = [row for start in range(0, len(rows), BATCH) for row in self._states(rows[start : start + BATCH])]
        if pooling is None:
            return states
        pooled = {
            "mean": lambda row: row.mean(axis=0),
            "max": lambda row: row.max(axis=0),
            "first": lambda row: row[0],
            "last": lambda row: row[-1],
        }
        if pooling not in pooled:
            raise UsageError(f"pooling={pooling} does not exist; write {', '.join(pooled)}")
        return np.stack([pooled[pooling](row[-1]) for row in states])

    @property
    def _model(self) -> Model | None:
        model = self.system.objective.model if isinstance(self.system, TrainedSystem) else None
        return model if isinstance(model, LeftToRight | MarkedEncoder | BothDirections | T5) else None

    def _probabilities(self) -> Probabilities:
        if not isinstance(self.system, Probabilities):
            raise UsageError(f"{self.folder} gives no probabilities of texts; use the cell of a language model")
        return self.system

    def _scored(self, context: str, text: str, ids: list[int], log_probs: np.ndarray) -> Scored:
        tokens = self.tokenizer.encode_with_offsets(context + text)
        tokens = tokens[len(tokens) - len(ids) :] if context else tokens
        pairs = [(self.tokenizer.words[i], float(each)) for i, each in zip(ids, log_probs, strict=True)]
        begin = len(context.encode())
        words = list(_by_words(text, [Token(t.id, t.start - begin, t.end - begin) for t in tokens], log_probs))
        return Scored(text, float(log_probs.sum()), pairs, words)

    def _writer(self) -> Writer:
        return Writer(self.system, self.tokenizer)

    def _chosen(
        self, name: Decoding, max_new_tokens: int, discriminator: str | None = None, label: str = "", **settings: Any
    ) -> Strategy | FUDGE:
        strategy = _strategy(name, max_new_tokens, **settings)
        if discriminator is None:
            return strategy
        (steering := load_discriminator(discriminator)).require_tokens(self.tokenizer.digest)
        return FUDGE(strategy, steering, label)

    def _complete(
        self, prompts: Sequence[str], strategy: Strategy | FUDGE, special_tokens: bool = False
    ) -> list[list[tuple[float, str]]]:
        """Return, for each prompt, the log-probabilities and texts of its completions."""
        writer = self._writer()
        begun = writer.encode(prompts, special_tokens)
        written = strategy(writer.model, begun, writer.end)
        return [
            [(each.log_prob, writer.read(ids, each.ids)) for each in completions]
            for ids, completions in zip(begun, written, strict=True)
        ]

    def _rows(self, texts: Sequence[str], max_length: int | None) -> list[list[int]]:
        """Return the ids of each text with its marks, cut to `max_length` or the model's limit."""
        model, marks, boundary = self._model, self.tokenizer.special_ids, self.tokenizer.boundary
        assert model is not None
        if isinstance(model, LeftToRight):
            before, after = [boundary], []
        elif isinstance(model, T5):
            before, after = [], [marks.get("</s>", [boundary, *self.tokenizer.encode("\n")][-1])]
        else:
            before, after = [marks.get("[CLS]", boundary)], [marks.get("[SEP]", boundary)]
        least = len(before) + len(after) + 1
        if max_length is not None:
            require(max_length, PositiveInt, "max_length")
            if not least <= max_length <= (model.max_length or max_length):
                most = "or more" if model.max_length is None else f"to {model.max_length}, the model's limit"
                raise UsageError(f"max_length={max_length} is out of range; write {least} {most}")
        limit, ids = max_length or model.max_length, self.tokenizer.encode_batch(list(texts))
        if limit is not None:
            room = max(limit - least + 1, 0)
            warn_of_cut(sum(len(row) > room for row in ids), len(ids), f"max_length={limit}")
            ids = [row[:room] for row in ids]
        return [[*before, *row, *after] for row in ids]

    @torch.inference_mode()
    def _states(self, rows: Sequence[list[int]]) -> Iterator[np.ndarray]:
        model = self._model
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        padded = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        layers: list[Tensor]
        if isinstance(model, LeftToRight):
            layers = [model(padded)[0]]  # states do not depend on later tokens, so padding does not change them
        elif isinstance(model, T5):
            layers = [model.memory(padded, lengths)]
        else:
            assert isinstance(model, MarkedEncoder | BothDirections)
            layers = model.layers(padded, lengths)
        stacked = torch.stack(layers, dim=1).float().cpu().numpy()
        for row, length in zip(stacked, lengths.tolist(), strict=True):
            yield row[:, :length]


_STRATEGIES: dict[str, type[Strategy]] = {
    "greedy": Greedy,
    "beam": BeamSearch,
    "sample": Sampling,
    "contrastive": ContrastiveSearch,
}
_DEFAULTS: dict[str, dict[str, Any]] = {"beam": {"num_beams": 4}, "contrastive": {"top_k": 8, "penalty_alpha": 0.6}}


def _strategy(name: str, max_new_tokens: int, *, seed: int = 1, **settings: Any) -> Strategy:
    """Build the decoding strategy; `seed` only affects sampling.

    Raises: UsageError: a setting is unknown or out of range.
    """
    if name not in _STRATEGIES:
        raise UsageError(f"strategy={name} does not exist; write greedy, beam, sample or contrastive")
    known = _settings_of(name)
    for setting in settings:
        if setting not in known:
            raise UsageError(f'strategy="{name}" has no setting {setting}; write {_advice(setting, [*known])}')
    settings = {"max_new_tokens": max_new_tokens, **_DEFAULTS.get(name, {}), **settings}
    require(seed, Seed, "seed")
    strategy: Strategy | None = None
    with contextlib.suppress(TypeError):  # a setting is a string instead of a number; `require` reports it below
        strategy = Sampling(seeded(seed), **settings) if name == "sample" else _STRATEGIES[name](**settings)
    for setting, value in settings.items():
        require(value, known[setting], setting)
    assert strategy is not None
    return strategy


def _settings_of(strategy: str) -> dict[str, Any]:
    """Return the names and types of a strategy's settings."""
    parameters = inspect.signature(_STRATEGIES[strategy]).parameters
    types = {name: each.annotation for name, each in parameters.items() if name != "generator"}
    return types | ({"seed": Seed} if strategy == "sample" else {})


def _advice(setting: str, known: Sequence[str]) -> str:
    """Return alternatives to an unknown setting of a strategy, for an error message."""
    others = [name for name in _STRATEGIES if setting in _settings_of(name)]
    if setting == "do_sample":
        others = ["sample"]  # `do_sample` is the setting of Hugging Face for sampling
    better = [f'strategy="{name}"' for name in others] or get_close_matches(setting, known, n=1)
    return " or ".join([*better, f"one of {', '.join(known)}"])


def _by_words(text: str, tokens: Sequence[Token], log_probs: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yield each word with the summed log-probability of its tokens.

    Tokens after the last word count as tokens of the last word.
    """
    if not (words := text.split()):
        return
    ends, at = [], 0
    for word in words:
        at = text.index(word, at) + len(word)
        ends.append(len(text[:at].encode()))
    ended = [token.end for token in tokens] + [len(text.encode())] * (len(log_probs) - len(tokens))
    owners = np.searchsorted(ends, ended).clip(max=max(len(words) - 1, 0))
    sums = np.bincount(owners, log_probs, minlength=len(words)) if len(ended) else np.zeros(len(words))
    yield from ((word, float(total)) for word, total in zip(words, sums, strict=True))
