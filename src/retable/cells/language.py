"""Systems of language, used: what a text's probability is, how it goes on, and what a model makes of its words.

n texts, T tokens of a text, K layers, D dimensions.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.artifacts import require
from retable.cells.loaded import Loaded, listed
from retable.errors import UsageError
from retable.evaluation.scoring import Scorer
from retable.generation.beam_search import BeamSearch
from retable.generation.next_token import next_token
from retable.generation.sampling import Greedy, Sampling, TokenByToken, seeded
from retable.generation.strategy import Strategy
from retable.metrics.likelihood import likelihood_metrics
from retable.models.base import BothDirections, LeftToRight, MarkedEncoder, Model
from retable.models.t5 import T5
from retable.objectives.text_to_text import TextToText
from retable.systems import LanguageModel as Probabilities
from retable.systems import System, TrainedSystem
from retable.tokenizers.tokenizer import Token, Tokenizer

Decoding = Literal["greedy", "beam", "sample"]

BATCH = 32  # texts whose states are computed together


class Scored(NamedTuple):
    """A text's natural log-probability, and what of it is each token's and each word's."""

    text: str
    log_prob: float
    tokens: list[tuple[str, float]]
    words: list[tuple[str, float]]  # a token is of the word that its last letter is of


class Language(Loaded):
    """A language model, counted, trained or mixed; an encoder, such as a BERT; or a T5.

    Every text stands alone, after the mark that begins a stream.
    """

    def __init__(self, folder: Path, system: System):
        super().__init__(folder, system.objective if isinstance(system, TrainedSystem) else None)
        self.system, self.tokenizer = system, Tokenizer.load(require(folder / "tokenizer.json"))
        self._scorer = Scorer(system, self.tokenizer)

    @property
    def can(self) -> tuple[str, ...]:
        reads = isinstance(self.system, TrainedSystem) and isinstance(self.system.objective, TextToText)
        names = ["perplexity"] if isinstance(self.system, Probabilities) else []
        names += ["score", "choose"] if names or reads else []
        try:
            next_token(self.system)
            names += ["generate", "continue_", "alternatives", "stream"]
        except UsageError:
            pass
        return (*names, *(["encode"] if self._model is not None else []))

    def perplexity(self, texts: str | Sequence[str], per: Literal["token", "word"] = "word") -> float:
        """exp of the mean negative log-probability of a token or of a word, over the texts as one stream, as the
        benchmark `perplexity` has it of a test set: each is a unit of the corpus, a line, or a document with its lines.
        """
        return self.likelihood(texts)[f"perplexity_{per}"]

    def likelihood(self, texts: str | Sequence[str]) -> dict[str, float]:
        """Of the texts as one stream: `nats`, the counts of `tokens`, `words` and `bytes` that they are of, and from
        them `perplexity_token`, `perplexity_word` and `bits_per_byte`. A line's end is a word and a byte."""
        system = self._probabilities()
        documents = self.config["corpus"]["unit"] == "document"
        units = self.tokenizer.encode_units([text.split("\n") for text in listed(texts)], documents)
        ids, words, sizes = zip(*units, strict=True)
        tokens = np.concatenate([np.array(each, dtype=np.int64) for each in ids])
        nats = -float(system.log_prob(tokens).sum())
        return likelihood_metrics(nats, len(tokens), sum(words), sum(sizes))

    def score(self, texts: str | Sequence[str], context: str = "", end: bool = False) -> list[Scored]:
        """Of each text alone, or after `context`: its log-probability, that of its tokens, and that of its words. With
        `end` a text alone is a line, whose end counts as a token too, and is of its last word."""
        texts = listed(texts)
        if end and context:
            raise UsageError("a line's end is counted of a text alone; leave context= out, or write end=False")
        befores, ids = self._scorer.encode([context] * len(texts), texts)
        ids = self._scorer.encode_lines(texts, end=True) if end else ids
        found = self._scorer.log_prob_of_tokens(befores, ids)
        return [self._scored(context, *each) for each in zip(texts, ids, found, strict=True)]

    def choose(self, context: str, endings: Sequence[str]) -> int:
        """The place of the ending that is the likeliest after the context, by the sum over its tokens."""
        return int(np.argmax(self._scorer.log_prob(*self._scorer.encode([context] * len(endings), endings))))

    def generate(
        self, n: int = 1, *, max_new_tokens: int = 40, min_new_tokens: int = 1, seed: int = 1, **sampling: Any
    ) -> list[str]:
        """Texts that the model writes from nothing, drawn from its distribution.

        sampling: `temperature`, `top_k`, `top_p`, `repetition_penalty` and others, see `Sampling`.
        """
        lengths = {"max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens}
        strategy = Sampling(seeded(seed), num_return_sequences=n, **lengths, **sampling)
        return [text for _, text in self._go_on([""], strategy)[0]]

    def continue_(
        self, prompts: str | Sequence[str], *, strategy: Decoding = "greedy", max_new_tokens: int = 40, **settings: Any
    ) -> list[str]:
        """What comes after each of the prompts, without it, up to the end of the text.

        settings: those of `Greedy`, `BeamSearch` or `Sampling`, which are called as in Hugging Face's `generate`, and
        of what is drawn a `seed`.
        """
        chosen = _strategy(strategy, max_new_tokens, **settings)
        return [best for ((_, best), *_) in self._go_on(listed(prompts), chosen)]

    def alternatives(
        self, prompt: str, strategy: Decoding = "beam", *, max_new_tokens: int = 40, n: int = 4, **settings: Any
    ) -> list[tuple[str, float]]:
        """`n` texts that begin with the prompt, by beams the best first, each with the log-probability of what comes
        after it; settings as of `continue_`."""
        chosen, eos = _strategy(strategy, max_new_tokens, num_return_sequences=n, **settings), self.tokenizer.boundary
        begun = self.tokenizer.encode(prompt)
        (found,) = chosen(next_token(self.system), [[eos, *begun]], eos)
        ids = [[*begun, *(token for token in each.ids if token != eos)] for each in found]
        return list(zip(self.tokenizer.decode_batch(ids), (each.log_prob for each in found), strict=True))

    def stream(
        self, prompt: str = "", strategy: Decoding = "greedy", *, max_new_tokens: int = 40, **settings: Any
    ) -> Iterator[str]:
        """As `continue_` of one prompt, by greedy decoding or drawn, piece by piece as it comes, spaces and all."""
        chosen = _strategy(strategy, max_new_tokens, **settings)
        if not isinstance(chosen, TokenByToken):
            raise UsageError(f"{strategy} has no text before the end; write greedy or sample")
        eos = self.tokenizer.boundary
        ids = self.tokenizer.encode(prompt)
        shown = self.tokenizer.decode(ids)
        for token in chosen.stream(next_token(self.system), [eos, *ids], eos):
            if token != eos:
                ids.append(token)
                text = self.tokenizer.decode(ids)
                if not text.endswith("\ufffd"):  # in the middle of a character
                    yield text[len(shown) :]
                    shown = text

    def encode(
        self, texts: str | Sequence[str], pooling: Literal["mean", "max", "first", "last"] | None = None
    ) -> list[np.ndarray] | np.ndarray:
        """What the model makes of each text, float32: the states (K, T, D) of all layers that it shows, the one without
        context first, of the marks that it reads the text between as well; or with `pooling` a vector each, (n, D), of
        the last layer: the mean or the largest values over the text with its marks, or the state of its first token (of
        a BERT [CLS]) or of its last. In sentence-transformers these are called mean, max, cls and lasttoken.
        """
        if self._model is None:
            raise UsageError(f"{self.folder} has no states of texts; take an LSTM, a GPT, an ELMo, a BERT or a T5")
        texts = listed(texts)
        states = [row for start in range(0, len(texts), BATCH) for row in self._states(texts[start : start + BATCH])]
        if pooling is None:
            return states
        pooled = {
            "mean": lambda row: row.mean(axis=0),
            "max": lambda row: row.max(axis=0),
            "first": lambda row: row[0],
            "last": lambda row: row[-1],
        }
        if pooling not in pooled:
            raise UsageError(f"pooling={pooling} is none; write {', '.join(pooled)}")
        return np.stack([pooled[pooling](row[-1]) for row in states])

    @property
    def _model(self) -> Model | None:
        model = self.system.objective.model if isinstance(self.system, TrainedSystem) else None
        return model if isinstance(model, LeftToRight | MarkedEncoder | BothDirections | T5) else None

    def _probabilities(self) -> Probabilities:
        if not isinstance(self.system, Probabilities):
            raise UsageError(f"{self.folder} gives no probabilities of a text; take the cell of a language model")
        return self.system

    def _scored(self, context: str, text: str, ids: list[int], log_probs: np.ndarray) -> Scored:
        tokens = self.tokenizer.encode_with_offsets(context + text)
        tokens = tokens[len(tokens) - len(ids) :] if context else tokens
        pairs = [(self.tokenizer.words[i], float(each)) for i, each in zip(ids, log_probs, strict=True)]
        begin = len(context.encode())
        words = list(_by_words(text, [Token(t.id, t.start - begin, t.end - begin) for t in tokens], log_probs))
        return Scored(text, float(log_probs.sum()), pairs, words)

    def _go_on(self, prompts: Sequence[str], strategy: Strategy) -> list[list[tuple[float, str]]]:
        """Of each prompt the completions' log-probabilities and texts."""
        eos = self.tokenizer.boundary
        begun = [[eos, *ids] for ids in self.tokenizer.encode_batch(list(prompts))]
        found = strategy(next_token(self.system), begun, eos)
        return [
            [(each.log_prob, self._text(ids, each.ids, eos)) for each in completions]
            for ids, completions in zip(begun, found, strict=True)
        ]

    def _text(self, prompt: list[int], ids: list[int], eos: int) -> str:
        before, whole = self.tokenizer.decode_batch([prompt, prompt + (ids[:-1] if ids[-1:] == [eos] else ids)])
        return whole.removeprefix(before).strip()

    @torch.inference_mode()
    def _states(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        model, marks, boundary = self._model, self.tokenizer.special_ids, self.tokenizer.boundary
        first, last = marks.get("[CLS]", boundary), marks.get("[SEP]", boundary)
        ids = self.tokenizer.encode_batch(list(texts))
        if isinstance(model, LeftToRight):
            rows = [[boundary, *row] for row in ids]
        elif isinstance(model, T5):
            rows = [[*row, marks.get("</s>", [boundary, *self.tokenizer.encode("\n")][-1])] for row in ids]
        else:
            rows = [[first, *row, last] for row in ids]
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        padded = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        layers: list[Tensor]
        if isinstance(model, LeftToRight):
            layers = [model(padded)[0]]  # a state has seen nothing behind it, so padding there changes none
        elif isinstance(model, T5):
            layers = [model.memory(padded, lengths)]
        else:
            assert isinstance(model, MarkedEncoder | BothDirections)
            layers = model.layers(padded, lengths)
        stacked = torch.stack(layers, dim=1).float().cpu().numpy()
        for row, length in zip(stacked, lengths.tolist(), strict=True):
            yield row[:, :length]


def _strategy(name: Decoding, max_new_tokens: int, *, seed: int = 1, num_beams: int = 4, **settings: Any) -> Strategy:
    if name == "greedy":
        return Greedy(max_new_tokens, **settings)
    if name == "beam":
        return BeamSearch(num_beams, max_new_tokens, **settings)
    if name == "sample":
        return Sampling(seeded(seed), max_new_tokens, **settings)
    raise UsageError(f"strategy={name} is none; write greedy, beam or sample")


def _by_words(text: str, tokens: Sequence[Token], log_probs: np.ndarray) -> Iterator[tuple[str, float]]:
    """The text's words with the sums of their tokens' log-probabilities; tokens behind the last are its own."""
    words = text.split()
    ends, at = [], 0
    for word in words:
        at = text.index(word, at) + len(word)
        ends.append(len(text[:at].encode()))
    ended = [token.end for token in tokens] + [len(text.encode())] * (len(log_probs) - len(tokens))
    owners = np.searchsorted(ends, ended).clip(max=max(len(words) - 1, 0))
    sums = np.bincount(owners, log_probs, minlength=len(words)) if len(ended) else np.zeros(len(words))
    yield from ((word, float(total)) for word, total in zip(words, sums, strict=True))
