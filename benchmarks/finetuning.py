"""Compare fine-tuning and evaluation with transformers' run_glue: `python -m benchmarks.finetuning`.

The model is a BERT of 4 layers of width 256 on SST-2; sentences are split at white space. Our side uses batches of
similar lengths, padded to their longest row; its batches for evaluation are larger, with the shortest rows first. The
peer is transformers' BertForSequenceClassification with the random batches of run_glue. Their rows are padded to 128
(`pad_to_max_length`, the default of run_glue), or to the longest row of a batch (`padded to the batch`). Sizes, batch
size, dropout and optimizer are the same. Both sides run in turns in one process, and the times include batches and
optimizer. Training speed is all examples divided by all seconds, without the first steps. Evaluation speed is over the
whole development set, in the median round.

transformers is in the extra `dev`; the data are in the folder that RETABLE_DATA names, by default `data`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.language_models import WARMING, autocast
from benchmarks.ratio import Ratio, at_least_one, command_line, precisions, show, times
from retable.data.bucketed import Bucketed
from retable.data.examples import Inputs, encoded
from retable.data.templates import in_segments
from retable.evaluation.prediction import predict
from retable.models.bert import BERT
from retable.objectives.classification import Classification
from retable.tasks.table import read_table
from retable.training.optimizers import adamw

PAD, CLS, SEP = range(3)
MAX_LENGTH = 128  # run_glue's max_seq_length
MODEL = {"d_model": 256, "n_layers": 4, "n_heads": 4}
DROPOUT = 0.1


class Examples(NamedTuple):
    inputs: Inputs
    labels: list[int]


def sst2(folder: Path) -> tuple[dict[str, Examples], int]:
    """Read train and dev. Return their examples as BERT reads them, and the size of the vocabulary."""
    ids: dict[str, int] = {}
    splits = {}
    for split in ("train", "dev"):
        rows = [row.fields for row in read_table(folder / f"{split}.tsv").rows]
        sentences = [[ids.setdefault(word, len(ids) + SEP + 1) for word in row["sentence"].split()] for row in rows]
        labels = [int(row["label"]) for row in rows]
        splits[split] = Examples(in_segments([(each,) for each in sentences], CLS, SEP, MAX_LENGTH), labels)
    return splits, len(ids) + SEP + 1


class Side(NamedTuple):
    module: nn.Module
    loss: Callable[[int], tuple[Tensor, int]]  # maps a step to its loss and its number of examples
    predict: Callable[[Inputs], list[int]]


def ours(train: Examples, vocab_size: int, batch_size: int) -> Side:
    model = BERT(vocab_size, **MODEL, max_length=MAX_LENGTH, dropout=DROPOUT)
    objective, data = Classification(model, 2, DROPOUT), Bucketed(encoded(*train), batch_size, seed=1)

    def loss(step: int) -> tuple[Tensor, int]:
        batch = data.batch(step)
        return objective.loss(batch, None, step)[0], len(batch.labels)

    return Side(objective, loss, lambda inputs: predict(objective, encoded(inputs, [0] * len(inputs.sequences))))


def theirs(train: Examples, vocab_size: int, batch_size: int, longest: bool) -> Side:
    """Return the side of transformers; `longest` pads rows to the longest of their batch instead of MAX_LENGTH."""
    config = BertConfig(
        vocab_size=vocab_size, hidden_size=MODEL["d_model"], num_hidden_layers=MODEL["n_layers"],
        num_attention_heads=MODEL["n_heads"], intermediate_size=4 * MODEL["d_model"],
        max_position_embeddings=MAX_LENGTH, hidden_dropout_prob=DROPOUT, attention_probs_dropout_prob=DROPOUT,
        num_labels=2,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    order = np.random.default_rng(1).permutation(len(train.labels))

    def loss(step: int) -> tuple[Tensor, int]:
        places = order.take(range(step * batch_size, (step + 1) * batch_size), mode="wrap")
        batch = padded([train.inputs.sequences[place] for place in places], longest)
        labels = torch.tensor([train.labels[place] for place in places])
        return model(**batch, labels=labels).loss, len(places)

    @torch.inference_mode()
    def predict(inputs: Inputs) -> list[int]:
        batches = (inputs.sequences[i : i + batch_size] for i in range(0, len(inputs.sequences), batch_size))
        return [i for batch in batches for i in model(**padded(batch, longest)).logits.argmax(1).tolist()]

    return Side(model, loss, predict)


def padded(sequences: Any, longest: bool) -> dict[str, Tensor]:
    """Return padded rows with their attention mask, as run_glue's collator does."""
    width = max(map(len, sequences)) if longest else MAX_LENGTH
    ids = torch.tensor([[*sequence, *[PAD] * (width - len(sequence))] for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return {"input_ids": ids, "attention_mask": (torch.arange(width) < lengths[:, None]).long()}


def steps(side: Side, precision: str, trained: list[int]) -> Iterator[None]:
    """Train, and yield after each step; append the step's number of examples to `trained`."""
    optimizer = adamw(side.module, lr=1e-4, weight_decay=0.01)
    for step in count():
        side.module.train()
        with autocast(precision):
            loss, n = side.loss(step)
        loss.backward()
        nn.utils.clip_grad_norm_(side.module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        trained.append(n)
        yield


def evaluation_seconds(side: Side, precision: str, inputs: Inputs) -> float:
    side.module.eval()
    start = time.perf_counter()
    with autocast(precision):
        side.predict(inputs)
    return time.perf_counter() - start


def measure(sides: list[Side], dev: Inputs, precision: str, rounds: int, n_steps: int) -> list[tuple[float, float]]:
    """Return the examples per second of each side, in training and in evaluation."""
    trained: list[list[int]] = [[] for _ in sides]
    running = [steps(side, precision, counts) for side, counts in zip(sides, trained, strict=True)]
    for each, counts in zip(running, trained, strict=True):
        times(each, WARMING)
        counts.clear()
    seconds: list[list[float]] = [[] for _ in sides]
    evaluations: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for place, side in enumerate(sides):
            seconds[place] += times(running[place], n_steps)
            evaluations[place].append(evaluation_seconds(side, precision, dev))
    return [
        (sum(counts) / sum(spent), len(dev.sequences) / statistics.median(evaluated))
        for counts, spent, evaluated in zip(trained, seconds, evaluations, strict=True)
    ]


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    splits, vocab_size = sst2(Path(os.environ.get("RETABLE_DATA", "data"), "glue/SST-2"))
    for precision in arguments.precisions:
        torch.manual_seed(1)
        common = (splits["train"], vocab_size, arguments.batch_size)
        sides = [ours(*common), *(theirs(*common, longest=name == "to the batch") for name in arguments.systems)]
        own, *others = measure(sides, splits["dev"].inputs, precision, arguments.rounds, arguments.steps)
        for name, speeds in zip(arguments.systems, others, strict=True):
            for work, speed, its in zip(("fine-tuning", "prediction"), own, speeds, strict=True):
                yield Ratio(f"SST-2 {work}, {precision}", f"transformers, padded {name}", "examples/s", speed, its)


def main() -> None:
    parser = precisions(command_line(__doc__, ["to 128", "to the batch"], rounds=5))
    parser.add_argument("--steps", type=at_least_one, default=20, help="steps of each side per round")
    parser.add_argument("--batch-size", type=at_least_one, default=32)
    show(parser, ratios)


if __name__ == "__main__":
    main()
