"""Tables of the diagnostic benchmarks, and of the time and memory of layers."""

import math
from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.metrics.intervals import bootstrap, mean_std, paired_test, percentile_interval
from retable.reporting.fields import BOLD, SIGNIFICANT, SPREAD, system_value
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.names import display_name
from retable.reporting.results import Result, Systems, by_corpus

PHENOMENA = ("local", "agreement", "nesting", "repetition", "total")
THEORY = {
    "recurrent": "n d²",
    "convolutional": "k n d²",
    "self-attentive": "n² d + n d²",
    "self-attentive with scores kept": "n² d + n d²",
}


def phenomena_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return the tables of excess loss by phenomenon, one per corpus, with their rows."""
    return [phenomena_table(corpus, systems) for corpus, systems in by_corpus(results, "phenomena")]


def phenomena_table(corpus: str, systems: Systems) -> tuple[Table, pd.DataFrame]:
    """Return the table of excess loss by phenomenon on one corpus, in nats per token, and its rows.

    The table has a row per system, from the highest to the lowest total excess. The last two rows contain the entropy
    of the true distribution, in nats per token, and each phenomenon's share of the tokens, in percent.

    Args:
        corpus: name of the corpus, for the title and the table's name.
        systems: the systems' results on this corpus.

    Returns: the table, and the rows of `phenomena_frame` with an additional column `corpus`.
    """
    frame = phenomena_frame(systems).assign(corpus=corpus)
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column(title, name) for name in PHENOMENA for title in ("excess", "95 % interval")]
    rows = {}
    for system, part in frame.groupby("system"):
        cells = {cell["phenomenon"]: cell for _, cell in part.iterrows()}
        values = [value for name in PHENOMENA for value in _excess_values(cells.get(name))]
        rows[system] = Row([system_value(str(system)), Value(str(len(systems[str(system)]))), *values])
    order = frame[frame["phenomenon"] == "total"].sort_values("mean", ascending=False)["system"]
    facts = frame.drop_duplicates("phenomenon").set_index("phenomenon")

    def fact(label: str, column: str, scale: float, digits: int, apart: bool) -> Row:
        numbers = [facts[column].get(name, math.nan) * scale for name in PHENOMENA]
        texts = ["" if math.isnan(value) else f"{value:.{digits}f}" for value in numbers]
        return Row([Value(label), Value(""), *(Value(text) for each in texts for text in (each, ""))], apart)

    oracle = [fact("entropy (oracle)", "entropy", 1, 3, apart=True), fact("tokens, %", "share", 100, 1, apart=False)]
    notes = [
        "Loss above the true distribution, in nats per token, by the context that determines a token: neighbouring "
        "words, agreement in number, gender or tense, nesting, or repetition. The interval is a bootstrap over the "
        "test documents.",
        "A token's phenomenon is known only once the token is known, so a mean can be negative. For example, a model "
        "that expects too many repetitions scores well on repeated words and worse on others.",
        SPREAD,
        BOLD,
    ]
    title = f"Excess over the entropy by phenomenon, {corpus}"
    panels = {corpus: [*(rows[system] for system in order), *oracle]}
    lead = tuple(f"{name} excess" for name in reversed(PHENOMENA))
    return Table(f"phenomena-{corpus}", title, columns, panels, notes, lead=lead), frame


def _excess_values(cell: pd.Series | None) -> list[Value]:
    if cell is None or math.isnan(cell["mean"]):  # no test token belongs to the phenomenon
        return [Value(""), Value("")]
    runs = tuple(cell["runs"].split(" "))
    spread = "" if math.isnan(cell["std"]) else f"{cell['std']:.3f}"
    excess = Value(f"{cell['mean']:.3f}", spread, bold=cell["p_best"] >= SIGNIFICANT, runs=runs, hint=", ".join(runs))
    return [excess, Value(f"{cell['ci_low']:.3f} to {cell['ci_high']:.3f}")]


def phenomena_frame(systems: Systems) -> pd.DataFrame:
    """Return the excess loss over the true distribution, a row per system and phenomenon.

    `mean` and `std` describe the excess over seeds, in nats per token. `ci_low` and `ci_high` bound the 95 % interval
    of the mean. For `p_best` see `retable.reporting.results.aggregate`. `entropy` is the loss of the true distribution,
    in nats per token, and `share` is the phenomenon's share of the tokens.
    """
    rows = []
    for name in PHENOMENA:
        sums = {
            system: np.stack([_unit_sums(run.tables["phenomena"], name) for run in runs])
            for system, runs in systems.items()
        }
        means = {system: mean_std(_excess(units.sum(axis=1))) for system, units in sums.items()}
        replicates = {system: bootstrap(units, _excess) for system, units in sums.items()}
        best = min(means, key=lambda system: means[system][0])
        for system, runs in systems.items():
            own = replicates[system]
            # the excess is undefined in a resample without tokens of the phenomenon
            own = own[np.isfinite(own)] if np.isfinite(own).any() else own
            (mean, std), (low, high) = means[system], percentile_interval(own, n=sums[system].shape[1])
            p = paired_test(means[best][0] - mean, replicates[best] - replicates[system])
            n_tokens, _, true_nats = sums[system][0].sum(axis=0)
            facts = true_nats / n_tokens if n_tokens else math.nan, n_tokens, " ".join(run.name for run in runs)
            rows.append((system, name, mean, std, len(runs), low, high, p, *facts))
    columns = ["system", "phenomenon", "mean", "std", "n", "ci_low", "ci_high", "p_best", "entropy", "share", "runs"]
    frame = pd.DataFrame(rows, columns=columns)
    totals = frame[frame["phenomenon"] == "total"].set_index("system")["share"]
    return frame.assign(share=frame["share"] / frame["system"].map(totals))


def _excess(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the excess nats per token, (…); NaN if there are no tokens.

    sums: number of tokens, nats of a system, and nats of the true distribution, (…, 3).
    """
    with np.errstate(invalid="ignore"):
        return (sums[..., 1] - sums[..., 2]) / sums[..., 0]


