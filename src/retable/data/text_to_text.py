"""Tasks in T5's text-to-text format, mixed with unsupervised batches (Raffel et al. 2020, sections 2.4 and 3.5.2)."""

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
from retable.data.mixture import Mixture, proportional, source
from retable.data.pairs import PairBatch, pad
from retable.data.streams import share_of_rows
from retable.data.templates import prompt
from retable.tokenizers.tokenizer import Tokenizer


class TaskExamples:
    """Batches of a task's examples, in a new order each epoch; the target is the label's text.

    `batch(step)` is a pure function of (seed, step).

    Args:
        file: tab-separated file with a header. The name of the file's folder is the name of the task.
        end: id of the end mark, appended to inputs and targets.
        length: largest length of an input in tokens, including the end mark; longer inputs are cut.
        label: name of the column with the label.

    Raises: UsageError: the file is malformed or too small, or two labels have the same tokens.
    """

    def __init__(self, file: Path, tokenizer: Tokenizer, end: int, batch_size: int, length: int, seed: int, label: str):
        header, *rows = csv.reader(read_lines(require(file)), delimiter="\t", quoting=csv.QUOTE_NONE)
        if label not in header:
            raise UsageError(f"{file} has no column {label!r}; write one of {', '.join(map(repr, header))}")
        if uneven := [number for number, row in enumerate(rows, 2) if len(row) != len(header)]:
            raise UsageError(
                f"{file}, line {uneven[0]}: expects {len(header)} fields, as in the header; correct the line"
            )
        examples = [dict(zip(header, row, strict=True)) for row in rows]
        labels = [example.pop(label) for example in examples]
        names = list(dict.fromkeys(labels))
        written = dict(zip(names, tokenizer.encode_batch(names), strict=True))
        if len(set(map(tuple, written.values()))) < len(names):
            raise UsageError(
                f"the tokenizer encodes the labels {', '.join(names)} of {file} alike; write tokenizer=unigram"
            )
        task = file.parent.name
        inputs = tokenizer.encode_batch([prompt(task, example) for example in examples])
        self._inputs = [[*ids[: length - 1], end] for ids in inputs]
        self._targets = [[*written[label], end] for label in labels]
        self.steps_per_epoch = len(examples) // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{file} has {len(examples)} examples, too few for a batch of {batch_size}; lower batch_size"
            )
        tokens = sum(map(len, self._inputs)) + sum(map(len, self._targets))
        self.tokens_per_step = batch_size * tokens / len(examples)
        self._batch_size, self._seed = batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(len(self._inputs))
        places = self._order[1][index * self._batch_size :][: self._batch_size]
        own = pad(self._inputs, self._targets, places[share_of_rows(self._batch_size, rank, world)])
        own.target_ids[:, 0] = START
        labels = sum(len(self._targets[place]) for place in places)
        return own._replace(weight=world * int(own.target_lengths.sum()) / labels)


class MultitaskMixture(Mixture):
    """A mixture of an unsupervised objective and supervised tasks, with the rates that `proportional` computes.

    The attribute `inputs` lists the files of the tasks.

    Args:
        tokens: the corpus, memory-mapped from its folder of the `tokenize` stage. Each task's file of the same split as
            `tokens` is read, so validation batches are mixed like training batches.
        unsupervised: builds the unsupervised batches from `tokens`; each window counts as one example of the mixture.
        tasks: folders of tasks, written by the prepare stage.
        length: largest length of an input in tokens.
        temperature: a higher temperature makes the rates more equal, see `proportional`.
        limit: a data set with more examples than `limit` is mixed as if it had `limit` examples, see `proportional`.
        label: name of the column with the label.
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
