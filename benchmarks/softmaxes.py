"""Compare output layers for large vocabularies with the full softmax: `python -m benchmarks.softmaxes`.

Trains the LSTM of study softmaxes with each output layer, with 10,000 and with 100,000 words, in steps of 32 rows of 32
tokens with AdamW. Tokens are drawn by Zipf's law, and the layers draw their noise words from the same distribution. For
each number of words, all layers run in turns in one process; the first steps are not counted. Seconds are those of the
median step, including the optimizer. Peak memory is measured over a few steps in a separate process, minus the memory
of this process before the model was built.

The table and the figure, benchmarks/softmaxes.md and .svg, also show the perplexities of study softmaxes.
"""

import argparse
import datetime
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.__main__ import machine
from benchmarks.language_models import WARMING
from benchmarks.ratio import at_least_one, command_line, peak_of, times
from retable.data.streams import CarriedStreams
from retable.models.recurrent import LSTM
from retable.nn.product import use_faster_products
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.base import CountsWords
from retable.objectives.blackout import BlackOut
from retable.objectives.causal_lm import CausalLM
from retable.objectives.hierarchical_lm import HierarchicalLM
from retable.objectives.noise_contrastive import NoiseContrastive
from retable.objectives.sampled_softmax import SampledSoftmax
from retable.reporting.figures import COLOURS, LINE, Figure, text_width, write_figure
from retable.reporting.lines import Scale, significant
from retable.training.fit import _keep_freed_memory
from retable.training.optimizers import adamw

D, BATCH, LENGTH, SAMPLES, TOKENS = 64, 32, 32, 1000, 200_000
CORPORA = {10_000: "grammar_10k_words", 100_000: "grammar_100k_words"}  # number of words: corpus of study softmaxes
RESULTS = Path("studies/softmaxes/results/perplexity.csv")
HEAD = "| words | layer | test perplexity | seconds per step | speed | memory, MiB |\n|---:|---|---:|---:|---:|---:|"
ABOUT = """Perplexity is per word on the test text of study softmaxes (`studies/softmaxes/results/`), with 95 %
bootstrap intervals over documents. In evaluation, the probabilities of all words sum to 1 with each layer. A step is
32 rows of 32 tokens of an LSTM of width 64 with AdamW. The seconds include the optimizer's update of the input and
output tables. Speed is relative to the full softmax in the same run. Memory is the peak of a few steps in a separate
process."""
PAGE = Path(__file__).with_suffix(".md")
ACROSS, DOWN, RADIUS = 340, 220, 5  # width and height of a panel, and radius of a point, in pixels


class Layer(NamedTuple):
    """An output layer: its system in study softmaxes, its class, and a function from number of words to settings."""

    system: str
    kind: Callable[..., CausalLM]
    settings: Callable[[int], Mapping[str, Any]] = lambda words: {}