def _unit_sums(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Return sums of tokens, nats, and nats of the true distribution for each document, (documents, 3).

    name: a phenomenon, or `total` for all tokens.
    """
    kept = table if name == "total" else table[table["phenomenon"] == name]
    sums = kept.groupby("unit")[["tokens", "nats", "true_nats"]].sum()
    return sums.reindex(range(table["unit"].max() + 1), fill_value=0).to_numpy(np.float64)


def gradients_rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return gradient measurements, as means over seeds: a row per corpus and system.

    Rows are sorted from the fastest to the slowest gradient decay.
    """
    names = ("factor", "r2", "reach", "norm_median", "norm_90", "norm_max", "clipped")
    rows = []
    for corpus, systems in by_corpus(results, "gradients"):
        for system, runs in systems.items():
            means = {name: np.mean([run.metrics[f"gradients/{name}"] for run in runs]) for name in names}
            std = mean_std([run.metrics["gradients/factor"] for run in runs])[1]
            facts = {"factor_std": std, "n": len(runs), "runs": " ".join(run.name for run in runs), "corpus": corpus}
            half_life = math.log(0.5) / math.log(means["factor"]) if means["factor"] < 1 else math.inf
            rows.append({"system": system} | means | facts | {"_half_life": half_life})
    return pd.DataFrame(rows).sort_values(["corpus", "factor"]) if rows else pd.DataFrame()


def sampling_rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per corpus, system and sampling setting.

    The held-out text of a corpus is shown once.
    """
    frames = [sampling_frame(systems).assign(corpus=corpus) for corpus, systems in by_corpus(results, "sampling")]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames)
    is_text = frame["method"] == "text"
    is_first = is_text & ~frame[["corpus", "method"]].duplicated()
    panel = frame["system"].map(display_name).mask(is_text).mask(is_first, "true distribution (oracle)")
    return frame.assign(_panel=panel, _method=frame["method"].mask(is_text, "held-out text"))


def sampling_frame(systems: Systems) -> pd.DataFrame:
    """Average the rows of `sampling.csv` over the seeds of each system."""
    parts = [run.tables["sampling"].assign(system=system) for system, runs in systems.items() for run in runs]
    frame = pd.concat(parts).fillna({"value": ""})  # the held-out text has no sampling setting
    return frame.groupby(["system", "method", "value"], sort=False, as_index=False).mean()


def scaling_rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per device, layer and varied size, with its cost in theory and the measured exponents."""
    costs = ("operations", "seconds", "seconds_low", "seconds_high", "bytes")
    return pd.DataFrame(
        {"device": result.run["system"], "layer": layer, "varied": varied}
        | {name: result.metrics[f"{layer}/{varied}/{name}"] for name in costs}
        | {"runs": result.name, "_theory": THEORY[layer]}
        for result in results
        if "scaling" in result.tables
        for layer, varied in product(THEORY, ("length", "width"))
    )
