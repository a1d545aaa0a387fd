"""Linear probes of a model's frozen states, layer by layer, with control tasks.

A probe reads the state of a word in a sentence and predicts the word's label (Belinkov et al. 2017; Peters et al. 2018,
section 5.3). The label is a part of speech, the number (singular or plural) of a verb's subject, or a word sense. The
control task (Hewitt and Liang 2019) assigns each word type a random label, which can only be memorised. The probe's
selectivity is its accuracy on the true labels minus its accuracy on the control task.

Dimensions: n words with a label, D state size, C labels, K layers.
"""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError, warn
from retable.core.settings import Seed
from retable.core.systems import TrainedSystem
from retable.evaluation.contextual_vectors import ContextualVectors, Layered, read_senses
from retable.models.base import BothDirections, EncoderDecoder, MarkedEncoder, Model, blocks_of
from retable.objectives.states import states_of
from retable.tokenizers.tokenizer import Tokenizer

PENALTY = 1e-3  # Factor of the L2 penalty (half the sum of squared weights), which is added to the mean loss per word.
ITERATIONS = 100  # Maximum number of L-BFGS iterations.


class Labelled(Protocol):
    """A sentence with one or more kinds of word labels; "" marks a word without a label."""

    words: list[str]
    labels: dict[str, list[str]]


class LabelledText(Protocol):
    """A source of labelled sentences for the splits train and test.

    `inputs` lists the files that the sentences depend on.
    """

    inputs: list[Path]

    def sentences(self, split: str) -> Sequence[Any]: ...


class LabelledWords(NamedTuple):
    words: list[str]
    labels: dict[str, list[str]]


class SenseLabels:
    """The sentences of a file of senses (see `contextual_vectors.Senses`), labelled with senses.

    A hash of the sentence's words decides whether a sentence is in train or test; each split has about half of the
    sentences.
    """

    def __init__(self, senses: str):
        self.inputs = [Path(senses)]

    def sentences(self, split: str) -> list[LabelledWords]:
        sentences: dict[str, LabelledWords] = {}
        for occurrence in chain.from_iterable(read_senses(self.inputs[0]).values()):
            text = " ".join(occurrence.sentence)
            blank = LabelledWords(occurrence.sentence, {"sense": [""] * len(occurrence.sentence)})
            sentences.setdefault(text, blank).labels["sense"][occurrence.position] = occurrence.sense
        half = ("train", "test").index(split)
        return [sentence for text, sentence in sentences.items() if zlib.crc32(text.encode()) % 2 == half]


class Probes:
    """The probing benchmark: a probe for every layer and every kind of label.

    Args:
        tokens: the folder with the tokenizer that the system was trained with.
        text: sentences with labels; the probes are trained on split `train` and scored on `test`.
        by_word: train a separate probe for each word type, as word senses require. With `by_word`, there is no control
            task, because all words of a probe have the same type. Test words that do not occur in train count as wrong.
        seed: seed of the random labels in the control tasks.

    `inputs` lists the files that the scores depend on.
    """

    requires = TrainedSystem

    def __init__(self, tokens: str, text: LabelledText, by_word: bool = False, seed: Seed = 1):
        self._tokenizer = Path(tokens, "tokenizer.json")
        self.inputs = [self._tokenizer, *text.inputs]
        self._text, self._by_word, self._seed = text, by_word, seed

    def __call__(self, system: TrainedSystem, folder: Path) -> dict[str, float]:
        """Train and score the probes, and return their accuracies on test.

        Layer 0 is the input of the first layer that sees context. Words beyond the model's maximum input length are
        ignored.

        Returns, for each kind of label:
            - `probes/layer_<k>/<kind>`: accuracy, and `probes/layer_<k>/<kind>_control`: accuracy on the control task.
            - `probes/majority/<kind>`: accuracy of always predicting the most frequent label in train. If `by_word` is
              true, the most frequent label of each word is predicted.
            - `probes/words/<kind>`: number of test words that have a label.
            `probes/shortened` is the number of sentences that were cut; it is absent if no sentence was cut.
        Raises: UsageError: there are too few sentences, a kind has no labels, or the model's layers are not accessible.
        """
        reader = ContextualVectors(readable(system.objective.model), Tokenizer.load(self._tokenizer))
        sentences = {split: self._text.sentences(split) for split in ("train", "test")}
        if not all(sentences.values()):
            raise UsageError(f"{self._text.inputs[0]} has too few sentences for train and test; add sentences")
        metrics: dict[str, float] = {}
        words = [row.words for rows in sentences.values() for row in rows]
        if n_cut := reader.n_cut(words):
            metrics["probes/shortened"] = float(n_cut)
            warn(f"{n_cut:,} of {len(words):,} sentences are longer than the model's input and were cut at the end")
        states = {split: [*reader.layers([row.words for row in rows])] for split, rows in sentences.items()}
        for kind in sentences["train"][0].labels:
            train, test = (_labelled(sentences[split], states[split], kind) for split in ("train", "test"))
            if not (len(train.labels) and len(test.labels)):
                raise UsageError(f"no word has a label of kind {kind} in train or in test; use more text")
            metrics |= {f"probes/{name}": value for name, value in self._probed(kind, train, test)}
        return metrics

    def _probed(self, kind: str, train: "Words", test: "Words") -> Iterator[tuple[str, float]]:
        """Yield the metrics of one kind of label, by name."""
        n = len(test.labels)
        groups: list[Any] = [(slice(None), slice(None))]
        tasks = {kind: (train.labels, test.labels)}
        if self._by_word:
            groups = _places_by_word(train.words, test.words)
        else:
            control = (control_labels(each.words, train.labels, self._seed) for each in (train, test))
            tasks[f"{kind}_control"] = next(control), next(control)
        yield f"words/{kind}", float(n)
        hits = sum(int((test.labels[there] == most_frequent(train.labels[here])).sum()) for here, there in groups)
        yield f"majority/{kind}", hits / n
        for k, (seen, unseen) in enumerate(zip(train.states, test.states, strict=True)):
            for name, (labels, true) in tasks.items():
                hits = sum(probe_hits(seen[here], labels[here], unseen[there], true[there]) for here, there in groups)
                yield f"layer_{k}/{name}", hits / n


