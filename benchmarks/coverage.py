"""Measure how often intervals contain the truth: python -m benchmarks.coverage [--experiments N] [--output FILE]

Simulates experiments with a known true value and counts how many of the 95 % intervals in reports contain the true
value. Writes benchmarks/coverage.md.
"""

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retable.metrics.comparison import compare
from retable.metrics.intervals import bootstrap, percentile_interval
from retable.metrics.likelihood import perplexity
from retable.metrics.units import Sums, mean, neighbours, share

PAGE = Path(__file__).with_suffix(".md")
UNITS = (20, 100, 1000)
SEEDS = (3, 5, 10)
RIGHT = 0.8  # the true accuracy
LENGTH = 20  # lines of a passage; they are equally difficult, apart from noise

Draw = Callable[[np.random.Generator, int], Sums]


def accuracy(generator: np.random.Generator, n: int) -> Sums:
    return mean(generator.random(n) < RIGHT, ())


def perplexity_of_documents(generator: np.random.Generator, n: int) -> Sums:
    """Draw documents of 5 to 60 words; their nats per word have mean 4 and standard deviation 0.5."""
    words = generator.integers(5, 61, n)
    nats = words * generator.normal(4, 0.5, n)
    return Sums(np.stack([nats, words], axis=1), lambda sums: perplexity(sums[..., 0], sums[..., 1]), ())


def lines(generator: np.random.Generator, n: int) -> Sums:
    """Draw the nats of lines of ten words, in passages of LENGTH lines.

    The variance between passages equals the variance between the lines of a passage.
    """
    passages = np.repeat(generator.normal(0, 0.5, n // LENGTH + 2), LENGTH)[generator.integers(LENGTH) :][:n]
    nats = 10 * (4 + passages + generator.normal(0, 0.5, n))
    return Sums(np.stack([nats, np.full(n, 10.0)], axis=1), share, ())


def lines_in_blocks(generator: np.random.Generator, n: int) -> Sums:
    return lines(generator, n)._replace(blocks=neighbours(n))


MEANS: dict[str, tuple[Draw, float]] = {
    "accuracy of examples": (accuracy, RIGHT),
    "perplexity of documents": (perplexity_of_documents, np.exp(4)),
    "lines of passages, each line a unit": (lines, 4.0),
    "lines of passages, ⌈√n⌉ blocks as units": (lines_in_blocks, 4.0),
}


def of_mean(draw: Draw, truth: float, n: int, experiments: int, expanded: bool) -> float:
    """Return the share of experiments in which the interval of a mean contains the true mean."""
    generator, held = np.random.default_rng(n), 0
    for number in range(experiments):
        sums = draw(generator, n)
        units = sums.of_blocks
        replicates = bootstrap(units[None], sums.statistic, seed=number)
        low, high = percentile_interval(replicates, **({"n": len(units)} if expanded else {}))
        held += low <= truth <= high
    return held / experiments


def runs(generator: np.random.Generator, seeds: int, units: NDArray[np.float64]) -> list[Sums]:
    """Draw the scores of a system, for each seed and unit.

    A score is the sum of the unit's effect on all systems (`units`), its effect on this system, the seed's effect, and
    noise.
    """
    n = len(units)
    own = units + generator.normal(0, 0.3, n)
    drawn = own + generator.normal(0, 0.05, (seeds, 1)) + generator.normal(0, 0.3, (seeds, n))
    return [mean(each, ()) for each in drawn]


def of_difference(seeds: int, n: int, experiments: int) -> tuple[float, float]:
    """Return the shares of experiments in which intervals for two equal systems contain 0.

    The first share is of intervals over seeds and units, the second of intervals over units only.
    """
    generator, held, held_by_units = np.random.default_rng(seeds * n), 0, 0
    for number in range(experiments):
        units = generator.normal(0, 1, n)
        both = [runs(generator, seeds, units) for _ in range(2)]
        own, others = ([run.value() for run in each] for each in both)
        comparison = compare(own, others, "highest", *both)
        held += comparison.low <= 0 <= comparison.high
        replicates = [bootstrap([run.sums for run in each], share, seed=number) for each in both]
        low, high = percentile_interval(replicates[0] - replicates[1])
        held_by_units += low <= 0 <= high
    return held / experiments, held_by_units / experiments


def page(experiments: int) -> str:
    """Return the page with both tables."""
    rows = [
        f"| {name} | {n:,} | {100 * of_mean(*case, n, experiments, False):.1f} | "
        f"{100 * of_mean(*case, n, experiments, True):.1f} |"
        for name, case in MEANS.items()
        for n in UNITS
        if n > 20 or case[0] is not lines_in_blocks
    ]
    compared = []
    for seeds in SEEDS:
        for n in UNITS:
            held, by_units = of_difference(seeds, n, experiments)
            compared.append(f"| {seeds} | {n:,} | {100 * by_units:.1f} | {100 * held:.1f} |")
    error = 100 * 1.96 * np.sqrt(0.05 * 0.95 / experiments)
    return f"""# How often confidence intervals contain the true value

`python -m benchmarks.coverage`, {datetime.date.today()}. The numbers are the same on every machine.

Each row has {experiments:,} experiments, which draw data with a known true value. Intervals are nominally 95 %
intervals: if they are right, 95 % ± {error:.1f} of them contain the true value.

## Intervals of a mean, over the choice of test units

The table compares the percentile bootstrap with the interval of reports, which is wider if there are few units
(Hesterberg 2015). Passages of {LENGTH} lines share half of the variance of their lines.

| units | n | percentile bootstrap, % | interval of reports, % |
|---|---:|---:|---:|
{chr(10).join(rows)}

## Intervals of a difference, over the choice of seeds and test units

Two systems are equally good, so the true difference is 0. A score is a sum of four random effects: of the unit for
both systems (standard deviation 1), of the unit for one system (0.3), of the seed (0.05), and noise (0.3). The table
compares `retable compare` with a paired bootstrap over units, which ignores the choice of seeds.

| seeds per system | units | bootstrap over units, % | `retable compare`, % |
|---:|---:|---:|---:|
{chr(10).join(compared)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=PAGE)
    arguments = parser.parse_args()
    arguments.output.write_text(page(arguments.experiments), encoding="utf-8")


if __name__ == "__main__":
    main()
