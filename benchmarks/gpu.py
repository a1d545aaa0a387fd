"""Measure training and generation on one GPU in bf16, next to peers: `python -m benchmarks.gpu`.

| work | Retable | peers |
|---|---|---|
| GPT-2 of 124M parameters, 32 windows of 1,024 tokens | `compile=true` | a plain GPT compiled whole, with its cross-entropy and a vocabulary padded to a multiple of 64; transformers, eager and compiled |
| BERT-base, 64 rows of 512, softmax at masked tokens | `compile=true` | a plain BERT compiled whole; transformers, eager and compiled |
| LSTM medium (Zaremba et al. 2014), 20 × 35 | steps as one CUDA graph, the default | a plain loop, eager and as one CUDA graph |
| greedy generation with the GPT-2, 8 rows, 128 tokens | the default | transformers' `generate` with a static cache, which it compiles |

Tokens are random. All sides run in one process, one after the other. Retable trains through its Lightning module, as
the stages do; a peer is a loop of a few lines. Only the LSTMs have dropout (0.5). The first steps, in which torch
compiles and records, are not counted. Column "of peak" counts six operations per weight and token, relative to the
bf16 speed in the chip's data sheet, as `pretrain` records it.

The sides of Retable come first, then the peers. A side that would begin after `--seconds` is left out, so that the
script ends in about five minutes. The last table shows the bars of the project and which of them are met.

transformers is in the extra `dev`.
"""  # noqa: E501

import argparse
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.contextual import PlainBERT, Sizes, Text, spread, theirs
from benchmarks.language_models import ExampleLSTM, PlainGPT
from benchmarks.ratio import at_least_one
from retable.data.batches import Batches
from retable.data.bucketed import on_device
from retable.data.streams import CarriedStreams, ShuffledWindows
from retable.generation.next_token import Trained
from retable.generation.sampling import Greedy
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.nn.attention import padding_mask
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.training.cost import flops_utilisation, training_cost
from retable.training.data import Data
from retable.training.fit import quiet_lightning
from retable.training.module import Training
from retable.training.optimizers import adamw, sgd
from retable.training.schedules import constant

LSTM_MEDIUM = (650, 2, 0.5, 20, 35)  # d_model, layers, dropout, batch size, length
V = 10_000
BERT_BASE = Sizes(30_522, 768, 12, 64, 512)
GPT2 = (50_257, 768, 12, 12, 1024)  # vocabulary size, width, layers, heads, window
WINDOWS, DOCUMENTS = 32, 40_000  # rows per batch; documents, so many that no epoch ends
PROMPTS, PROMPT, NEW = 8, 16, 128  # generated texts, tokens per prompt, tokens per completion
ALIGNED = 64


class Run(NamedTuple):
    """Where and how long a side is measured."""

    device: torch.device
    warming: int  # steps before timing starts
    steps: int  # timed steps


class Ours(NamedTuple):
    objective: Any
    batches: Any
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    clip_norm: float


