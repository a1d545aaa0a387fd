"""Compare the training speed of language models with peers: `python -m benchmarks.language_models`.

The peers of the LSTMs (small and medium of Zaremba et al. 2014) are plain loops like that of pytorch/examples'
word_language_model: nn.Embedding, nn.LSTM, nn.Linear, cross-entropy, clip_grad_norm_, and SGD as plain updates. One
loop is eager, and one compiles the model and the loss with torch.compile.

The peers of the GPTs (4 layers of 128 and 6 layers of 256, 16 × 128 tokens) use torch's fused AdamW:

transformers        transformers' GPT-2, eager or compiled with its loss
a plain GPT         model and cross-entropy compiled as one graph, with torch's attention kernel or with attention as
                    explicit products

All sides get the same random tokens of 10,000 types. They run in turns in one process with the same allocator settings.
Steps are timed one by one, except the first steps, in which torch.compile compiles. A round gives the ratio of the
median times of its steps. The table shows the median ratio of all rounds, and the lowest and the highest one. Our side
is the objective with its optimizer in a plain loop. With `--lightning`, the last column shows how much more time a step
takes through the Lightning module, as in the stages.

All rows take about twelve minutes on two idle cores. transformers is in the extra `dev`.
"""

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.ratio import Ratio, at_least_one, command_line, in_turns, precisions, show
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


def plain_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, dropout: float, explicit: bool
) -> torch.Tensor:
    """Compute attention (B, H, T, K) by torch's kernel or, if `explicit`, by products; the mask is False at -∞."""
    if not explicit:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout)
    scores = q @ k.mT * q.shape[3] ** -0.5
    scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
    return F.dropout(scores.softmax(3), dropout).to(v.dtype) @ v


class PlainGPT(nn.Module):
    """A GPT-2 as users write it, with the mean cross-entropy as its result, for torch.compile."""

    earlier: torch.Tensor

    def __init__(self, d: int, layers: int, heads: int, dropout: float, explicit: bool):
        super().__init__()
        self.heads, self.dropout, self.explicit = heads, dropout, explicit
        self.tokens, self.places = nn.Embedding(V, d), nn.Embedding(LENGTH, d)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(d), "mix": nn.Linear(d, 3 * d), "out": nn.Linear(d, d),
                "norm_2": nn.LayerNorm(d), "expand": nn.Linear(d, 4 * d), "contract": nn.Linear(4 * d, d),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(d)
        self.register_buffer("earlier", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        B, T = ids.shape
        x = F.dropout(self.tokens(ids) + self.places.weight[:T], self.dropout)
        for block in self.blocks:
            q, k, v = block["mix"](block["norm"](x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            if self.explicit:
                mixed = plain_attention(q, k, v, self.earlier, self.dropout, explicit=True)
            else:
                mixed = F.scaled_dot_product_attention(q, k, v, None, self.dropout, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(B, T, -1)
            x = x + F.dropout(block["out"](mixed), self.dropout)
            hidden = F.gelu(block["expand"](block["norm_2"](x)), approximate="tanh")
            x = x + F.dropout(block["contract"](hidden), self.dropout)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1).float(), labels.flatten())


def example_steps(name: str, precision: str, tokens: np.ndarray, compiled: bool) -> Iterator[None]:
    d, layers, dropout, batch, length = LSTMS[name]
    torch.manual_seed(1)
    model, state = ExampleLSTM(d, layers, dropout), None

    def loss_of(ids: torch.Tensor, labels: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        output, state = model(ids, state)
        return F.nll_loss(output.float(), labels), state

    step_loss: Any = torch.compile(loss_of) if compiled else loss_of
    data = CarriedStreams(tokens, batch, length)
    step = 0
    while True:
        window = data.batch(step)
        state = None if state is None else tuple(part.detach() for part in state)
        model.zero_grad()
        with autocast(precision):
            loss, state = step_loss(window.input_ids.T, window.labels.T.flatten(), state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-20)
        loss.item()  # the example logs it
        step += 1
        yield


def gpt_steps(
    name: str, precision: str, tokens: np.ndarray, build: Callable[..., tuple[nn.Module, Callable[..., torch.Tensor]]]
) -> Iterator[None]:
    """Train a peer; `build` returns its module and its loss as a function of inputs and labels."""
    torch.manual_seed(1)
    model, loss_of = build(*GPTS[name])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data, step = ShuffledWindows(tokens, BATCH, LENGTH, seed=1), 0
    while True:
        window = data.batch(step)
        with autocast(precision):
            loss = loss_of(window.input_ids, window.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        yield


def transformers_gpt(
    d: int, layers: int, heads: int, dropout: float, compiled: bool
) -> tuple[nn.Module, Callable[..., torch.Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=V, n_positions=LENGTH, n_embd=d, n_layer=layers, n_head=heads, use_cache=False,
                        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    forward: Any = torch.compile(model) if compiled else model
    return model, lambda ids, labels: forward(input_ids=ids, labels=ids).loss  # transformers shifts the labels itself


def plain_gpt(
    d: int, layers: int, heads: int, dropout: float, explicit: bool
) -> tuple[nn.Module, Callable[..., torch.Tensor]]:
    model = PlainGPT(d, layers, heads, dropout, explicit)
    return model, torch.compile(model)


LSTM_PEERS: dict[str, Callable[..., Iterator[None]]] = {
    "a plain loop": partial(example_steps, compiled=False),
    "a plain loop, compiled": partial(example_steps, compiled=True),
}
GPT_PEERS: dict[str, Callable[..., Iterator[None]]] = {
    "transformers": partial(gpt_steps, build=partial(transformers_gpt, compiled=False)),
    "transformers, compiled": partial(gpt_steps, build=partial(transformers_gpt, compiled=True)),
    "a plain GPT, compiled": partial(gpt_steps, build=partial(plain_gpt, explicit=False)),
    "a plain GPT, compiled, products": partial(gpt_steps, build=partial(plain_gpt, explicit=True)),
}


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
        theirs = LSTM_PEERS if name in LSTMS else GPT_PEERS
        peers = [peer for peer in theirs if arguments.peers is None or peer in arguments.peers]
        rows, length = LSTMS[name][3:] if name in LSTMS else (BATCH, LENGTH)
        for precision in arguments.precisions:
            sides = {"ours": our_steps(name, precision, tokens)}
            sides |= {peer: theirs[peer](name, precision, tokens) for peer in peers}
            seconds = in_turns(sides, WARMING, arguments.rounds, arguments.steps)
            cost = ""
            if arguments.lightning:
                through = lightning_seconds(name, precision, tokens)
                cost = f"{through / statistics.median(seconds['ours']) - 1:+.1%} time with Lightning"
            for peer in peers:
                yield Ratio.of(f"{name}, {precision}", peer, "tokens/s", rows * length, seconds["ours"], seconds[peer],
                               remark=cost)  # fmt: skip
            torch.compiler.reset()


def main() -> None:
    parser = precisions(command_line(__doc__, [*LSTMS, *GPTS], rounds=7))
    peers = [*LSTM_PEERS, *GPT_PEERS]
    parser.add_argument("--peers", nargs="+", choices=peers, metavar="PEER", help=f"default all: {'; '.join(peers)}")
    parser.add_argument("--steps", type=at_least_one, default=3, help="steps of each side per round")
    parser.add_argument("--lightning", action="store_true", help="also measure our steps through the Lightning module")
    show(parser, ratios)


if __name__ == "__main__":
    main()
