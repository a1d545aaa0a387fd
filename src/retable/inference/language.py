"""Systems of language, used: what a text's probability is, how it goes on, and what a model makes of its words.

n texts, T tokens of a text, K layers, D dimensions.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.core.artifacts import require
from retable.core.errors import UsageError
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
from retable.inference.loaded import Loaded, listed
from retable.inference.writing import Writer
from retable.metrics.likelihood import likelihood_metrics
from retable.models.base import BothDirections, LeftToRight, MarkedEncoder, Model
from retable.models.t5 import T5
from retable.objectives.text_to_text import TextToText
from retable.tokenizers.tokenizer import Token, Tokenizer

Decoding = Literal["greedy", "beam", "sample", "contrastive"]

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
            self._writer()
            names += ["generate", "continue_", "alternatives", "stream"]
        except UsageError:
            pass
        return (*names, *(["encode"] if self._model is not None else []))

    @property
    def goes_on(self) -> bool:
        """Whether what it writes continues a prompt; a T5 and a prefix LM read one, and write a text of their own."""
        return self._writer().goes_on

    def perplexity(self, texts: str | Sequence[str], per: Literal["token", "word"] = "word") -> float:
        """exp of the mean negative log-probability of a token or of a word, over the texts as one stream, as the
        benchmark `perplexity` has it of a test set: each is a unit of the corpus, a line, or a document with its lines.
        """
        return self.likelihood(texts)[f"perplexity_{per}"]

    def likelihood(self, texts: str | Sequence[str]) -> dict[str, float]:
        """Measure the texts as one stream: `nats`, the counts of `tokens`, `words` and `bytes`, and from these
        `perplexity_token`, `perplexity_word` and `bits_per_byte`. A line's end is a word and a byte. In place of the
        bits per byte stands `bytes_lost`, a share, where the tokens do not determine the whole text."""
        system = self._probabilities()
        if not (texts := listed(texts)):
            raise UsageError("no text has no perplexity; give one or more")
        documents = self.config["corpus"]["unit"] == "document"
        lines = [lines_of(text) for text in texts]
        ids, words, sizes = zip(*self.tokenizer.encode_units(lines, documents), strict=True)
        tokens = np.concatenate([np.array(each, dtype=np.int64) for each in ids])
        nats = -float(system.log_prob(tokens).sum())
        lost = self.tokenizer.lost(chain.from_iterable(lines)).bytes
        return likelihood_metrics(nats, len(tokens), sum(words), sum(sizes), lost)

    def score(self, texts: str | Sequence[str], context: str = "", end: bool = False) -> list[Scored]:
        """Of each text alone, or after `context`: its log-probability, that of its tokens, and that of its words. With
        `end` a text alone is a line, whose end counts as a token too, and is of its last word."""
        if not (texts := listed(texts)):
            return []
        if end and context:
            raise UsageError("a line's end is counted of a text alone; leave context= out, or write end=False")
        if end and not all(text.split() for text in texts):
            raise UsageError("one of the texts is empty, and no line; leave it out")
        befores, ids = self._scorer.encode([context] * len(texts), texts)
        ids = self._scorer.encode_lines(texts, end=True) if end else ids
        found = self._scorer.log_prob_of_tokens(befores, ids)
        return [self._scored(context, *each) for each in zip(texts, ids, found, strict=True)]

    def choose(self, context: str, endings: Sequence[str]) -> int:
        """The place of the ending that is the likeliest after the context, by the sum over its tokens."""
        if not endings:
            raise UsageError("there is no ending to choose; give one or more")
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
        self,
        prompts: str | Sequence[str],
        *,
        strategy: Decoding = "greedy",
        max_new_tokens: int = 40,
        special_tokens: bool = False,
        **settings: Any,
    ) -> list[str]:
        """What comes after each of the prompts, without it, up to the end of the text.

        special_tokens: whether the name of a special token in a prompt, such as <extra_id_0>, is that token, not text.

        settings: those of `Greedy`, `BeamSearch`, `Sampling`, or `ContrastiveSearch`, which are called as in Hugging
        Face's `generate`; of what is drawn a `seed`; and to have texts with a `label` of a `discriminator`, the cell of
        that, see `FUDGE`.
        """
        chosen = self._chosen(strategy, max_new_tokens, **settings)
        return [best for ((_, best), *_) in self._go_on(listed(prompts), chosen, special_tokens)]

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
        """`n` texts that begin with the prompt, by beams the best first, each with the log-probability of what comes
        after it; settings as of `continue_`."""
        chosen, writer = self._chosen(strategy, max_new_tokens, num_return_sequences=n, **settings), self._writer()
        begun = writer.encode([prompt], special_tokens)
        (found,) = chosen(writer.model, begun, writer.end)
        return [(writer.whole(begun[0], each.ids), each.log_prob) for each in found]

    def stream(
        self,
        prompt: str = "",
        strategy: Decoding = "greedy",
        *,
        max_new_tokens: int = 40,
        special_tokens: bool = False,
        **settings: Any,
    ) -> Iterator[str]:
        """As `continue_` of one prompt, token by token as it comes, spaces and all."""
        chosen, writer = self._chosen(strategy, max_new_tokens, **settings), self._writer()
        if not isinstance(chosen, TokenByToken | FUDGE):
            raise UsageError(f"{strategy} has no text before the end; write greedy, sample or contrastive")
        (begun,) = writer.encode([prompt], special_tokens)
        return self._pieces(writer, chosen, begun)

    @staticmethod
    def _pieces(writer: Writer, chosen: TokenByToken | FUDGE, begun: list[int]) -> Iterator[str]:
        written = list[int]()
        shown = writer.whole(begun, [])
        for token in chosen.stream(writer.model, begun, writer.end):
            written.append(token)
            text = writer.whole(begun, written)
            if not text.endswith("\ufffd"):  # in the middle of a character
                if text != shown:
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

    def _go_on(
        self, prompts: Sequence[str], strategy: Strategy | FUDGE, special_tokens: bool = False
    ) -> list[list[tuple[float, str]]]:
        """Of each prompt the completions' log-probabilities and texts."""
        writer = self._writer()
        begun = writer.encode(prompts, special_tokens)
        found = strategy(writer.model, begun, writer.end)
        return [
            [(each.log_prob, writer.read(ids, each.ids)) for each in completions]
            for ids, completions in zip(begun, found, strict=True)
        ]

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
    if name == "contrastive":
        return ContrastiveSearch(max_new_tokens, **{"top_k": 8, "penalty_alpha": 0.6} | settings)
    raise UsageError(f"strategy={name} is none; write greedy, beam, sample or contrastive")


def _by_words(text: str, tokens: Sequence[Token], log_probs: np.ndarray) -> Iterator[tuple[str, float]]:
    """The text's words with the sums of their tokens' log-probabilities; tokens behind the last are its own."""
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