class Theirs(NamedTuple):
    """A peer's model, its optimizer, and a function that maps a batch to its loss and may carry a state."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    loss: Callable[[Any], Tensor]
    clip_norm: float


def padded(vocab_size: int) -> int:
    return vocab_size + -vocab_size % ALIGNED


def tokens(vocab_size: int) -> np.ndarray:
    return np.random.default_rng(1).integers(vocab_size, size=2_000_000).astype(np.uint16)


def adam() -> Callable[[nn.Module], torch.optim.Optimizer]:
    return partial(adamw, lr=1e-4, weight_decay=0.1)


def our_gpt2() -> Ours:
    V, d, layers, heads, length = GPT2
    objective = CausalLM(GPT(V, d, layers, heads, length, 0.0), V, tie=True, bias=False, reduction="mean")
    return Ours(objective, ShuffledWindows(tokens(V), WINDOWS, length, seed=1), adam(), 1.0)


def plain_gpt2(device: torch.device) -> Theirs:
    V, d, layers, heads, length = GPT2
    model = PlainGPT(d, layers, heads, 0.0, explicit=False, vocab_size=padded(V), length=length).to(device)
    forward = torch.compile(model)
    batches = ShuffledWindows(tokens(V), WINDOWS, length, seed=1)
    return Theirs(model, adam()(model), batches, lambda window: forward(window.input_ids, window.labels), 1.0)


def their_gpt2_model(**settings: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    V, d, layers, heads, length = GPT2
    none = {f"{part}_pdrop": 0.0 for part in ("resid", "embd", "attn")} | {"bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(vocab_size=V, n_positions=length, n_embd=d, n_layer=layers, n_head=heads, **none, **settings)
    return GPT2LMHeadModel(config)


def their_gpt2(device: torch.device, compiled: bool) -> Theirs:
    model = their_gpt2_model(use_cache=False).to(device).train()
    forward: Any = torch.compile(model) if compiled else model
    batches = ShuffledWindows(tokens(GPT2[0]), WINDOWS, GPT2[4], seed=1)
    return Theirs(model, adam()(model), batches, lambda w: forward(input_ids=w.input_ids, labels=w.input_ids).loss, 1.0)


def our_bert() -> Ours:
    model = BERT(BERT_BASE.vocab_size, **BERT_BASE.encoder(), max_length=BERT_BASE.length, dropout=0.0, pooler=False)
    objective = MaskedLM(model, BERT_BASE.vocab_size, next_sentence=False)
    return Ours(objective, Text(BERT_BASE.vocab_size, DOCUMENTS).masked(BERT_BASE), adam(), 1.0)


def plain_bert(device: torch.device) -> Theirs:
    model = PlainBERT(BERT_BASE._replace(vocab_size=padded(BERT_BASE.vocab_size)), explicit=False).to(device)
    forward = torch.compile(model)

    def loss(batch: Any) -> Tensor:
        mask = padding_mask(batch.lengths, batch.input_ids.shape[1]) if batch.padded else None
        value: Tensor = forward(batch.input_ids, batch.segments, mask, batch.places, batch.labels)
        return value

    return Theirs(model, adam()(model), Text(BERT_BASE.vocab_size, DOCUMENTS).masked(BERT_BASE), loss, 1.0)


def their_bert(device: torch.device, compiled: bool) -> Theirs:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(theirs(BertConfig, BERT_BASE)).to(device).train()
    forward: Any = torch.compile(model) if compiled else model
    batches = Text(BERT_BASE.vocab_size, DOCUMENTS).masked(BERT_BASE)
    return Theirs(model, adam()(model), batches, lambda batch: forward(**spread(batch)).loss, 1.0)


def our_lstm() -> Ours:
    d, layers, dropout, rows, length = LSTM_MEDIUM
    objective = CausalLM(LSTM(V, d, layers, dropout, 0.05), V, tie=False, bias=True, reduction="time_sum")
    return Ours(objective, CarriedStreams(tokens(V), rows, length), partial(sgd, lr=1.0), 5.0)


def example_lstm(device: torch.device) -> Theirs:
    d, layers, dropout, rows, length = LSTM_MEDIUM
    model, state = ExampleLSTM(d, layers, dropout).to(device), None

    def loss(window: Any) -> Tensor:
        nonlocal state
        state = None if state is None else tuple(part.detach() for part in state)
        output, state = model(window.input_ids.T, state)
        return nn.functional.nll_loss(output.float(), window.labels.T.flatten())

    optimizer = torch.optim.SGD(model.parameters(), lr=20, fused=True)
    return Theirs(model, optimizer, CarriedStreams(tokens(V), rows, length), loss, 0.25)


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Clock(L.Callback):
    """Records the times at which step `first` begins and the last step ends; waits for all work of the GPU before."""

    def __init__(self, first: int) -> None:
        self.first, self.began, self.ended = first, 0.0, 0.0

    def on_train_batch_start(self, trainer: L.Trainer, _: Any, __: Any, batch_idx: int) -> None:
        if batch_idx == self.first:
            self.began = now()

    def on_train_end(self, trainer: L.Trainer, _: Any) -> None:
        self.ended = now()


def through_lightning(build: Callable[[], Ours], run: Run, compiled: bool = False) -> float:
    """Return the seconds per step of our side."""
    side = build()
    training = Training(
        side.objective, 1, run.warming + run.steps, side.optimizer, constant, side.clip_norm, epochs=1, compile=compiled
    )
    with TemporaryDirectory() as scratch, quiet_lightning():
        L.Trainer(
            accelerator="gpu" if run.device.type == "cuda" else "cpu", devices=1, precision="bf16-mixed",
            max_steps=run.warming + run.steps, max_epochs=-1, limit_val_batches=0,
            callbacks=[clock := Clock(run.warming)], default_root_dir=scratch, logger=False,
            enable_checkpointing=False, enable_model_summary=False, enable_progress_bar=False,
        ).fit(training, datamodule=Data(side.batches))  # fmt: skip
    return (clock.ended - clock.began) / run.steps


def in_a_loop(build: Callable[[torch.device], Theirs], run: Run) -> float:
    """Return the seconds per step of a peer."""
    side, began = build(run.device), now()
    for step in count():
        if step == run.warming:
            began = now()
        if step == run.warming + run.steps:
            break
        with torch.autocast(run.device.type, torch.bfloat16):
            loss = side.loss(on_device(run.device, side.batches.batch(step)))
        loss.backward()
        nn.utils.clip_grad_norm_(side.model.parameters(), side.clip_norm)
        side.optimizer.step()
        side.optimizer.zero_grad()
    return (now() - began) / run.steps


def graphed_lstm(run: Run) -> float:
    """Return the seconds per step of a plain LSTM whose whole step is recorded once as a CUDA graph."""
    d, layers, dropout, rows, length = LSTM_MEDIUM
    model, batches = ExampleLSTM(d, layers, dropout).to(run.device), CarriedStreams(tokens(V), rows, length)
    optimizer = torch.optim.SGD(model.parameters(), lr=20, foreach=True)
    ids, labels = torch.zeros(2, rows, length, dtype=torch.long, device=run.device).unbind()
    state = tuple(torch.zeros(2, layers, rows, d, device=run.device).unbind())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(run.device.type, torch.bfloat16):
            output, after = model(ids.T, state)
        nn.functional.nll_loss(output.float(), labels.T.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        for own, new in zip(state, after, strict=True):
            own.copy_(new.detach())

    replay: Callable[[], None] = step
    if run.device.type == "cuda":  # on a CPU, the step only tests the script
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
    began = now()
    for number in range(run.warming + run.steps):
        if number == run.warming:
            began = now()
        window = on_device(run.device, batches.batch(number))
        ids.copy_(window.input_ids)
        labels.copy_(window.labels)
        replay()
    return (now() - began) / run.steps


def seconds_of(generate: Callable[[], Any]) -> float:
    """Return the median seconds per step of three runs after two others, in which torch compiles."""
    spent = []
    for _ in range(5):
        began = now()
        generate()
        spent.append((now() - began) / NEW)
    return sorted(spent[2:])[1]


def prompts(device: torch.device) -> Tensor:
    return torch.randint(GPT2[0], (PROMPTS, PROMPT), generator=torch.Generator().manual_seed(2)).to(device)


def our_generation(run: Run) -> float:
    model, ids = Trained(our_gpt2().objective.to(run.device, torch.bfloat16)), prompts(run.device).tolist()
    return seconds_of(lambda: Greedy(NEW)(model, ids, None))


def their_generation(run: Run) -> float:
    model, ids = their_gpt2_model().to(run.device, torch.bfloat16).eval(), prompts(run.device)
    settings: dict[str, Any] = {
        "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "cache_implementation": "static",
    }  # fmt: skip
    return seconds_of(lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **settings))


OURS, STATIC = "Retable", "transformers, static cache, compiled"
SIDES: dict[tuple[str, str], Callable[[Run], float]] = {
    ("GPT-2 124M", OURS): partial(through_lightning, our_gpt2, compiled=True),
    ("LSTM medium", OURS): partial(through_lightning, our_lstm),
    ("LSTM medium", "a plain loop as a CUDA graph"): graphed_lstm,
    ("LSTM medium", "a plain loop"): partial(in_a_loop, example_lstm),
    ("BERT-base", OURS): partial(through_lightning, our_bert, compiled=True),
    ("generation", OURS): our_generation,
    ("generation", STATIC): their_generation,
    ("GPT-2 124M", "a plain GPT, compiled whole"): partial(in_a_loop, plain_gpt2),
    ("BERT-base", "a plain BERT, compiled whole"): partial(in_a_loop, plain_bert),
    ("GPT-2 124M", "transformers"): partial(in_a_loop, partial(their_gpt2, compiled=False)),
    ("BERT-base", "transformers"): partial(in_a_loop, partial(their_bert, compiled=False)),
    ("GPT-2 124M", "transformers, compiled"): partial(in_a_loop, partial(their_gpt2, compiled=True)),
    ("BERT-base", "transformers, compiled"): partial(in_a_loop, partial(their_bert, compiled=True)),
}
TRAINED = {"GPT-2 124M": our_gpt2, "BERT-base": our_bert, "LSTM medium": our_lstm}


@cache
def costs(work: str) -> dict[str, float]:
    """Return the tokens and FLOPs per step; a step of generation writes one token per row."""
    if work not in TRAINED:
        return {"tokens": PROMPTS}
    side = TRAINED[work]()
    return training_cost(side.objective, side.batches)


def share_of_peak(work: str, seconds: float) -> float | None:
    flops = costs(work).get("flops")
    chip = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return None if flops is None else flops_utilisation(flops / seconds, chip, 1)


def measure(run: Run, limit: float, works: list[str]) -> Iterator[tuple[str, str, float | None, float]]:
    """Yield work, side, seconds per step (None if left out) and the peak memory in GiB."""
    started = time.monotonic()
    for (work, side), seconds_per_step in SIDES.items():
        if work not in works:
            continue
        if time.monotonic() - started > limit:
            yield work, side, None, 0.0
            continue
        steps = run.steps * (10 if work == "LSTM medium" else 1)
        seconds, memory = seconds_per_step(run._replace(steps=steps)), 0.0
        if run.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        torch.compiler.reset()
        yield work, side, seconds, memory


def bars(seconds: dict[tuple[str, str], float]) -> Iterator[tuple[str, str, bool | None]]:
    """Yield each bar of the project, the measured value, and whether the bar is met (None if not measured)."""
    for work, most in (("GPT-2 124M", 64.0), ("LSTM medium", 2.5)):
        spent = seconds.get((work, OURS))
        measured = "" if spent is None else f"{1000 * spent:.2f} ms"
        yield f"{work}: at most {most:g} ms", measured, None if spent is None else 1000 * spent <= most
    spent = seconds.get(("BERT-base", OURS))
    share = None if spent is None else share_of_peak("BERT-base", spent)
    yield (
        "BERT-base: at least 40 % of the peak, counting the softmax at all tokens",
        "" if share is None else f"{share:.1%}",
        None if share is None else share >= 0.4,
    )
    own, peer = seconds.get(("generation", OURS)), seconds.get(("generation", STATIC))
    ratio = peer / own if peer and own else None
    yield (
        "generation: at least 2 times as fast as transformers", "" if ratio is None else f"{ratio:.2f} times",
        None if ratio is None else ratio >= 2,
    )  # fmt: skip


def main() -> None:
    works = [*dict.fromkeys(work for work, _ in SIDES)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--works", nargs="+", choices=works, default=works, metavar="WORK", help=", ".join(works))
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu only tests the script")
    parser.add_argument("--warming", type=at_least_one, default=8, help="steps before timing starts")
    parser.add_argument("--steps", type=at_least_one, default=20, help="timed steps; ten times as many for the LSTM")
    parser.add_argument("--seconds", type=float, default=240.0, help="no side begins after these seconds")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    run = Run(torch.device("cuda" if arguments.device == "gpu" else "cpu"), arguments.warming, arguments.steps)
    if arguments.device == "gpu":
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    print("| work | side | ms per step | times Retable's | tokens/s | of peak | GiB |\n|---|---" + 5 * "|---:" + "|")
    seconds: dict[tuple[str, str], float] = {}
    for work, side, spent, memory in measure(run, arguments.seconds, arguments.works):
        if spent is None:
            print(f"| {work} | {side} | not run | | | | |", flush=True)
            continue
        seconds[work, side] = spent
        share, speed = share_of_peak(work, spent), costs(work)["tokens"] / spent
        print(
            f"| {work} | {side} | {1000 * spent:.2f} | {spent / seconds[work, OURS]:.2f} | {speed:,.0f} "
            f"| {'' if share is None else f'{share:.1%}'} | {memory:.1f} |",
            flush=True,
        )
    print("\n| bar | measured | met |\n|---|---|---|")
    for bar, measured, met in bars(seconds):
        print(f"| {bar} | {measured or 'not measured'} | {'unproven' if met is None else 'yes' if met else 'no'} |")


if __name__ == "__main__":
    main()
