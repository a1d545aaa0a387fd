"""Scaling laws: held-out loss by model size, amount of training text, and training FLOPs.

A study may select systems by a pattern under `scaling_laws`, in which `*` matches any text:

    scaling_laws: gpt_*

A law is fitted to the models of each corpus. Models with the same `budget` and different sizes form an isoFLOP curve.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isnan, log, nan
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import yaml

from retable.core.errors import UsageError
from retable.metrics.regression import Line, fit_power
from retable.metrics.scaling_laws import (
    FEWEST,
    HOFFMANN,
    NUMBERS,
    Law,
    Parabola,
    fit_law,
    fit_parabola,
    law_interval,
    resampled_laws,
)
from retable.reporting.ablations import interval_text
from retable.reporting.figures import INK, WIDTH, Figure, titled
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, round_ticks, significant
from retable.reporting.results import ORACLE, Result

COLUMNS = ["system", "corpus", "seed", "budget", "N", "D", "C", "loss", "entropy", "alone", "runs"]
KNOWN = {"entropy": "test/perplexity_word", "alone": "test/perplexity_word_alone"}  # Metrics of the oracle.
BLUES = "#7fb9dd", "#003a5c"  # The lightest and the darkest colour of a scale.
# From Hoffmann et al. 2022: the law of equation 10, and the `decay` γ that follows from it; from table 2, the exponents
# of approach 3 (`exponent`) and of approach 2 (`isoflop`).
PUBLISHED = {**HOFFMANN._asdict(), "decay": 0.154, "exponent": 0.46, "isoflop": 0.49}


def scaling_points(systems: str, pretrained: Sequence[Result], values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model: size N, training tokens D, FLOPs C, and test loss (COLUMNS).

    Losses are in nats per word. `entropy` and `alone` are the losses of the true distribution given all earlier
    sentences, or only the current sentence; they are NaN if unknown.

    Args:
        systems: a pattern of system names.
        pretrained: results of the `pretrain` stage.
        values: a frame from `results.tidy`.

    Raises: UsageError: the pattern matches too few measured systems, sizes or amounts of text.
    """
    tests = values[(values["task"] == "") & (values["split"] == "test") & (values["metric"] == "perplexity_word")]
    measured = tests.set_index(["system", "corpus", "seed"])[["value", "result"]]
    oracles = tests[tests["system"] == ORACLE].drop_duplicates("corpus").set_index("corpus")["result"]
    rows = []
    for result in pretrained:
        run, metrics = result.run, result.metrics
        key = run["system"], run["corpus"], run["seed"]
        if not fnmatchcase(run["system"], systems) or key not in measured.index or "flops" not in metrics:
            continue
        budget = yaml.load(result.config, yaml.CSafeLoader).get("budget")
        known = oracles[run["corpus"]].metrics if run["corpus"] in oracles else {}
        facts = dict(zip(COLUMNS, (*key, "" if budget is None else str(budget)), strict=False))
        facts |= {"N": round(metrics["flops"] / metrics["tokens"] / 6), "D": metrics["tokens"], "C": metrics["flops"]}
        facts |= {"loss": log(measured.loc[key, "value"]), "runs": measured.loc[key, "result"].name}
        facts |= {name: log(known[metric]) if metric in known else nan for name, metric in KNOWN.items()}
        rows.append(facts)
    frame = pd.DataFrame(rows, columns=COLUMNS).sort_values(["corpus", "C", "N"], ignore_index=True)
    fewest = frame.groupby("corpus").size().min() if rows else 0
    if fewest < len(Law._fields):
        raise UsageError(
            f"scaling_laws: {systems} matches {fewest} models of one corpus with a test perplexity; a law "
            f"needs {len(Law._fields)} or more: write a pattern with more systems, or measure their perplexity"
        )
    for name, of in {"N": "sizes", "D": "amounts of text"}.items():
        if (fewest := frame.groupby("corpus")[name].nunique().min()) < FEWEST:
            raise UsageError(
                f"scaling_laws: {systems} has {fewest} {of}; a law needs {FEWEST} or more: train further models"
            )
    return frame


