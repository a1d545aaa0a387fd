"""Compare the training speed of language models with peer libraries: `python -m benchmarks.language_models`.

LSTM small and medium (Zaremba et al. 2014) are compared with a plain loop like that of pytorch/examples'
word_language_model: nn.Embedding, nn.LSTM, nn.Linear, cross-entropy, clip_grad_norm_, and SGD as plain updates. GPTs of
4 layers of 128 and of 6 layers of 256 are compared with transformers' GPT-2 of the same sizes (batch 16 × 128) with
torch's fused AdamW; a separate row has a dropout of 0.1, as published.

Both sides get the same random tokens of 10,000 types and run in turns in one process with the same allocator settings.
Steps are timed one by one, except the first steps; speeds are those of the median steps. Our side is the objective with
its optimizer in a plain loop. It also runs through the Lightning module, as in the stages; the last column shows how
much more time this takes.

transformers is in the extra `dev`.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.ratio import Ratio, at_least_one, command_line, precisions, show
from retable.data.streams import CarriedStreams, ShuffledWindows
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.nn.product import use_faster_products
from retable.objectives.causal_lm import CausalLM
from retable.training.fit import MEASURED, _seconds_per_step
from retable.training.module import Training
from retable.training.optimizers import adamw, sgd
from retable.training.schedules import constant

V, WARMING = 10_000, 3
LSTMS = {"LSTM small": (200, 2, 0.0, 20, 20), "LSTM medium": (650, 2, 0.5, 20, 35)}  # d, layers, dropout, batch, length
GPTS = {  # d_model, layers, heads, dropout
    "GPT 4×128": (128, 4, 4, 0.0),
    "GPT 6×256": (256, 6, 8, 0.0),
    "GPT 6×256, dropout": (256, 6, 8, 0.1),
}
BATCH, LENGTH = 16, 128


def autocast(precision: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


class ExampleLSTM(nn.Module):
    """The LSTM of pytorch/examples/word_language_model (model.py), called as in its main.py."""

    def __init__(self, d: int, layers: int, dropout: float):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(dropout), nn.Embedding(V, d)
        self.rnn, self.decoder = nn.LSTM(d, d, layers, dropout=dropout), nn.Linear(d, V)

    def forward(self, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        output, state = self.rnn(self.drop(self.encoder(ids)), state)
        return F.log_softmax(self.decoder(self.drop(output)).view(-1, V), dim=1), state


def example_steps(name: str, precision: str, tokens: np.ndarray) -> Iterator[None]:
    d, layers, dropout, batch, length = LSTMS[name]
    torch.manual_seed(1)
    model, state = ExampleLSTM(d, layers, dropout), None
    data = CarriedStreams(tokens, batch, length)
    step = 0
    while True:
        window = data.batch(step)
        state = None if state is None else tuple(part.detach() for part in state)
        model.zero_grad()
        with autocast(precision):
            output, state = model(window.input_ids.T, state)
            loss = F.nll_loss(output.float(), window.labels.T.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-20)
        loss.item()  # the example logs it
        step += 1
        yield


def transformers_steps(name: str, precision: str, tokens: np.ndarray) -> Iterator[None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    d, layers, heads, dropout = GPTS[name]
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=V, n_positions=LENGTH, n_embd=d, n_layer=layers, n_head=heads,
                        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data, step = ShuffledWindows(tokens, BATCH, LENGTH, seed=1), 0
    while True:
        ids = data.batch(step).input_ids
        with autocast(precision):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        yield


def ours(name: str, tokens: np.ndarray) -> tuple[CausalLM, Any, Callable[..., Any], float]:
    """Return the objective, its batches, its optimizer and its clipping threshold."""
    torch.manual_seed(1)
    if name in LSTMS:
        d, layers, dropout, batch, length = LSTMS[name]
        model: nn.Module = LSTM(V, d, layers, dropout, 0.1)
        objective = CausalLM(model, V, tie=False, bias=True, reduction="time_sum")
        return objective, CarriedStreams(tokens, batch, length), partial(sgd, lr=1.0), 5.0
    d, layers, heads, dropout = GPTS[name]
    objective = CausalLM(GPT(V, d, layers, heads, LENGTH, dropout), V, tie=True, bias=False, reduction="mean")
    data = ShuffledWindows(tokens, BATCH, LENGTH, seed=1)
    return objective, data, partial(adamw, lr=1e-3, weight_decay=0.1), 1.0


def our_steps(name: str, precision: str, tokens: np.ndarray) -> Iterator[None]:
    objective, data, make, clip = ours(name, tokens)
    use_faster_products(objective)
    optimizer, state, step = make(objective), None, 0
    while True:
        with autocast(precision):
            loss, _, state = objective.loss(data.batch(step), state, step)
        state = None if state is None else tuple(part.detach() for part in state)
        loss.backward()
        nn.utils.clip_grad_norm_(objective.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        yield


def times(steps: Iterator[None], n: int) -> list[float]:
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        next(steps)
        seconds.append(time.perf_counter() - start)
    return seconds


def lightning_seconds(name: str, precision: str, tokens: np.ndarray) -> float:
    """Return the median seconds per step of our side through the Lightning module."""
    objective, data, make, clip = ours(name, tokens)
    training = Training(objective, 1, MEASURED, make, constant, clip, epochs=1)
    kind = "bf16-mixed" if precision == "bf16" else "32-true"
    with tempfile.TemporaryDirectory() as scratch:
        trainer = {"accelerator": "cpu", "devices": 1, "precision": kind}
        return _seconds_per_step(training, data, trainer, Path(scratch))


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    tokens = np.random.default_rng(1).integers(V, size=400_000).astype(np.uint16)
    for name in arguments.systems:
        theirs = example_steps if name in LSTMS else transformers_steps
        rows, length = LSTMS[name][3:] if name in LSTMS else (BATCH, LENGTH)
        for precision in arguments.precisions:
            sides = [our_steps(name, precision, tokens), theirs(name, precision, tokens)]
            seconds: list[list[float]] = [[], []]
            for steps in sides:
                times(steps, WARMING)
            through_lightning = []
            for _ in range(arguments.rounds):
                for spent, steps in zip(seconds, sides, strict=True):
                    spent += times(steps, arguments.steps)
                through_lightning.append(lightning_seconds(name, precision, tokens))
            cost = statistics.median(through_lightning) / statistics.median(seconds[0]) - 1
            speeds = [rows * length / statistics.median(spent) for spent in seconds]
            peer = "a plain loop" if name in LSTMS else "transformers"
            yield Ratio(f"{name}, {precision}", peer, "tokens/s", *speeds, f"{cost:+.1%} time with Lightning")


def main() -> None:
    parser = precisions(command_line(__doc__, [*LSTMS, *GPTS], rounds=6))
    parser.add_argument("--steps", type=at_least_one, default=8, help="steps of each side per round")
    show(parser, ratios)


if __name__ == "__main__":
    main()
