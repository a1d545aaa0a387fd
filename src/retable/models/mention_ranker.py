"""The span-ranking model for coreference (Lee et al. 2017, arXiv 1707.07045, sections 4 and 5).

"End-to-end Neural Coreference Resolution". All spans of a sentence up to a maximum width are scored as mentions. Only
the best spans are kept. Each kept span is paired with earlier kept spans, its possible antecedents, and the pairs are
scored. The softmax over antecedents is part of the objective. With `elmo`, the layers of a pretrained ELMo are mixed
into one vector per word, which is part of the input (Peters et al. 2018, arXiv 1802.05365, section 4).

Departures:
- There are no features for speaker and genre. Word vectors, random or pretrained, are fine-tuned.
- A tanh follows the character convolution.
- The LSTM also reads start and end marks of each sentence. The LSTM's initial weights are PyTorch's.
- Documents are not truncated in training.

S sentences, T time, W words of all documents, E width of a word's input vector, D width of a word's state, M spans, L
words of the widest span, G width of a span's representation, N kept spans, K antecedents, P pairs, F width of a
feature, H hidden units.

System F6 of docs/systems.yaml.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import Filters, NonNegativeInt, Positive, PositiveInt, Rate
from retable.models.base import SpanRanker
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.dropout import Dropout
from retable.nn.scalar_mix import ScalarMix
from retable.nn.word_input import WordInput

BINS = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # lower limits of the bins of widths and of distances


class Ranking(NamedTuple):
    spans: Tensor  # (N, 2) int64: first and last word of each kept span, as indices into the words of all documents
    documents: Tensor  # (N,) int64: the index of each kept span's document
    antecedents: Tensor  # (N, K) int64: indices of earlier spans, nearest first; invalid if < 0 or in another document
    scores: Tensor  # (N, 1 + K) fp32: s(i, ε) = 0, then s(i, j) of each antecedent j; −∞ if j is invalid


class MentionRanker(SpanRanker):
    """A coreference model that selects spans as possible mentions, and scores their antecedents.

    Args:
        vocab_size, words, unknown, filters: see WordInput.
        max_width: maximum number of words in a span, the paper's L.
        spans_per_word: number of kept spans per word of a document, the paper's λ. If too few spans are kept, each
            cluster has only one kept span. Then the correct antecedent of every span is the dummy antecedent ε, and
            training stops improving.
        max_antecedents: number of antecedents scored per span, the paper's K.
        dropout, input_dropout: rate on hidden layers and features; rate on the input vectors of words.
        elmo: function that creates the ELMo from `words`. The ELMo's weights are fixed, and its dropout is off.
    """

    reads_words = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        filters: Filters,
        d_model: PositiveInt,
        d_feature: PositiveInt,
        d_hidden: PositiveInt,
        max_width: PositiveInt,
        spans_per_word: Positive,
        max_antecedents: PositiveInt,
        dropout: Rate,
        input_dropout: Rate,
        unknown: NonNegativeInt = 0,
        elmo: Callable[..., Any] | None = None,
    ):
        super().__init__()
        self.max_width, self.spans_per_word, self.max_antecedents = max_width, spans_per_word, max_antecedents
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters)
        d_input = self.input.d_output
        self.elmo = elmo(words=words).requires_grad_(False).eval() if elmo else None
        self.frozen = self.elmo is not None
        if self.elmo is not None:
            self.mix = ScalarMix(len(self.elmo.forward_stack.layers) + 1)
            d_input += 2 * self.elmo.d_model
        self.input_dropout = Dropout(input_dropout)
        self.layers = BidirectionalLSTM(d_input, d_model)
        self.dropout = Dropout(dropout)
        self.width = nn.Embedding(len(BINS), d_feature)
        self.distance = nn.Embedding(len(BINS), d_feature)
        self.head = feed_forward(d_model, d_hidden, dropout)
        d_span = 2 * d_model + d_input + d_feature
        self.mention = feed_forward(d_span, d_hidden, dropout)
        self.antecedent = PairScore(d_span, d_feature, d_hidden, dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {} if self.elmo is None else {"": self.elmo}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def train(self, mode: bool = True) -> "MentionRanker":
        super().train(mode)
        if self.elmo is not None:
            self.elmo.eval()
        return self

    def forward(self, input_ids: Tensor, lengths: Tensor, documents: Tensor) -> Ranking:
        """Rank the antecedents of spans in sentences (S, T). Each sentence includes marks of its start and end.

        `input_ids` are padded after each row's `lengths` (S,). `documents` (S,) contains the index of each sentence's
        document, in ascending order.
        """
        words, states, sentences = self._read(input_ids, lengths)
        first, last = spans_up_to(self.max_width, sentences)
        spans = self._represent(words, states, first, last)  # g: (M, G)
        mention = self.mention(spans)[:, 0]  # s_m: (M,)
        owner = documents[sentences]  # (W,)
        kept = self._prune(mention, first, last, owner)
        first, last, spans, mention, owner = first[kept], last[kept], spans[kept], mention[kept], owner[first[kept]]

        here = torch.arange(len(first), device=first.device)
        farthest = int((here - torch.searchsorted(owner, owner)).max())  # most earlier spans that any span has
        distance = torch.arange(1, min(farthest, self.max_antecedents) + 1, device=first.device)
        antecedents = here[:, None] - distance  # (N, K)
        exist = (antecedents >= 0) & (owner[antecedents] == owner[:, None])
        i, k = exist.nonzero(as_tuple=True)
        j = antecedents[i, k]
        features = self.dropout(self.distance(binned(distance))[k])  # φ(i, j): (P, F)
        pairs = mention[i] + mention[j] + self.antecedent(spans, features, i, j)
        scores = pairs.new_full(antecedents.shape, -torch.inf, dtype=torch.float32).masked_scatter(exist, pairs.float())
        return Ranking(torch.stack([first, last], dim=1), owner, antecedents, F.pad(scores, (1, 0)))

    def _read(self, input_ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs x (W, E), states x* (W, D) and sentence indices (W,) of all words except the marks."""
        words = self.input(input_ids)  # (S, T, E)
        if self.elmo is not None:
            words = torch.cat([words, self.mix(self.elmo.layers(input_ids, lengths), lengths)], dim=2)
        words = self.input_dropout(words)
        states = self.dropout(self.layers(words, lengths))  # (S, T, D)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        inside = (places > 0) & (places < lengths[:, None] - 1)  # (S, T)
        return words[inside], states[inside], inside.nonzero()[:, 0]

    def _represent(self, words: Tensor, states: Tensor, first: Tensor, last: Tensor) -> Tensor:
        """Return g (M, G) = [x*_first; x*_last; x̂; φ(width)] of spans; x̂ is the attention-weighted mean of x (4.2)."""
        width = last - first + 1
        offset = torch.arange(self.max_width, device=first.device)
        inside = offset < width[:, None]  # (M, L)
        places = (first[:, None] + offset).where(inside, 0)
        attention = self.head(states)[:, 0][places].masked_fill(~inside, -torch.inf).softmax(dim=1)
        # `embedding_bag` computes the weighted sum of word vectors without building a tensor (M, L, E).
        heads = F.embedding_bag(places, words, per_sample_weights=attention.to(words.dtype), mode="sum")
        return torch.cat([states[first], states[last], heads, self.dropout(self.width(binned(width)))], dim=1)

    def _prune(self, mention: Tensor, first: Tensor, last: Tensor, owner: Tensor) -> Tensor:
        """Return the indices of the kept spans, in text order (section 5).

        In a document with T words, the kept spans are the λT best mentions that do not cross a better kept mention.
        """
        kept: list[int] = []
        order = mention.argsort(descending=True, stable=True)
        for document, n_words in enumerate(owner.bincount().tolist()):
            own = order[owner[first[order]] == document]
            spans = torch.stack([first[own], last[own]], dim=1).tolist()
            best = best_without_crossings(spans, max(int(self.spans_per_word * n_words), 1))
            kept += sorted(own[best].tolist())
        return torch.tensor(kept, device=mention.device)