@dataclass(frozen=True)
class Fitted:
    """The models of one corpus, with the law and the parabolas that are fitted to them."""

    points: pd.DataFrame
    law: Law
    laws: list[Law]  # Laws fitted to bootstrap resamples.
    parabolas: Mapping[str, Parabola]  # Parabolas by budget.

    @property
    def vertices(self) -> dict[str, float]:
        """The size with the lowest loss, for each budget whose parabola has its vertex within the trained sizes."""
        return {budget: curve.size for budget, curve in self.parabolas.items() if not isnan(curve.size)}

    @property
    def isoflop(self) -> Line | None:
        """The power law by which the best size grows with FLOPs; None if there are fewer than three vertices."""
        sizes, operations = self.vertices, self.points.groupby("budget")["C"].mean()
        return fit_power([operations[budget] for budget in sizes], [*sizes.values()]) if len(sizes) >= 3 else None


def fitted(points: pd.DataFrame, resamples: int = 200) -> dict[str, Fitted]:
    """Fit the law and the parabolas of each corpus to the rows of `scaling_points`.

    resamples: number of bootstrap resamples for the intervals.
    """
    by_corpus = {}
    for corpus, part in points.groupby("corpus"):
        law = fit_law(part["N"], part["D"], part["loss"])
        budgets = part[part["budget"] != ""].groupby("budget", sort=False)
        curves = {str(name): fit_parabola(own["N"], own["loss"]) for name, own in budgets if own["N"].nunique() >= 3}
        laws = resampled_laws(part["N"], part["D"], part["loss"], law, resamples)
        by_corpus[str(corpus)] = Fitted(part, law, laws, curves)
    return by_corpus


def laws_rows(fits: Mapping[str, Fitted]) -> pd.DataFrame:
    """Return one row per corpus and parameter of its law."""
    return pd.DataFrame([row for corpus, each in fits.items() for row in _numbers(corpus, each)])


def _numbers(corpus: str, fit: Fitted) -> Iterator[dict[str, Any]]:
    known, findings = fit.points[[*KNOWN]].iloc[0], "\n".join(_findings(corpus, fit))
    for name in NUMBERS:
        low, high = law_interval(fit.laws, name)
        row = {"corpus": corpus, "number": name, "fitted": getattr(fit.law, name), "ci_low": low, "ci_high": high}
        if name == "E":
            row |= known.to_dict()
        yield row | {"published": PUBLISHED[name], "_digits": 1 if name in "AB" else 3, "_notes": findings}
    if (line := fit.isoflop) is not None:
        row = {"corpus": corpus, "number": "isoflop", "fitted": line.slope, "ci_low": line.low, "ci_high": line.high}
        yield row | {"published": PUBLISHED["isoflop"], "_digits": 3, "_notes": findings}


def _findings(corpus: str, fit: Fitted) -> Iterator[str]:
    """Yield one sentence on E and the known entropy, and one on the parabolas' vertices."""
    entropy, alone = fit.points[[*KNOWN]].iloc[0]
    low, high = law_interval(fit.laws, "E")
    if isnan(entropy):
        yield f"{corpus}: the language's entropy is unknown."
    else:
        overlaps = "overlaps" if low <= alone and high >= entropy else "misses"
        known = f"{entropy:.3f} to {alone:.3f}"
        yield f"{corpus}: the interval of E, {interval_text(low, high, 3)}, {overlaps} the known entropy, {known}."
    if fit.parabolas:
        counts = f"{len(fit.vertices)} of {len(fit.parabolas)}"
        yield f"{corpus}: {counts} parabolas have their minimum within the trained sizes."


def models_rows(fits: Mapping[str, Fitted]) -> pd.DataFrame:
    """Return one row per model, with the loss that the law of its corpus predicts."""
    return pd.concat(map(_models, fits.values()), ignore_index=True) if fits else pd.DataFrame()


def _models(fit: Fitted) -> pd.DataFrame:
    """Return a row per model with the law's prediction, sorted by budget, size and seed.

    Models are not sorted by C, because models of one budget differ in C by less than one training step.
    """
    points = fit.points
    law = fit.law.loss(points["N"], points["D"])
    budgets = points.groupby("budget")["C"].transform("mean").where(points["budget"] != "", points["C"])
    models = points.assign(law=law, difference=points["loss"] - law, order=budgets)
    return models.sort_values(["order", "N", "seed"], ignore_index=True).drop(columns="order")


def isoflop_figures(fits: Mapping[str, Fitted]) -> dict[str, Figure]:
    """Return a figure per corpus of loss by size, with a parabola per budget and a dashed line for the entropy."""
    return {corpus: _isoflops(corpus, each) for corpus, each in fits.items() if each.parabolas}


