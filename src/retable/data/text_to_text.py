"""Tasks as text to text (Raffel et al. 2020, section 2.4), mixed with an unsupervised objective (section 3.5.2)."""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import Bound, Positive, PositiveInt, Seed
from retable.corpora.text import read_lines
from retable.data.corruption import START
from retable.data.layouts import prompt
from retable.data.mixture import Mixture, proportional, source
from retable.data.pairs import PairBatch, pad
from retable.data.streams import share_of_rows
from retable.tokenizers.tokenizer import Tokenizer


class TaskExamples:
    """Batches of a task's examples, each epoch in a new order; the target is the label's own text.

    The task is a tab-separated file with a header, one of whose columns is `label`; it is called like the file's
    folder. An input is cut to `length` tokens with `end`, which ends inputs and targets. `batch(step)` is a pure
    function of (seed, step). UsageError where the tokenizer can't tell the labels apart.
    """

    def __init__(self, file: Path, tokenizer: Tokenizer, end: int, batch_size: int, length: int, seed: int, label: str):
        header, *rows = csv.reader(read_lines(require(file)), delimiter="\t", quoting=csv.QUOTE_NONE)
        if label not in header:
            raise UsageError(f"{file} has no column {label!r}; its header names {', '.join(map(repr, header))}")
        if uneven := [number for number, row in enumerate(rows, 2) if len(row) != len(header)]:
            raise UsageError(f"{file}, line {uneven[0]} has not the {len(header)} fields of the header")
        examples = [dict(zip(header, row, strict=True)) for row in rows]
        labels = [example.pop(label) for example in examples]
        names = list(dict.fromkeys(labels))
        written = dict(zip(names, tokenizer.encode_batch(names), strict=True))
        if len(set(map(tuple, written.values()))) < len(names):
            raise UsageError(
                f"the tokenizer writes the labels {', '.join(names)} of {file} alike; write tokenizer=unigram"
            )
        task = file.parent.name
        inputs = tokenizer.encode_batch([prompt(task, example) for example in examples])
        self._inputs = [[*ids[: length - 1], end] for ids in inputs]
        self._targets = [[*written[label], end] for label in labels]
        self.steps_per_epoch = len(examples) // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(f"{file} holds {len(examples)} examples, no batch of {batch_size}; lower batch_size")
        tokens = sum(map(len, self._inputs)) + sum(map(len, self._targets))
        self.tokens_per_step = batch_size * tokens / len(examples)
        self._batch_size, self._seed = batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(len(self._inputs))
        places = self._order[1][index * self._batch_size :][: self._batch_size]
        mine = pad(self._inputs, self._targets, places[share_of_rows(self._batch_size, rank, world)])
        mine.target_ids[:, 0] = START
        labels = sum(len(self._targets[place]) for place in places)
        return mine._replace(weight=world * int(mine.target_lengths.sum()) / labels)


class TasksBeside(Mixture):
    """An unsupervised objective and tasks, as many examples of each as `proportional` says of their numbers.

    `unsupervised` makes batches of `tokens`; its windows are its examples. `tasks` are folders that the prepare stage
    left, of which the file of the same split is read as that of `tokens`, so that validation is mixed as training;
    `inputs` are these files.
    """

    def __init__(
        self,
        tokens: np.memmap,
        marks: Mapping[str, int],
        line_end: int,
        vocab_size: PositiveInt,
        seed: Seed,
        unsupervised: Callable[..., Any],
        tasks: Sequence[str],
        batch_size: PositiveInt,
        length: PositiveInt,
        temperature: Positive = 1.0,
        limit: Bound = float("inf"),
        label: str = "label",
    ):
        folder, split = source(tokens)
        tokenizer, end = Tokenizer.load(require(folder / "tokenizer.json")), marks.get("</s>", line_end)
        self.inputs = [Path(task) / f"{split}.tsv" for task in tasks]
        facts = {"marks": marks, "line_end": line_end, "vocab_size": vocab_size, "seed": seed}
        parts = [unsupervised(tokens=tokens, **facts, batch_size=batch_size, length=length)]
        parts += [TaskExamples(file, tokenizer, end, batch_size, length, seed, label) for file in self.inputs]
        sizes = [part.steps_per_epoch * batch_size for part in parts]
        super().__init__(parts, list(proportional(sizes, limit, temperature)), seed)