NOISE = {"samples": SAMPLES, "power": 1.0}
LAYERS = {
    "full softmax": Layer("full", CausalLM),
    "adaptive softmax": Layer(
        "adaptive", AdaptiveSoftmax, lambda words: {"cutoffs": [words // 20, words // 5], "division": 4.0}
    ),
    "sampled softmax": Layer("sampled", SampledSoftmax, lambda words: NOISE),
    "noise-contrastive": Layer(
        "noise_contrastive", NoiseContrastive, lambda words: NOISE | {"learn_normaliser": False}
    ),
    "BlackOut": Layer("blackout", BlackOut, lambda words: NOISE | {"power": 0.4}),
    "hierarchical softmax": Layer("hierarchical", HierarchicalLM),
}


def frequencies(words: int) -> np.ndarray:
    """Return the probability of each word under Zipf's law, (words,)."""
    falling = 1 / np.arange(1, words + 1)
    return falling / falling.sum()


def objective(name: str, words: int) -> CausalLM:
    layer = LAYERS[name]
    torch.manual_seed(1)
    model = LSTM(words, D, 1, 0.0, 0.1)
    made = layer.kind(model, words, tie=False, bias=True, reduction="mean", **layer.settings(words))
    if isinstance(made, CountsWords):
        made.count(TOKENS * frequencies(words))
    return made


def steps(name: str, words: int) -> Iterator[None]:
    made = objective(name, words)
    use_faster_products(made)
    optimizer, state = adamw(made, lr=1e-2, weight_decay=0.0), None
    tokens = np.random.default_rng(1).choice(words, TOKENS, p=frequencies(words)).astype(np.uint32)
    data = CarriedStreams(tokens, BATCH, LENGTH)
    for step in count():
        loss, _, state = made.loss(data.batch(step), state, step)
        state = tuple(part.detach() for part in state)
        loss.backward()
        nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield


def some_steps(name: str, words: int) -> None:
    times(steps(name, words), WARMING)


def peak_mib(name: str, words: int, threads: int) -> float:
    """Measure the peak memory of a few steps, in MiB. Run it in a separate process."""
    return peak_of(partial(some_steps, name, words), threads)


def measured(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one row per number of words and layer.

    A row has the seconds per step, the speed relative to the full softmax, and the peak memory in MiB.
    """
    names = ["full softmax", *(name for name in arguments.systems if name != "full softmax")]
    for words in arguments.words:
        peaks = {}
        for name in names:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                peaks[name] = pool.submit(peak_mib, name, words, arguments.threads).result()
        running = {name: steps(name, words) for name in names}
        seconds: dict[str, list[float]] = {name: times(each, WARMING)[:0] for name, each in running.items()}
        for _ in range(arguments.rounds):
            for name, each in running.items():
                seconds[name] += times(each, arguments.steps)
        medians = {name: statistics.median(times_of) for name, times_of in seconds.items()}
        for name in names:
            ratio = medians[names[0]] / medians[name]
            yield {"words": words, "layer": name, "seconds": medians[name], "ratio": ratio, "mib": peaks[name]}


def perplexities(path: Path) -> dict[tuple[int, str], tuple[float, str]]:
    """Read the test perplexities of study softmaxes: mean and interval, by number of words and layer.

    The result is empty if the study has not run.
    """
    if not path.exists():
        return {}
    frame = pd.read_csv(path)
    frame = frame[(frame["split"] == "test") & (frame["metric"] == "perplexity_word")].set_index(["corpus", "system"])
    return {
        (words, name): (row["mean"], f"{row['mean']:.1f} ({row['ci_low']:.1f}–{row['ci_high']:.1f})")
        for words, corpus in CORPORA.items()
        for name, layer in LAYERS.items()
        if (corpus, layer.system) in frame.index
        for row in [frame.loc[corpus, layer.system]]
    }


def figure(rows: pd.DataFrame) -> Figure:
    """Draw one panel per vocabulary size, with one point per layer: seconds per step and perplexity."""
    panels = []
    for i, (words, part) in enumerate(rows.groupby("words")):
        x = Scale.over("seconds per step, log scale", part["seconds"], is_log=True, margin=0.6)
        y = Scale.over("test perplexity per word, log scale" * (i == 0), part["perplexity"], is_log=True, margin=0.1)
        points = alt.Chart(significant(part.assign(side=sides(part, x, y)))).encode(x.x("seconds"), y.y("perplexity"))
        tooltip = [alt.Tooltip("layer:N"), alt.Tooltip("seconds:Q"), alt.Tooltip("perplexity:Q"), alt.Tooltip("mib:Q")]
        layers = [
            points.mark_circle(color=COLOURS[0], size=60, opacity=1).encode(tooltip=tooltip),
            *(
                points.transform_filter(alt.datum.side == side).mark_text(align=side, dx=dx).encode(text="layer:N")
                for side, dx in (("left", 7), ("right", -7))
            ),
        ]
        panels.append(alt.layer(*layers).properties(title=f"{words:,} words", width=ACROSS, height=DOWN))
    return alt.hconcat(*panels)


def sides(points: pd.DataFrame, x: Scale, y: Scale) -> list[str]:
    """Return how the name of each point is aligned: "left", or "right" if the name would cover another point."""
    across, down = x.pixels(points["seconds"], ACROSS), y.pixels(points["perplexity"], DOWN)
    ends = across + points["layer"].map(text_width).to_numpy()
    return [
        "right" if ((across > at) & (across < end) & (abs(down - height) < LINE / 2 + RADIUS)).any() else "left"
        for at, end, height in zip(across, ends, down, strict=True)
    ]


def main() -> None:
    parser = command_line(__doc__, [*LAYERS], rounds=5)
    parser.add_argument("--steps", type=at_least_one, default=4, help="steps of each layer per round")
    parser.add_argument("--words", type=at_least_one, nargs="+", default=[*CORPORA], help="sizes of the vocabulary")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    _keep_freed_memory()
    published, rows = perplexities(RESULTS), []
    print(HEAD, flush=True)
    lines = []
    for row in measured(arguments):
        value, text = published.get((row["words"], row["layer"]), (np.nan, ""))
        rows.append(row | {"perplexity": value})
        cost = f"{row['seconds']:.3f} | {row['ratio']:.2f} | {row['mib']:,.0f}"
        lines.append(f"| {row['words']:,} | {row['layer']} | {text} | {cost} |")
        print(lines[-1], flush=True)
    command = " ".join(["python -m benchmarks.softmaxes", *sys.argv[1:]])
    made = f"`{command}`, {datetime.date.today()}, on\n{machine(arguments.threads)}; torch {torch.__version__}."
    page = ["# Output layers for large vocabularies", made, "\n".join([HEAD, *lines]), ABOUT]
    if published:
        write_figure(figure(pd.DataFrame(rows)), PAGE.with_suffix(".svg"))
        page.append(f"![Perplexity and seconds per step of each layer]({PAGE.stem}.svg)")
    PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
