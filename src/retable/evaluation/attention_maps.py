"""Where the heads of a Transformer look: maps of a few sentences, and of many how much of each head's attention goes to
a word itself, to its neighbours and, from a verb, to its subject (Clark, Khandelwal, Levy and Manning 2019, arXiv
1906.04341, sections 3 and 4).

The models mix values without showing their weights, so these are computed again from what goes into each attention.

B batch, T tokens, W words with the marks round the sentence, D d_model, H heads, K head size, L layers.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.core.systems import TrainedSystem
from retable.data.batches import mapped
from retable.metrics.intervals import clustered_mean
from retable.models.base import LeftToRight, Model, blocks_of
from retable.nn.attention import Attention
from retable.nn.transformer import Block, CausalSelfAttention, rotate
from retable.nn.transformer_encoder import EncoderBlock
from retable.tokenizers.tokenizer import Tokenizer

# Of a head's attention: from a word to itself, to the word before it and behind it, to the marks round the sentence,
# and from a verb to its subject's head; `first` is of how many verbs that is the other word most looked at. `far` are
# the verbs whose subject's head is not the word before them, which a look at that word finds too.
SHARES = ("itself", "previous", "next", "marks", "subject", "subject_first", "far_subject", "far_subject_first")
FAR = 2  # words before
MAP_COLUMNS = ("sentence", "layer", "head", "target_place", "target", "source_place", "source", "weight", "subject")


class Agreeing(Protocol):
    words: list[str]
    subjects: dict[int, int]  # of verbs, by place


class AgreeingText(Protocol):
    """Where the sentences come from; `inputs` are the files that they depend on."""

    inputs: list[Path]

    def sentences(self) -> Sequence[Any]: ...


class AttentionMaps:
    """The benchmark, of a model whose blocks look at their own sequence: of BERT, ELECTRA or GPT.

    A sentence stands between [CLS] and [SEP], or boundaries, and nothing of it is hidden. Attention to a word is the
    sum of that to its tokens, attention from it the mean of theirs (Clark et al. 2019, section 4.1).

    tokens: the folder with the tokenizer that the system was trained with.
    text: sentences with the subjects of their verbs.
    shown: how many of them are written down whole: the first that have at most `longest` words and a verb whose
        subject is not the word before it.
    """

    asks_for = TrainedSystem

    def __init__(
        self,
        tokens: str,
        text: AgreeingText,
        shown: PositiveInt = 2,
        longest: PositiveInt = 8,
        batch_size: PositiveInt = 64,
    ):
        self._tokenizer = Path(tokens, "tokenizer.json")
        self.inputs = [self._tokenizer, *text.inputs]
        self._text, self._shown, self._longest, self._batch_size = text, shown, longest, batch_size

    def __call__(self, system: TrainedSystem, folder: Path) -> dict[str, float]:
        """Write `attention.csv`, a row a sentence shown, layer, head and two words (`target` looks at `source`, and
        `subject` is 1 where that is the verb's), and `heads.csv`, a row a layer, head and one of SHARES, with its mean
        and standard error. Layers and heads are counted from 1.

        Return how many `attention/words`, `attention/verbs` and `attention/far_verbs` there are;
        `attention/equal/<share>`, what attention would give that is spread over all that may be seen;
        `attention/offset/<share>`, of how many verbs the subject's head stands where it does most often, always so many
        words before; and `attention/best/<share>`, the largest of any head.
        """
        model = system.objective.model
        tokenizer, sentences = Tokenizer.load(self._tokenizer), self._text.sentences()
        distances = Counter(verb - head for sentence in sentences for verb, head in sentence.subjects.items())
        if not any(distance >= FAR for distance in distances):
            raise UsageError("the text has no verbs with a subject further off than the next word; ask for more words")
        batches = [sentences[i : i + self._batch_size] for i in range(0, len(sentences), self._batch_size)]
        parts = mapped(lambda batch: self._of_batch(model, tokenizer, batch), batches)
        found, equal, shown = (list(chain(*column)) for column in zip(*parts, strict=True))
        _write_maps(folder / "attention.csv", shown[: self._shown])
        heads = summed(found)
        _write_heads(folder / "heads.csv", heads)
        even = dict(zip(SHARES, summed(equal).means[0, 0], strict=True))
        # where all are looked at alike nobody is looked at most
        metrics = {f"equal/{name}": share for name, share in even.items() if not name.endswith("first")}
        metrics |= {f"best/{name}": heads.means[:, :, i].max() for i, name in enumerate(SHARES)}
        for kind, least in (("", 1), ("far_", FAR)):
            counts = [n for distance, n in distances.items() if distance >= least]
            metrics |= {f"offset/{kind}subject_first": max(counts) / sum(counts), f"{kind}verbs": sum(counts)}
        metrics["words"] = sum(len(sentence.words) for sentence in sentences)
        return {f"attention/{name}": float(value) for name, value in metrics.items()}

    def _is_shown(self, sentence: Agreeing) -> bool:
        far = any(verb - head >= FAR for verb, head in sentence.subjects.items())
        return far and len(sentence.words) <= self._longest

    def _of_batch(self, model: Model, tokenizer: Tokenizer, sentences: Sequence[Any]) -> tuple[list, list, list]:
        """Of each sentence the shares of its maps, and those of equal attention; and the first maps to be shown."""
        found, equal = [], []
        shown: list[tuple[Agreeing, list[str], NDArray]] = []
        for sentence, (labels, maps) in zip(sentences, maps_of(model, tokenizer, sentences), strict=True):
            found.append(shares(maps, sentence.subjects))
            seen = np.ones(maps.shape[2:])
            seen = np.tril(seen) if isinstance(model, LeftToRight) else seen
            equal.append(shares((seen / seen.sum(axis=1, keepdims=True))[None, None], sentence.subjects))
            if len(shown) < self._shown and self._is_shown(sentence):
                shown.append((sentence, labels, maps))
        return found, equal, shown


@torch.inference_mode()
def maps_of(model: Model, tokenizer: Tokenizer, batch: Sequence[Any]) -> Iterator[tuple[list[str], NDArray]]:
    """Of each sentence its words and marks, and their attention (L, H, W, W)."""
    marks = tokenizer.special_ids
    first, last = marks.get("[CLS]", tokenizer.boundary), marks.get("[SEP]", tokenizer.boundary)
    device = next(model.parameters()).device
    tokens = [tokenizer.encode_with_offsets(" ".join(sentence.words)) for sentence in batch]
    rows = [torch.tensor([first, *(token.id for token in row), last]) for row in tokens]
    lengths = torch.tensor([len(row) for row in rows])
    layers = attention_weights(model, pad_sequence(rows, batch_first=True).to(device), lengths.to(device))
    weights = torch.stack(layers, dim=1).float().cpu().numpy()  # (B, L, H, T, T)
    for sentence, row, own in zip(batch, tokens, weights, strict=True):
        ends = np.cumsum([len(word.encode()) + 1 for word in sentence.words]) - 1
        # A token belongs to the word that its last byte is of, a space to the word behind it.
        owners = 1 + np.searchsorted(ends, [token.end - 1 for token in row], side="right")
        owners = np.concatenate([[0], owners, [len(sentence.words) + 1]])
        labels = [tokenizer.words[first], *sentence.words, tokenizer.words[last]]
        yield labels, of_words(own[:, :, : len(owners), : len(owners)], owners, len(labels))


class Heads(NamedTuple):
    """Means over words, or verbs, and their standard errors over sentences, (L, H, SHARES)."""

    means: NDArray
    errors: NDArray


def attending(model: Model) -> list[Attention | CausalSelfAttention]:
    """The attention of each block, by which it looks at its own sequence. UsageError for a model without such."""
    blocks = blocks_of(model)
    found = [block.attention for block in blocks if isinstance(block, Block | EncoderBlock)]
    if not found or len(found) < len(blocks):
        raise UsageError(
            f"{type(model).__name__} has no blocks whose attention can be read; take a cell of recipe=bert/bert or "
            "transformer/gpt"
        )
    return found


def attention_weights(model: Model, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
    """(B, T) ids, padded behind each row's length, to the weights (B, H, T, T) of each layer, from whom to whom."""
    found: list[Tensor] = []

    def read(attention: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        found.append(weights_of(attention, *arguments, **named))

    hooks = [attention.register_forward_pre_hook(read, with_kwargs=True) for attention in attending(model)]
    try:
        if isinstance(model, LeftToRight):  # nobody sees the padding
            model(input_ids)
        else:
            model(input_ids, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def weights_of(attention: Any, hidden: Tensor, *arguments: Any, **named: Any) -> Tensor:
    """What `attention`, called with the same, gives to whom, (B, H, T, T): the rows sum to 1."""
    read = _encoder_scores if isinstance(attention, Attention) else _causal_scores
    scores, seen = read(attention, hidden, *arguments, **named)
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(dim=3)


def _encoder_scores(
    attention: Attention,
    hidden: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    rotation: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The scores and who is seen. The mask of an encoder over its own sequence is of booleans."""
    keys, _ = attention.keys_and_values(hidden if memory is None else memory)
    queries = attention.query(hidden).unflatten(2, (attention.n_heads, -1)).transpose(1, 2)
    if rotation is not None:
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
    scale = keys.shape[3] ** -0.5 if attention.scale is None else attention.scale
    return scale * queries @ keys.mT, mask


def _causal_scores(
    attention: CausalSelfAttention,
    hidden: Tensor,
    past: None = None,
    rotation: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    B, T, _ = hidden.shape
    projected = attention.query_key_value(hidden).view(B, T, 3, attention.n_heads, -1)
    queries, keys, _ = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, K)
    if rotation is not None:
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
    seen = torch.ones(T, T, dtype=torch.bool, device=hidden.device).tril() if mask is None else mask
    return queries @ keys.mT * keys.shape[3] ** -0.5, seen


def of_words(weights: NDArray, owners: NDArray, n: int) -> NDArray:
    """(L, H, T, T) between tokens to (L, H, n, n) between the words that they are of: summed to a word, and the mean
    from it."""
    of = (owners == np.arange(n)[:, None]).astype(weights.dtype)  # (n, T)
    return (of / of.sum(axis=1, keepdims=True)) @ weights @ of.T


def shares(maps: NDArray, subjects: dict[int, int]) -> tuple[NDArray, NDArray]:
    """SHARES of a sentence, added over its words or verbs (L, H, SHARES), and over how many (SHARES,).

    `maps` (L, H, W, W) are those of the marks too, first and last; `subjects` count the words from 0.
    """
    words = maps[:, :, 1:-1, 1:-1]
    n = words.shape[2]
    others = np.where(np.eye(n, dtype=bool), -1.0, words)
    sums = [
        words.trace(axis1=2, axis2=3),
        words.trace(-1, axis1=2, axis2=3),
        words.trace(1, axis1=2, axis2=3),
        maps[:, :, 1:-1, [0, -1]].sum(axis=(2, 3)),
    ]
    counts = [n, n - 1, n - 1, n]
    for least in (1, FAR):
        verbs = [verb for verb, head in subjects.items() if verb - head >= least]
        heads = [subjects[verb] for verb in verbs]
        sums += [words[:, :, verbs, heads].sum(axis=2), (others[:, :, verbs].argmax(axis=3) == heads).sum(axis=2)]
        counts += [len(verbs)] * 2
    return np.stack(sums, axis=2), np.array(counts)


def summed(sentences: Sequence[tuple[NDArray, NDArray]]) -> Heads:
    """The means over all words, or verbs, of what `shares` found in each sentence."""
    sums, counts = (np.stack(column) for column in zip(*sentences, strict=True))  # (sentences, L, H, SHARES)
    means, errors = np.empty(sums.shape[1:]), np.empty(sums.shape[1:])
    for place in np.ndindex(means.shape):
        means[place], errors[place] = clustered_mean(sums[(slice(None), *place)], counts[:, place[-1]])
    return Heads(means, errors)


def _write_maps(path: Path, shown: Sequence[tuple[Agreeing, list[str], NDArray]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(MAP_COLUMNS)
        for number, (sentence, labels, maps) in enumerate(shown, start=1):
            agreeing = {(verb + 1, head + 1) for verb, head in sentence.subjects.items()}
            for (layer, head, target, source), weight in np.ndenumerate(maps):
                words = (target, labels[target], source, labels[source])
                is_subject = int((target, source) in agreeing)
                writer.writerow((number, layer + 1, head + 1, *words, f"{weight:.4f}", is_subject))


def _write_heads(path: Path, heads: Heads) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("layer", "head", "share", "mean", "error"))
        for (layer, head, i), mean in np.ndenumerate(heads.means):
            writer.writerow((layer + 1, head + 1, SHARES[i], f"{mean:.6f}", f"{heads.errors[layer, head, i]:.6f}"))