class PairScore(nn.Module):
    """The score s_a(i, j) = w · FFNN([g_i; g_j; g_i ∘ g_j; φ(i, j)]); φ embeds the distance from j to i, in spans."""

    def __init__(self, d_span: int, d_feature: int, d_hidden: int, dropout: float):
        super().__init__()
        self._parts = [d_span, d_span, d_span, d_feature]
        self.layers = feed_forward(sum(self._parts), d_hidden, dropout)

    def forward(self, spans: Tensor, features: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Score pairs (P,), given spans (N, G), pair features (P, F) and indices i and j (P,) into `spans`."""
        # The first layer is a sum of parts: the parts of i and j are computed once per span, and no tensor (P, 3G + F)
        # is needed.
        weight, bias = (self.layers.get_parameter(f"0.{name}") for name in ("weight", "bias"))
        of_i, of_j, of_both, of_pair = weight.split(self._parts, dim=1)
        hidden = (spans @ of_i.T + bias)[i] + (spans @ of_j.T)[j]
        hidden = hidden + (spans[i] * spans[j]) @ of_both.T + features @ of_pair.T
        return self.layers[1:](hidden)[:, 0]


def feed_forward(d_input: int, d_hidden: int, dropout: float) -> nn.Sequential:
    """Build a network from inputs x (…, d_input) to scores w · FFNN(x), with two hidden layers of `d_hidden` units."""
    layers: list[nn.Module] = []
    for width in (d_input, d_hidden):
        layers += [nn.Linear(width, d_hidden), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(d_hidden, 1, bias=False))


def spans_up_to(max_width: int, sentences: Tensor) -> tuple[Tensor, Tensor]:
    """List all spans of at most `max_width` words within a sentence, in text order.

    Args:
        sentences: the index of each word's sentence, (W,), ascending.

    Returns: indices of the first and the last word of each span, (M,) each.
    """
    words = torch.arange(len(sentences), device=sentences.device)
    last = words[:, None] + torch.arange(max_width, device=sentences.device)  # (W, L)
    inside = (last < len(sentences)) & (sentences[last.clamp(max=len(sentences) - 1)] == sentences[:, None])
    return words[:, None].expand_as(last)[inside], last[inside]


def binned(numbers: Tensor) -> Tensor:
    """Return the index in BINS of each number's bin. Numbers must be 1 or more."""
    return torch.bucketize(numbers, torch.tensor(BINS, device=numbers.device), right=True) - 1


def best_without_crossings(spans: Sequence[Sequence[int]], n: int) -> list[int]:
    """Choose up to `n` spans (first, last) in order, skip those that cross a chosen span, and return their indices.

    `spans` are sorted from best to worst. Two spans cross if they overlap and neither contains the other.
    """
    taken: list[int] = []
    farthest: dict[int, int] = {}  # first word -> highest last word of the chosen spans that begin with it
    nearest: dict[int, int] = {}  # last word -> lowest first word of the chosen spans that end with it
    for place, (first, last) in enumerate(spans):
        if len(taken) == n:
            break
        if any(farthest.get(word, last) > last for word in range(first + 1, last + 1)):
            continue
        if any(nearest.get(word, first) < first for word in range(first, last)):
            continue
        taken.append(place)
        farthest[first] = max(farthest.get(first, last), last)
        nearest[last] = min(nearest.get(last, first), first)
    return taken
