"""Scaling laws: held-out loss by a model's size, by the text that it has read, and by the operations that it took.

A study may name systems, under `scaling_laws`, by a pattern, in which `*` stands for anything:

    scaling_laws: gpt_*

They are the models of one corpus, some of them of equal `budget`, whose sizes then lie on one isoFLOP curve.
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
from retable.metrics.scaling_laws import FEWEST, Law, Parabola, fit_law, fit_parabola, law_interval, resampled_laws
from retable.reporting.ablations import interval_text
from retable.reporting.figures import COLOURS, INK, WIDTH, Figure
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, round_ticks, significant
from retable.reporting.results import ORACLE, Result

COLUMNS = ["system", "corpus", "seed", "budget", "N", "D", "C", "loss", "entropy", "alone", "runs"]
KNOWN = {"entropy": "test/perplexity_word", "alone": "test/perplexity_word_alone"}  # of the oracle
# Hoffmann et al. 2022: appendix D.3, equation 10, and what follows from it for γ; table 2, approaches 3 and 2.
PUBLISHED = {
    "E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28, "decay": 0.154, "exponent": 0.46, "isoflop": 0.49,
}  # fmt: skip


def scaling_points(systems: str, pretrained: Sequence[Result], values: pd.DataFrame) -> pd.DataFrame:
    """A row a model with COLUMNS: what its training says of it, its test loss in nats a word, and those of the true
    distribution, with and without earlier sentences, NaN where they are not known.

    `values` are those of `results.tidy`. UsageError where too few systems are called so or were measured.
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
            f"scaling_laws: {fewest} models of one corpus are called {systems} and have a test perplexity; a law of "
            f"{len(Law._fields)} numbers needs as many or more: name other systems, or measure their perplexity"
        )
    for name, of in {"N": "sizes", "D": "amounts of text"}.items():
        if (fewest := frame.groupby("corpus")[name].nunique().min()) < FEWEST:
            raise UsageError(
                f"scaling_laws: {systems} are of {fewest} {of}; a law needs {FEWEST} or more: train others"
            )
    return frame


@dataclass(frozen=True)
class Fitted:
    """The models of one corpus, and what they follow."""

    points: pd.DataFrame
    law: Law
    laws: list[Law]  # of resamples
    parabolas: Mapping[str, Parabola]  # by budget

    @property
    def vertices(self) -> dict[str, float]:
        """By budget the size at which its parabola is least, of those that lie within the sizes that were trained."""
        return {budget: curve.size for budget, curve in self.parabolas.items() if not isnan(curve.size)}

    @property
    def isoflop(self) -> Line | None:
        """The exponent by which the vertices grow; None where there are fewer than three."""
        sizes, operations = self.vertices, self.points.groupby("budget")["C"].mean()
        return fit_power([operations[budget] for budget in sizes], [*sizes.values()]) if len(sizes) >= 3 else None


def fitted(points: pd.DataFrame, resamples: int = 200) -> dict[str, Fitted]:
    """By corpus, of the rows of `scaling_points`; `resamples` are those of the intervals."""
    found = {}
    for corpus, part in points.groupby("corpus"):
        law = fit_law(part["N"], part["D"], part["loss"])
        budgets = part[part["budget"] != ""].groupby("budget", sort=False)
        curves = {str(name): fit_parabola(own["N"], own["loss"]) for name, own in budgets if own["N"].nunique() >= 3}
        laws = resampled_laws(part["N"], part["D"], part["loss"], law, resamples)
        found[str(corpus)] = Fitted(part, law, laws, curves)
    return found


def laws_rows(found: Mapping[str, Fitted]) -> pd.DataFrame:
    """One row per corpus and number of its law."""
    return pd.DataFrame([row for corpus, each in found.items() for row in _numbers(corpus, each)])


def _numbers(corpus: str, found: Fitted) -> Iterator[dict[str, Any]]:
    known, findings = found.points[[*KNOWN]].iloc[0], "\n".join(_findings(corpus, found))
    for name in (*Law._fields, "decay", "exponent"):
        low, high = law_interval(found.laws, name)
        row = {"corpus": corpus, "number": name, "fitted": getattr(found.law, name), "ci_low": low, "ci_high": high}
        if name == "E":
            row |= known.to_dict()
        yield row | {"published": PUBLISHED[name], "_digits": 1 if name in "AB" else 3, "_notes": findings}
    if (line := found.isoflop) is not None:
        row = {"corpus": corpus, "number": "isoflop", "fitted": line.slope, "ci_low": line.low, "ci_high": line.high}
        yield row | {"published": PUBLISHED["isoflop"], "_digits": 3, "_notes": findings}


def _findings(corpus: str, found: Fitted) -> Iterator[str]:
    """Whether E is what is known, and how many parabolas have a vertex."""
    entropy, alone = found.points[[*KNOWN]].iloc[0]
    low, high = law_interval(found.laws, "E")
    if isnan(entropy):
        yield f"{corpus}: the language's entropy is not known."
    else:
        meets = "meets" if low <= alone and high >= entropy else "misses"
        known = f"{entropy:.3f} to {alone:.3f}"
        yield f"{corpus}: the interval of E, {interval_text(low, high, 3)}, {meets} what is known, {known}."
    if found.parabolas:
        yield f"{corpus}: {len(found.vertices)} of {len(found.parabolas)} parabolas are least within their sizes."


