"""Measure training speed on one GPU in bf16, next to peer libraries: `python -m benchmarks.gpu`.

Compares three kinds of models with a peer:
- GPT-2 of 124M parameters (32 windows of 1,024 tokens) with that of transformers, with torch's attention;
- BERT-base (64 rows of 512, softmax only at masked tokens) with that of transformers, on the same rows;
- the medium and the large LSTM of Zaremba et al. (20 × 35) with a plain loop like that of pytorch/examples'
  word_language_model.

Tokens are random. Both sides run in one process, one after the other, with torch's fused optimizers. Only the LSTMs
have dropout (0.5). Our side runs through the Lightning module, as the stages do; the peer is a plain loop. The GPT-2s
also run compiled: ours with `compile=true`, the peer with torch.compile. The first steps are not counted. Column "of
peak" counts six operations per weight and token, relative to the bf16 speed in the chip's data sheet, as `pretrain`
records it.

transformers is in the extra `dev`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.contextual import Sizes, Text, spread, theirs
from benchmarks.language_models import ExampleLSTM
from benchmarks.ratio import at_least_one
from retable.data.batches import Batches
from retable.data.bucketed import on_device
from retable.data.streams import CarriedStreams, ShuffledWindows
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.training.cost import flops_utilisation, training_cost
from retable.training.data import Data
from retable.training.fit import quiet_lightning
from retable.training.module import Training
from retable.training.optimizers import adamw, sgd
from retable.training.schedules import constant

LSTMS = {
    "LSTM medium": (650, 2, 0.5, 20, 35),
    "LSTM large": (1500, 2, 0.5, 20, 35),
}  # d_model, layers, dropout, batch size, length
V = 10_000
BERT_BASE = Sizes(30_522, 768, 12, 64, 512)
GPT2 = (50_257, 768, 12, 12, 1024)  # vocabulary size, width, layers, heads, window
WINDOWS, DOCUMENTS = 32, 40_000  # rows per batch; documents, so many that no epoch ends
COMPILED = ("GPT-2 124M",)


class Ours(NamedTuple):
    objective: Any
    batches: Batches
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    clip_norm: float


class Theirs(NamedTuple):
    """A peer's model, its optimizer, and a function that maps a batch to its loss and may carry a state."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    loss: Callable[[Any], Tensor]
    clip_norm: float