class Words(NamedTuple):
    """The n words of a split that have a label of one kind."""

    states: Tensor  # (K, n, D)
    words: np.ndarray  # (n,)
    labels: np.ndarray  # (n,)


def _labelled(sentences: Sequence[Any], states: Sequence[np.ndarray], kind: str) -> Words:
    """Collect the words that have both a label of the given kind and a state.

    Args:
        states: the states of each sentence, (K, T, D). If a sentence was cut, T is smaller than the sentence's number
            of words.
    """
    pairs = [(sentence, each.shape[1]) for sentence, each in zip(sentences, states, strict=True)]
    words = np.array([word for sentence, n in pairs for word in sentence.words[:n]])
    labels = np.array([label for sentence, n in pairs for label in sentence.labels[kind][:n]])
    places = np.flatnonzero(labels != "")
    return Words(torch.from_numpy(np.concatenate(states, axis=1)[:, places]), words[places], labels[places])


def _places_by_word(train: np.ndarray, test: np.ndarray) -> list[Any]:
    """Return, for each word that occurs in both splits, the word's indices in train and in test."""
    return [(np.flatnonzero(train == word), np.flatnonzero(test == word)) for word in np.intersect1d(train, test)]


def most_frequent(labels: np.ndarray) -> str:
    """Return the most frequent label; on ties, the first in alphabetical order."""
    names, counts = np.unique(labels, return_counts=True)
    return str(names[counts.argmax()])


def control_labels(words: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Draw a random label for each word type, from the distribution of labels in `labels`.

    A word's random label depends only on the word, the seed and the label frequencies.

    Args:
        words: (n,).
        labels: the random labels have the same distribution as these labels, (m,).
    Returns: the random label of each word in `words`, (n,).
    """
    names, counts = np.unique(labels, return_counts=True)
    bounds = np.cumsum(counts)[:-1] / len(labels)
    types, of = np.unique(words, return_inverse=True)
    draws = [int.from_bytes(hashlib.sha256(f"{seed} {word}".encode()).digest()[:8]) / 2**64 for word in types]
    return names[np.searchsorted(bounds, draws, side="right")][of]


def probe_hits(train: Tensor, labels: np.ndarray, test: Tensor, test_labels: np.ndarray) -> int:
    """Fit a linear softmax classifier to `train`, and count its correct predictions on `test`.

    Test words whose label is not in train count as wrong. States are standardised by the mean and standard deviation of
    `train`.

    Args:
        train, test: states, (n, D).
        labels, test_labels: (n,).
    """
    names, targets = np.unique(labels, return_inverse=True)
    mean, deviation = train.mean(dim=0), train.std(dim=0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    probe = fit_probe((train - mean) / scale, torch.from_numpy(targets), len(names))
    with torch.inference_mode():
        predictions = names[probe((test - mean) / scale).argmax(dim=1).numpy()]
    return int((predictions == test_labels).sum())


def fit_probe(states: Tensor, targets: Tensor, n_labels: int) -> nn.Linear:
    """Fit a softmax classifier with L2 penalty to states, (n, D), by L-BFGS from zero weights.

    The penalised loss is convex and has a single minimum.
    """
    probe = nn.Linear(states.shape[1], n_labels)
    nn.init.zeros_(probe.weight)
    nn.init.zeros_(probe.bias)
    optimizer = torch.optim.LBFGS(
        probe.parameters(), max_iter=ITERATIONS, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(probe(states), targets) + PENALTY / 2 * probe.weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    return probe


def readable(model: Model) -> Layered:
    """Return an object that computes the model's layers: the model itself, or a `BlockStates`.

    Raises: UsageError: the model's layers are not accessible.
    """
    if isinstance(model, MarkedEncoder | BothDirections):
        return model
    if blocks := blocks_of(model.encoder if isinstance(model, EncoderDecoder) else model):
        return BlockStates(model, blocks)
    raise UsageError(
        f"the layers of {type(model).__name__} are not accessible; use a cell of recipe=elmo/elmo, bert/bert, "
        "transformer/gpt or t5/t5"
    )


class BlockStates:
    """Computes the layers of a model without a method `layers`: GPT, T5's encoder, or a one-stack T5.

    Layer 0 is the input of the first block. The last layer is the model's output after the final normalization.
    """

    def __init__(self, model: Model, blocks: Sequence[nn.Module]):
        self._model, self._blocks = model, blocks

    @property
    def max_length(self) -> int | None:
        return self._model.max_length

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._model.parameters()

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the layers, each (B, T, D), for ids (B, T) that are padded after `lengths`."""
        states: list[Tensor] = []
        hooks = [
            block.register_forward_pre_hook(lambda _, arguments: states.append(arguments[0])) for block in self._blocks
        ]
        try:
            if isinstance(self._model, EncoderDecoder):
                top = self._model.memory(input_ids, lengths)
            else:
                top = states_of(self._model, input_ids, lengths)
        finally:
            for hook in hooks:
                hook.remove()
        return [*states, top]