def models_rows(found: Mapping[str, Fitted]) -> pd.DataFrame:
    """One row per model, with the loss by the law of its corpus."""
    return pd.concat(map(_models, found.values()), ignore_index=True) if found else pd.DataFrame()


def _models(found: Fitted) -> pd.DataFrame:
    """By budget, size and seed, for two sizes of one budget differ in C by less than a step."""
    points = found.points
    law = found.law.loss(points["N"], points["D"])
    budgets = points.groupby("budget")["C"].transform("mean").where(points["budget"] != "", points["C"])
    models = points.assign(law=law, difference=points["loss"] - law, order=budgets)
    return models.sort_values(["order", "N", "seed"], ignore_index=True).drop(columns="order")


def isoflop_figures(found: Mapping[str, Fitted]) -> dict[str, Figure]:
    """A figure a corpus: the loss by the size, a colour a budget, with its parabola; the entropy is a dashed line."""
    return {corpus: _isoflops(corpus, each) for corpus, each in found.items() if each.parabolas}


def _isoflops(corpus: str, found: Fitted) -> Figure:
    parts = []
    for budget, curve in found.parabolas.items():
        own = found.points[found.points["budget"] == budget]
        sizes = np.geomspace(own["N"].min(), own["N"].max(), 40)
        parts.append(pd.DataFrame({"x": sizes, "y": curve.curve(np.log(sizes)), "variant": "parabola"}))
        parts.append(pd.DataFrame({"x": own["N"], "y": own["loss"], "variant": "model"}))
        parts.append(pd.DataFrame({"x": [curve.size], "y": [curve.loss], "variant": "vertex"}).dropna())
        parts[-3:] = [part.assign(system=budget) for part in parts[-3:]]
    frame = pd.concat(parts, ignore_index=True)
    entropy = found.points["entropy"].iloc[0]
    bounds = [] if isnan(entropy) else [("entropy", entropy)]
    looks = {
        "parabola": Look(),
        "model": Look(None, is_marked=True),
        "vertex": Look(None, is_marked=True, shape="diamond"),
    }
    x = Scale.over("weights, log scale", frame["x"], is_log=True)
    y = Scale.over("test loss, nats a word", frame["y"], [value for _, value in bounds])
    figure = line_panel(frame, x, y, looks, bounds=bounds, height=320)
    subtitle = "a colour a budget; diamonds: where its parabola is least"
    return figure.properties(title={"text": corpus, "subtitle": subtitle})


def compute_figures(found: Mapping[str, Fitted]) -> dict[str, Figure]:
    """A figure a corpus: the loss above E by operations, both as logarithms, a mean over seeds, a line and a colour a
    size; and dotted the least loss that the law has for so many."""
    return {corpus: _compute(corpus, each) for corpus, each in found.items()}


def _compute(corpus: str, found: Fitted) -> Figure:
    law = found.law
    means = found.points.groupby(["N", "C"], as_index=False)["loss"].mean()
    points = means.assign(y=means["loss"] - law.E).rename(columns={"C": "x", "N": "size"})
    points = points[points["y"] > 0]
    C = np.geomspace(means["C"].min(), means["C"].max(), 40)
    best = law.best_size(C)
    least = pd.DataFrame({"operations": C, "least": law.loss(best, C / (6 * best)) - law.E})
    x = replace(Scale.over("operations of training, log scale", C, is_log=True), format="~e")
    y = Scale.over("test loss less E, nats a word, log scale", points["y"], least["least"], is_log=True)
    dotted = alt.Chart(significant(least)).mark_line(color=INK, strokeDash=DOTTED)
    own = alt.Chart(significant(points[["size", "x", "y"]])).encode(x.x(), y.y())
    of_sizes = round_ticks(points["size"].min(), points["size"].max())
    colour = alt.Color("size:Q", title="weights", scale=alt.Scale(type="log", range=COLOURS[:2]))
    colour = colour.legend(type="gradient", values=of_sizes, format="~s", labelColor=INK, titleColor=INK)
    titles = {"size": "weights", "x": x.title, "y": y.title}
    tooltip = [alt.Tooltip(f"{field}:Q", title=title) for field, title in titles.items()]
    layers = [
        own.mark_line(strokeWidth=1.2).encode(colour, detail="size:N"),
        own.mark_point(filled=True, size=50, opacity=1).encode(colour, tooltip=tooltip),
        dotted.encode(x.x("operations"), y.y("least")),
    ]
    subtitle = f"the mean over seeds, a line a size in weights; E = {law.E:.3f}; dotted: the least by the law"
    title: Any = {"text": corpus, "subtitle": subtitle}
    return alt.layer(*layers).properties(width=WIDTH - 140, height=320, title=title)