def tokens(vocab_size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(vocab_size, size=2_000_000).astype(np.uint16)


def our_lstm(name: str) -> Ours:
    d, layers, dropout, rows, length = LSTMS[name]
    objective = CausalLM(LSTM(V, d, layers, dropout, 0.05), V, tie=False, bias=True, reduction="time_sum")
    return Ours(objective, CarriedStreams(tokens(V), rows, length), partial(sgd, lr=1.0), 5.0)


def example_lstm(name: str, compiled: bool, device: torch.device) -> Theirs:
    d, layers, dropout, rows, length = LSTMS[name]
    model, state = ExampleLSTM(d, layers, dropout).to(device), None
    forward: Any = torch.compile(model) if compiled else model

    def loss(window: Any) -> Tensor:
        nonlocal state
        state = None if state is None else tuple(part.detach() for part in state)
        output, state = forward(window.input_ids.T, state)
        return nn.functional.nll_loss(output.float(), window.labels.T.flatten())

    optimizer = torch.optim.SGD(model.parameters(), lr=20, fused=True)
    return Theirs(model, optimizer, CarriedStreams(tokens(V), rows, length), loss, 0.25)


def our_gpt2(_: str) -> Ours:
    V, d, layers, heads, length = GPT2
    objective = CausalLM(GPT(V, d, layers, heads, length, 0.0), V, tie=True, bias=False, reduction="mean")
    return Ours(objective, ShuffledWindows(tokens(V), WINDOWS, length, seed=1), adam(), 1.0)


def their_gpt2(_: str, compiled: bool, device: torch.device) -> Theirs:
    from transformers import GPT2Config, GPT2LMHeadModel

    V, d, layers, heads, length = GPT2
    none = {f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")}
    config = GPT2Config(vocab_size=V, n_positions=length, n_embd=d, n_layer=layers, n_head=heads, **none)
    model = GPT2LMHeadModel(config).to(device).train()
    forward: Any = torch.compile(model) if compiled else model

    def loss(window: Any) -> Tensor:
        value: Tensor = forward(input_ids=window.input_ids, labels=window.input_ids, use_cache=False).loss
        return value

    return Theirs(model, adam()(model), ShuffledWindows(tokens(V), WINDOWS, length, seed=1), loss, 1.0)


def our_bert(_: str) -> Ours:
    model = BERT(BERT_BASE.vocab_size, **BERT_BASE.encoder(), max_length=BERT_BASE.length, dropout=0.0, pooler=False)
    objective = MaskedLM(model, BERT_BASE.vocab_size, next_sentence=False)
    return Ours(objective, Text(BERT_BASE.vocab_size, DOCUMENTS).masked(BERT_BASE), adam(), 1.0)


def their_bert(_: str, compiled: bool, device: torch.device) -> Theirs:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(theirs(BertConfig, BERT_BASE)).to(device).train()
    forward: Any = torch.compile(model) if compiled else model

    def loss(batch: Any) -> Tensor:
        value: Tensor = forward(**spread(batch)).loss
        return value

    return Theirs(model, adam()(model), Text(BERT_BASE.vocab_size, DOCUMENTS).masked(BERT_BASE), loss, 1.0)


def adam() -> Callable[[nn.Module], torch.optim.Optimizer]:
    return partial(adamw, lr=1e-4, weight_decay=0.1)


SYSTEMS: dict[str, tuple[Callable[[str], Ours], Callable[[str, bool, torch.device], Theirs], str]] = {
    "LSTM medium": (our_lstm, example_lstm, "a plain loop"),
    "LSTM large": (our_lstm, example_lstm, "a plain loop"),
    "GPT-2 124M": (our_gpt2, their_gpt2, "transformers"),
    "BERT-base": (our_bert, their_bert, "transformers"),
}


class Clock(L.Callback):
    """Records the times at which step `first` begins and the last step ends; waits for all work of the GPU before."""

    def __init__(self, first: int) -> None:
        self.first, self.began, self.ended = first, 0.0, 0.0

    def on_train_batch_start(self, trainer: L.Trainer, _: Any, __: Any, batch_idx: int) -> None:
        if batch_idx == self.first:
            self.began = now()

    def on_train_end(self, trainer: L.Trainer, _: Any) -> None:
        self.ended = now()


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def our_seconds(side: Ours, device: str, compiled: bool, warming: int, steps: int) -> float:
    """Return the seconds per step of our side."""
    if compiled:
        side.objective.model.compile()
    training = Training(side.objective, 1, warming + steps, side.optimizer, constant, side.clip_norm, epochs=1)
    with TemporaryDirectory() as scratch, quiet_lightning():
        L.Trainer(
            accelerator=device, devices=1, precision="bf16-mixed", max_steps=warming + steps, max_epochs=-1,
            limit_val_batches=0, callbacks=[clock := Clock(warming)], default_root_dir=scratch, logger=False,
            enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=False,
        ).fit(training, datamodule=Data(side.batches))  # fmt: skip
    return (clock.ended - clock.began) / steps


def their_seconds(side: Theirs, device: torch.device, warming: int, steps: int) -> float:
    began = now()
    for step in count():
        if step == warming:
            began = now()
        if step == warming + steps:
            break
        with torch.autocast(device.type, torch.bfloat16):
            loss = side.loss(on_device(device, side.batches.batch(step)))
        loss.backward()
        nn.utils.clip_grad_norm_(side.model.parameters(), side.clip_norm)
        side.optimizer.step()
        side.optimizer.zero_grad()
    return (now() - began) / steps


def rows(names: list[str], device: str, warming: int, steps: int) -> Iterator[str]:
    where = torch.device("cuda" if device == "gpu" else device)
    chip = torch.cuda.get_device_name() if device == "gpu" else ""
    for name in names:
        build_ours, build_theirs, peer = SYSTEMS[name]
        for compiled in (False, True) if name in COMPILED else (False,):
            n_steps = steps * (10 if name in LSTMS else 1)
            side = build_ours(name)
            cost = training_cost(side.objective, side.batches)
            seconds = our_seconds(side, device, compiled, warming, n_steps)
            memory = torch.cuda.max_memory_allocated() / 2**30 if device == "gpu" else 0.0
            del side
            their = their_seconds(build_theirs(name, compiled, where), where, warming, n_steps)
            share = flops_utilisation(cost["flops"] / seconds, chip, 1)
            ratio, speed = their / seconds, cost["tokens"] / seconds
            yield (
                f"| {name}{', compiled' * compiled} | {peer} | {1000 * seconds:.2f} | {1000 * their:.2f} | {ratio:.2f} "
                f"| {speed:,.0f} | {'' if share is None else f'{share:.1%}'} | {memory:.1f} |"
            )
            if device == "gpu":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            torch._dynamo.reset()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS], metavar="NAME", help=", ".join(SYSTEMS)
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu only tests the script")
    parser.add_argument("--warming", type=at_least_one, default=8, help="steps before timing starts")
    parser.add_argument("--steps", type=at_least_one, default=20, help="timed steps; ten times as many for LSTMs")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    if arguments.device == "gpu":
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    print("| work | peer | ms per step | peer's ms | ratio | tokens/s | of peak | GiB |\n|---|---" + 6 * "|---:" + "|")
    for row in rows(arguments.systems, arguments.device, arguments.warming, arguments.steps):
        print(row, flush=True)


if __name__ == "__main__":
    main()
