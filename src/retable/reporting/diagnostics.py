"""What systems can and can't learn: tables of the diagnostic benchmarks, and of the layers' costs."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.metrics.intervals import bootstrap, mean_std, paired_test, percentile_interval
from retable.reporting.fields import BOLD, SIGNIFICANT, SPREAD
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

PHENOMENA = ("local", "agreement", "nesting", "repetition", "total")
THEORY = {
    "recurrent": "n d²",
    "convolutional": "k n d²",
    "self-attentive": "n² d + n d²",
    "self-attentive with scores kept": "n² d + n d²",
}
Systems = dict[str, list[Result]]  # the runs of each system, by seed


def diagnostic_tables(results: Iterable[Result]) -> Iterator[tuple[Table, pd.DataFrame]]:
    """Each table that the results have something for, with the rows that it is made of."""
    results = list(results)
    for kind, make in (("phenomena", phenomena_table), ("gradients", gradients_table), ("sampling", sampling_table)):
        for corpus, systems in by_corpus(results, kind):
            yield make(corpus, systems)
    if measured := [result for result in results if "scaling" in result.diagnostics]:
        yield scaling_table(measured)


def by_corpus(results: list[Result], kind: str) -> Iterator[tuple[str, Systems]]:
    """The corpora that any result has a table of this kind for, and their systems with the runs that have."""
    found: dict[str, Systems] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: (result.run["system"], result.run["seed"] or 0, result.name)):
        if kind in result.diagnostics:
            found[result.run["corpus"]][result.run["system"]].append(result)
    yield from sorted(found.items())


def phenomena_table(corpus: str, systems: Systems) -> tuple[Table, pd.DataFrame]:
    """A row a system, from the worst to the best; below them what the true distribution itself takes."""
    frame = phenomena_frame(systems).assign(corpus=corpus)
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column(title, name) for name in PHENOMENA for title in ("excess", "95 % interval")]
    rows = {}
    for system, part in frame.groupby("system"):
        cells = {cell["phenomenon"]: cell for _, cell in part.iterrows()}
        values = [value for name in PHENOMENA for value in _excess_values(cells.get(name))]
        rows[system] = Row([Value(str(system)), Value(str(len(systems[str(system)]))), *values])
    order = frame[frame["phenomenon"] == "total"].sort_values("mean", ascending=False)["system"]
    facts = frame.drop_duplicates("phenomenon").set_index("phenomenon")

    def fact(label: str, column: str, scale: float, digits: int, apart: bool) -> Row:
        found = [facts[column].get(name, math.nan) * scale for name in PHENOMENA]
        texts = ["" if math.isnan(value) else f"{value:.{digits}f}" for value in found]
        return Row([Value(label), Value(""), *(Value(text) for each in texts for text in (each, ""))], apart)

    oracle = [fact("entropy (oracle)", "entropy", 1, 3, apart=True), fact("tokens, %", "share", 100, 1, apart=False)]
    notes = [
        "Nats a token above those of the true distribution, by what decides a token: the words beside it, an agreement "
        "in number, gender or tense, what is still open, or an earlier mention. The interval is a bootstrap over the "
        "test documents.",
        "What decides a token shows only with the token, so a mean can be below 0: a model that expects too many "
        "repetitions does well on those that come, and pays on the words that come instead.",
        SPREAD,
        BOLD,
    ]
    title = f"Excess over the entropy by phenomenon, {corpus}"
    panels = {corpus: [*(rows[system] for system in order), *oracle]}
    return Table(f"phenomena-{corpus}", title, columns, panels, notes), frame


def _excess_values(cell: pd.Series | None) -> list[Value]:
    if cell is None or math.isnan(cell["mean"]):  # no token was of it
        return [Value(""), Value("")]
    runs = tuple(cell["runs"].split(" "))
    spread = "" if math.isnan(cell["std"]) else f"{cell['std']:.3f}"
    excess = Value(f"{cell['mean']:.3f}", spread, bold=cell["p_best"] >= SIGNIFICANT, runs=runs, hint=", ".join(runs))
    return [excess, Value(f"{cell['ci_low']:.3f} to {cell['ci_high']:.3f}")]


def phenomena_frame(systems: Systems) -> pd.DataFrame:
    """A row a system and phenomenon: mean and std of the excess over seeds, the mean's 95 % interval, p_best (see
    `retable.reporting.results.aggregate`), entropy, share, runs."""
    rows = []
    for name in PHENOMENA:
        sums = {
            system: np.stack([_unit_sums(run.diagnostics["phenomena"], name) for run in runs])
            for system, runs in systems.items()
        }
        means = {system: mean_std(_excess(units.sum(axis=1))) for system, units in sums.items()}
        replicates = {system: bootstrap(units, _excess) for system, units in sums.items()}
        best = min(means, key=lambda system: means[system][0])
        for system, runs in systems.items():
            own = replicates[system]
            own = own[np.isfinite(own)] if np.isfinite(own).any() else own  # of samples that have a token of it
            (mean, std), (low, high) = means[system], percentile_interval(own)
            p = paired_test(means[best][0] - mean, replicates[best] - replicates[system])
            n_tokens, _, true_nats = sums[system][0].sum(axis=0)
            facts = true_nats / n_tokens if n_tokens else math.nan, n_tokens, " ".join(run.name for run in runs)
            rows.append((system, name, mean, std, len(runs), low, high, p, *facts))
    columns = ["system", "phenomenon", "mean", "std", "n", "ci_low", "ci_high", "p_best", "entropy", "share", "runs"]
    frame = pd.DataFrame(rows, columns=columns)
    totals = frame[frame["phenomenon"] == "total"].set_index("system")["share"]
    return frame.assign(share=frame["share"] / frame["system"].map(totals))


def _excess(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """(…, 3) sums of tokens, nats and true nats to (…), NaN without tokens."""
    with np.errstate(invalid="ignore"):
        return (sums[..., 1] - sums[..., 2]) / sums[..., 0]


def _unit_sums(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """(units, 3): tokens, nats and true nats of each document, of one phenomenon or of the total."""
    kept = table if name == "total" else table[table["phenomenon"] == name]
    sums = kept.groupby("unit")[["tokens", "nats", "true_nats"]].sum()
    return sums.reindex(range(table["unit"].max() + 1), fill_value=0).to_numpy(np.float64)


def gradients_table(corpus: str, systems: Systems) -> tuple[Table, pd.DataFrame]:
    """A row a system, from the gradient that fades soonest to the one that lasts; means over seeds."""
    names = ("factor", "r2", "reach", "norm_median", "norm_90", "norm_max", "clipped")
    frame = pd.DataFrame(
        {
            "system": system,
            **{name: np.mean([run.metrics[f"gradients/{name}"] for run in runs]) for name in names},
            "factor_std": mean_std([run.metrics["gradients/factor"] for run in runs])[1],
            "n": len(runs),
            "runs": " ".join(run.name for run in runs),
        }
        for system, runs in systems.items()
    )
    frame = frame.sort_values("factor").assign(corpus=corpus)
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column(title, "Gradient by distance") for title in ("a step, ×", "half-life", "r²", "words")]
    columns += [Column(title, "Norm of a batch") for title in ("median", "90 %", "largest", "too long, %")]
    rows = []
    for _, cell in frame.iterrows():
        spread = "" if math.isnan(cell["factor_std"]) else f"{cell['factor_std']:.3f}"
        factor = Value(f"{cell['factor']:.3f}", spread, runs=tuple(cell["runs"].split(" ")))
        half_life = math.log(0.5) / math.log(cell["factor"]) if cell["factor"] < 1 else math.inf
        texts = [f"{half_life:.1f}", f"{cell['r2']:.3f}", f"{cell['reach']:.0f}"]
        texts += [f"{cell[name]:.3g}" for name in ("norm_median", "norm_90", "norm_max")]
        texts.append(f"{100 * cell['clipped']:.0f}")
        rows.append(Row([Value(cell["system"]), Value(str(cell["n"])), factor, *map(Value, texts)]))
    notes = [
        "The norm of the loss's gradient by the embedding of the token k before it changes by a factor a step, from a "
        "line through its logarithm; r² is the share that the line explains, the half-life in steps. It reaches so "
        "many words, of those that were looked at: of a convolution its receptive field.",
        "Norm of a batch: of the whole gradient of the trained weights, on batches of the training text. Too long are "
        "those that clipping would shorten, at the norm that the benchmark asks about; whether the recipe clips its "
        "gradients is another matter.",
        SPREAD,
    ]
    return Table(f"gradients-{corpus}", f"Gradients, {corpus}", columns, {corpus: rows}, notes), frame


def sampling_table(corpus: str, systems: Systems) -> tuple[Table, pd.DataFrame]:
    """A panel a system with a row a setting; first the held-out text."""
    frame = sampling_frame(systems).assign(corpus=corpus)
    columns = [Column("Setting", numeric=False), Column("grammatical, %"), Column("nats/token"), Column("self-BLEU")]
    columns += [Column(title) for title in ("distinct-1", "distinct-2", "distinct-3", "repetition, %", "Zipf")]

    def row(cell: pd.Series) -> Row:
        label = "held-out text" if cell["method"] == "text" else f"{cell['method']} {cell['value']}"
        texts = [f"{100 * cell['grammatical']:.1f}", f"{cell['nats']:.2f}", f"{cell['self_bleu']:.1f}"]
        texts += [f"{cell[f'distinct_{n}']:.3f}" for n in (1, 2, 3)]
        texts += [f"{100 * cell['repetition']:.1f}", f"{cell['zipf']:.2f}"]
        return Row([Value(label), *(Value(text.replace("nan", "")) for text in texts)])

    panels = {"true distribution (oracle)": [row(frame[frame["method"] == "text"].iloc[0])]}
    for system, part in frame[frame["method"] != "text"].groupby("system"):
        panels[str(system)] = [row(cell) for _, cell in part.iterrows()]
    notes = [
        "Texts drawn at a temperature, or from the nucleus of a share top_p. The grammar judges whole sentences; nats "
        "are its own, a token of those that it has. Self-BLEU is the mean BLEU-4 of a text with the others as its "
        "references, and the lower it is, the more varied they are; repetition is of 4-grams within a text.",
    ]
    title = f"Quality and diversity of samples, {corpus}"
    return Table(f"sampling-{corpus}", title, columns, panels, notes, panel="System"), frame


def sampling_frame(systems: Systems) -> pd.DataFrame:
    """The rows of `sampling.csv`, the mean over seeds, and the system that each is of."""
    parts = [run.diagnostics["sampling"].assign(system=system) for system, runs in systems.items() for run in runs]
    frame = pd.concat(parts).fillna({"value": ""})  # the held-out text was drawn at none
    return frame.groupby(["system", "method", "value"], sort=False, as_index=False).mean()


def scaling_table(results: list[Result]) -> tuple[Table, pd.DataFrame]:
    """A panel a device, a row a layer and what was varied: exponents in theory and as measured."""
    columns = [Column("Layer", numeric=False), Column("Varied", numeric=False), Column("Operations", numeric=False)]
    columns += [Column("counted", "Exponent"), Column("time", "Exponent"), Column("95 % interval", "Exponent")]
    columns += [Column("memory", "Exponent")]
    panels, parts = {}, []
    for result in results:
        device, rows = result.run["system"], list[Row]()
        for layer, varied in product(THEORY, ("length", "width")):
            cell = {
                name: result.metrics[f"{layer}/{varied}/{name}"]
                for name in ("operations", "seconds", "seconds_low", "seconds_high", "bytes")
            }
            texts = [layer, {"length": "length n", "width": "width d"}[varied], THEORY[layer]]
            texts += [f"{cell['operations']:.2f}"]
            interval = f"{cell['seconds_low']:.2f} to {cell['seconds_high']:.2f}"
            time = Value(f"{cell['seconds']:.2f}", runs=(result.name,))
            values = [*map(Value, texts), time, Value(interval), Value(f"{cell['bytes']:.2f}")]
            rows.append(Row(values, apart=varied == "length" and bool(rows)))
            parts.append({"device": device, "layer": layer, "varied": varied, **cell, "runs": result.name})
        panels[device] = rows
    notes = [
        "The slope of a line through the logarithms of size and cost. Counted: that of the operations on the same "
        "sizes, for a sum of two powers has none of its own. Time is of a forward and a backward pass, memory what the "
        "forward pass keeps for the backward pass.",
    ]
    return Table("scaling", "Time and memory of layers", columns, panels, notes, panel="Device"), pd.DataFrame(parts)
