"""Attention maps of Transformer heads, and how much each head attends to certain words.

The benchmark measures how much a word attends to itself and to its neighbours, and how much a verb attends to its
subject (Clark, Khandelwal, Levy and Manning 2019, arXiv 1906.04341, sections 3 and 4).

The models use fused attention, which returns no weights. This module therefore computes the attention weights again
from the inputs of each attention layer.

Dimensions: B batch, T tokens, W words and marks (tokens such as [CLS] around the sentence), D d_model, H heads, K head
size, L layers.
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

# Measures of an attention head. The first four measures are the attention from a word to itself, to the previous word,
# to the next word, and to the marks around the sentence. `subject` is the attention from a verb to the head word of its
# subject. Measures whose names end in `_first` are the share of verbs that attend to the head word of their subject
# more than to any other word. Measures whose names begin with `far_` exclude verbs directly after the head word of
# their subject, because an attention head that attends to the previous word would find this head word.
SHARES = ("itself", "previous", "next", "marks", "subject", "subject_first", "far_subject", "far_subject_first")
FAR = 2  # smallest distance, in words, from a subject's head word to a verb that counts as `far`
MAP_COLUMNS = ("sentence", "layer", "head", "target_place", "target", "source_place", "source", "weight", "subject")


class Agreeing(Protocol):
    words: list[str]
    subjects: dict[int, int]  # maps the position of a verb to the position of its subject's head word


class AgreeingText(Protocol):
    """A source of sentences; `inputs` lists the files that the sentences depend on."""

    inputs: list[Path]

    def sentences(self) -> Sequence[Any]: ...


class AttentionMaps:
    """A benchmark of the attention in models with self-attention blocks: BERT, ELECTRA or GPT.

    The model reads each sentence between [CLS] and [SEP] if the tokenizer has these tokens, otherwise between boundary
    tokens. No token is masked. Attention to a word is summed over the word's tokens; attention from a word is averaged
    over its tokens (Clark et al. 2019, section 4.1).

    Args:
        tokens: the folder with the tokenizer that the system was trained with.
        text: sentences in which the subject of each verb is known.
        shown: number of sentences whose maps are written. Only sentences with at most `longest` words and with a verb
            at least FAR words after the head word of its subject are eligible.
        longest: maximum length of a shown sentence, in words.
        batch_size: number of sentences per batch.
    """

    requires = TrainedSystem

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
        """Write `attention.csv` and `heads.csv`, and return the metrics.

        `attention.csv` has one row per shown sentence, layer, head and pair of words. The word `target` attends to the
        word `source`. The column `subject` is 1 if `target` is a verb and `source` is the head word of its subject.
        `heads.csv` has one row per layer, head and measure in SHARES, with the measure's mean and standard error.
        Layers and heads are numbered from 1.

        Returns:
            - `attention/words`, `attention/verbs`, `attention/far_verbs`: number of words, verbs and `far` verbs.
            - `attention/equal/<share>`: the measure <share> if attention is uniform over all visible positions.
            - `attention/offset/<share>`: the share of verbs whose subject's head word is at the most frequent distance.
            - `attention/best/<share>`: the largest value of the measure <share> among all attention heads.
        Raises: UsageError: no verb is FAR or more words after its subject, or the model's attention cannot be read.
        """
        model = system.objective.model
        tokenizer, sentences = Tokenizer.load(self._tokenizer), self._text.sentences()
        distances = Counter(verb - head for sentence in sentences for verb, head in sentence.subjects.items())
        if not any(distance >= FAR for distance in distances):
            raise UsageError(
                "every verb of the text directly follows its subject; set benchmark.attention.text.words to more words"
            )
        batches = [sentences[i : i + self._batch_size] for i in range(0, len(sentences), self._batch_size)]
        parts = mapped(lambda batch: self._of_batch(model, tokenizer, batch), batches)
        sums, equal, shown = (list(chain(*column)) for column in zip(*parts, strict=True))
        _write_maps(folder / "attention.csv", shown[: self._shown])
        heads = summed(sums)
        _write_heads(folder / "heads.csv", heads)
        even = dict(zip(SHARES, summed(equal).means[0, 0], strict=True))
        # with uniform attention, no word is attended to most, so the `_first` measures are undefined
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
        """Return the results of `shares` for the model's attention, and for uniform attention.

        Each of these two lists has one entry per sentence. A third list contains the sentences whose maps are shown.
        """
        sums, equal = [], []
        shown: list[tuple[Agreeing, list[str], NDArray]] = []
        for sentence, (labels, maps) in zip(sentences, maps_of(model, tokenizer, sentences), strict=True):
            sums.append(shares(maps, sentence.subjects))
            seen = np.ones(maps.shape[2:])
            seen = np.tril(seen) if isinstance(model, LeftToRight) else seen
            equal.append(shares((seen / seen.sum(axis=1, keepdims=True))[None, None], sentence.subjects))
            if len(shown) < self._shown and self._is_shown(sentence):
                shown.append((sentence, labels, maps))
        return sums, equal, shown


@torch.inference_mode()
def maps_of(model: Model, tokenizer: Tokenizer, batch: Sequence[Any]) -> Iterator[tuple[list[str], NDArray]]:
    """Yield each sentence's W words and marks, and the attention between them, (L, H, W, W).

    Args:
        batch: sentences; the attribute `words` of a sentence lists its words.
    """
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
        # A token belongs to the word that contains its last byte. A space belongs to the next word.
        owners = 1 + np.searchsorted(ends, [token.end - 1 for token in row], side="right")
        owners = np.concatenate([[0], owners, [len(sentence.words) + 1]])
        labels = [tokenizer.words[first], *sentence.words, tokenizer.words[last]]
        yield labels, of_words(own[:, :, : len(owners), : len(owners)], owners, len(labels))


class Heads(NamedTuple):
    """Mean of each measure over words or verbs, and its standard error over sentences.

    The arrays have the shape (L, H, len(SHARES)).
    """

    means: NDArray
    errors: NDArray


def attending(model: Model) -> list[Attention | CausalSelfAttention]:
    """Return the self-attention layer of each block.

    Raises: UsageError: the model has no blocks, or blocks without self-attention.
    """
    blocks = blocks_of(model)
    attentions = [block.attention for block in blocks if isinstance(block, Block | EncoderBlock)]
    if not attentions or len(attentions) < len(blocks):
        raise UsageError(
            f"{type(model).__name__} has no blocks whose attention can be read; use a cell of recipe=bert/bert or "
            "transformer/gpt"
        )
    return attentions


def attention_weights(model: Model, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
    """Compute the self-attention weights of each layer, (B, H, T, T), indexed by query and key.

    Args:
        input_ids: (B, T), padded after each row's length.
        lengths: (B,).
    Raises: UsageError: the model's attention cannot be read.
    """
    weights: list[Tensor] = []

    def read(attention: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        weights.append(weights_of(attention, *arguments, **named))

    hooks = [attention.register_forward_pre_hook(read, with_kwargs=True) for attention in attending(model)]
    try:
        if isinstance(model, LeftToRight):  # a causal model never attends to later positions, so padding needs no mask
            model(input_ids)
        else:
            model(input_ids, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    return weights


def weights_of(attention: Any, hidden: Tensor, *arguments: Any, **named: Any) -> Tensor:
    """Compute the weights of one call of the layer `attention`, (B, H, T, T); rows sum to 1.

    The arguments after `attention` are the arguments with which the layer is called.
    """
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
    """Return the scores before the softmax, and a mask of visible positions (or None)."""
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
    """Convert attention between tokens, (L, H, T, T), to attention between n words, (L, H, n, n).

    The attention is summed over the tokens of the attended word, and averaged over the tokens of the attending word.

    Args:
        owners: index of the word of each token, (T,).
    """
    of = (owners == np.arange(n)[:, None]).astype(weights.dtype)  # (n, T)
    return (of / of.sum(axis=1, keepdims=True)) @ weights @ of.T


def shares(maps: NDArray, subjects: dict[int, int]) -> tuple[NDArray, NDArray]:
    """Sum each measure in SHARES over the words or verbs of a sentence.

    Args:
        maps: attention between words and marks, (L, H, W, W); the first and last positions are marks.
        subjects: maps the position of each verb to the position of its subject's head word. Positions count the words
            of the sentence from 0, without marks.

    Returns: the sums, (L, H, len(SHARES)), and the numbers of words or verbs in each sum, (len(SHARES),).
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
    """Compute means over the words or verbs of all sentences from the results of `shares`."""
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