def _isoflops(corpus: str, fit: Fitted) -> Figure:
    parts, colour_of = [], {}
    budgets = fit.points.groupby("budget")["C"].mean().loc[[*fit.parabolas]].sort_values().index
    for budget, colour in zip(budgets, _blues(len(budgets)), strict=True):
        curve, name = fit.parabolas[budget], budget.replace("flops", " FLOPs")
        colour_of[name] = colour
        own = fit.points[fit.points["budget"] == budget]
        sizes = np.geomspace(own["N"].min(), own["N"].max(), 40)
        parts.append(pd.DataFrame({"x": sizes, "y": curve.curve(np.log(sizes)), "variant": "parabola"}))
        parts.append(pd.DataFrame({"x": own["N"], "y": own["loss"], "variant": "model"}))
        parts.append(pd.DataFrame({"x": [curve.size], "y": [curve.loss], "variant": "vertex"}).dropna())
        parts[-3:] = [part.assign(system=name) for part in parts[-3:]]
    frame = pd.concat(parts, ignore_index=True)
    entropy = fit.points["entropy"].iloc[0]
    bounds = [] if isnan(entropy) else [("True distribution", entropy)]
    looks = {
        "parabola": Look(),
        "model": Look(None, is_marked=True),
        "vertex": Look(None, is_marked=True, shape="diamond"),
    }
    x = Scale.over("weights per token, log scale", frame["x"], is_log=True)
    y = Scale.over("test loss, nats per word", frame["y"], [value for _, value in bounds])
    figure = line_panel(frame, x, y, looks, bounds=bounds, colour_of=colour_of, height=320)
    subtitle = "one parabola per budget; diamonds: its minimum"
    return titled(figure, "Loss by size at equal compute", f"corpus {corpus}", subtitle)


def compute_figures(fits: Mapping[str, Fitted]) -> dict[str, Figure]:
    """Return a figure per corpus of the loss above E by FLOPs, on log scales.

    Each line shows one model size, as means over seeds. The dotted line is the lowest loss that the law predicts.
    """
    return {corpus: _compute(corpus, each) for corpus, each in fits.items()}


def _compute(corpus: str, fit: Fitted) -> Figure:
    law = fit.law
    means = fit.points.groupby(["N", "C"], as_index=False)["loss"].mean()
    points = means.assign(y=means["loss"] - law.E).rename(columns={"C": "x", "N": "size"})
    points = points[points["y"] > 0]
    C = np.geomspace(means["C"].min(), means["C"].max(), 40)
    best = law.best_size(C)
    least = pd.DataFrame({"operations": C, "least": law.loss(best, C / (6 * best)) - law.E})
    x = replace(Scale.over("training FLOPs, log scale", C, is_log=True), format="~e")
    y = Scale.over("test loss − E, nats per word, log scale", points["y"], least["least"], is_log=True)
    dotted = alt.Chart(significant(least)).mark_line(color=INK, strokeDash=DOTTED)
    own = alt.Chart(significant(points[["size", "x", "y"]])).encode(x.x(), y.y())
    of_sizes = round_ticks(points["size"].min(), points["size"].max())
    colour = alt.Color("size:Q", title="weights", scale=alt.Scale(type="log", range=list(BLUES)))
    colour = colour.legend(values=of_sizes, format="~s", columns=4, title="weights")
    titles = {"size": "weights", "x": x.title, "y": y.title}
    tooltip = [alt.Tooltip(f"{field}:Q", title=title) for field, title in titles.items()]
    layers = [
        own.mark_line(strokeWidth=1.2).encode(colour, detail="size:N"),
        own.mark_point(filled=True, size=50, opacity=1).encode(colour, tooltip=tooltip),
        dotted.encode(x.x("operations"), y.y("least")),
    ]
    figure = alt.layer(*layers).properties(width=WIDTH - 70, height=320)
    subtitle = f"one line per size, mean over seeds; E = {law.E:.3f}; dotted: the lowest loss by the law"
    return titled(figure, "Loss by training compute", f"corpus {corpus}", subtitle)


def _blues(number: int) -> list[str]:
    """Return `number` colours from light to dark blue."""
    (low, high) = (np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) for colour in BLUES)
    steps = np.linspace(low, high, number).round().astype(int)
    return ["#" + "".join(f"{part:02x}" for part in step) for step in steps]
