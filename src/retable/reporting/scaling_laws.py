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

from retable.errors import UsageError
from retable.metrics.regression import Line, fit_power
from retable.metrics.scaling_laws import FEWEST, Law, Parabola, fit_law, fit_parabola, law_interval, resampled_laws
from retable.reporting.ablations import interval_text
from retable.reporting.fields import filled_table
from retable.reporting.figures import COLOURS, INK, WIDTH, Figure
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, round_ticks, significant
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import ORACLE, Result

COLUMNS = ["system", "corpus", "seed", "budget", "N", "D", "C", "loss", "entropy", "alone", "runs"]
KNOWN = {"entropy": "test/perplexity_word", "alone": "test/perplexity_word_alone"}  # of the oracle
NAMES = {
    "E": "E, nats a word", "A": "A", "B": "B", "alpha": "α", "beta": "β",
    "decay": "γ", "exponent": "a, by the law", "isoflop": "a, by isoFLOP curves",
}  # fmt: skip
# Hoffmann et al. 2022: appendix D.3, equation 10, and what follows from it for γ; table 2, approaches 3 and 2.
PUBLISHED = {
    "E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28, "decay": 0.154, "exponent": 0.46, "isoflop": 0.49,
}  # fmt: skip
NOTES = [
    "L(N, D) = E + A / N^α + B / D^β: the held-out loss, in nats a word, of models of N weights that a token is "
    "multiplied with, after D tokens and C = 6ND operations. It is what has the least Huber loss in log L, found by "
    "L-BFGS from a grid of starts (Hoffmann et al. 2022, approach 3); its intervals are a bootstrap over the models.",
    "By compute the least loss is E + k / C^γ, γ = αβ / (α + β). The best size for C operations grows as C^a: by the "
    "law a = β / (α + β); by isoFLOP curves through the vertices "
    "of parabolas in log N, one a budget, that lie within its sizes (approach 2), with Student's interval over them.",
    "Known: the entropy of the language on the same text. The lower one knows all earlier sentences of a document, the "
    "higher one none; a model that reads windows knows some.",
    "Hoffmann et al. measured on other text in other tokens; Kaplan et al. 2020 found a = 0.73, and, without an E, "
    "0.050 for γ, 0.076 for α and 0.095 for β.",
]


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
        budget = yaml.safe_load(result.config).get("budget")
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


def scaling_tables(found: Mapping[str, Fitted]) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table of the laws and that of the models, with their rows; none of no corpus."""
    if not found:
        return
    laws = pd.DataFrame([row for corpus, each in found.items() for row in _numbers(corpus, each)])
    columns = [Column("Number", numeric=False), Column("Fitted"), Column("95 % interval"), Column("Known")]
    columns.append(Column("Hoffmann et al. 2022"))
    panels = {
        str(corpus): [_law_row(row) for row in part.to_dict("records")] for corpus, part in laws.groupby("corpus")
    }
    findings = [finding for corpus, each in found.items() for finding in _findings(corpus, each)]
    yield filled_table("scaling-laws", "Scaling laws", columns, panels, [*findings, *NOTES]), laws
    models = pd.concat([_models(each) for each in found.values()], ignore_index=True)
    titles = ("Seed", "Budget", "N, weights", "D, tokens", "C, operations", "Loss", "By the law", "Less the law")
    columns = [Column("System", numeric=False), *map(Column, titles)]
    panels = {
        str(corpus): [_model_row(row) for row in part.to_dict("records")] for corpus, part in models.groupby("corpus")
    }
    notes = ["Loss: test nats a word, and what the law has for so many weights and tokens."]
    yield filled_table("scaling-models", "Models of the scaling laws", columns, panels, notes), models


def _numbers(corpus: str, found: Fitted) -> Iterator[dict[str, Any]]:
    known = found.points[[*KNOWN]].iloc[0]
    for name in (*Law._fields, "decay", "exponent"):
        low, high = law_interval(found.laws, name)
        row = {"corpus": corpus, "number": name, "fitted": getattr(found.law, name), "ci_low": low, "ci_high": high}
        if name == "E":
            row |= known.to_dict()
        yield row | {"published": PUBLISHED[name]}
    if (line := found.isoflop) is not None:
        row = {"corpus": corpus, "number": "isoflop", "fitted": line.slope, "ci_low": line.low, "ci_high": line.high}
        yield row | {"published": PUBLISHED["isoflop"]}


def _law_row(row: Mapping[str, Any]) -> Row:
    digits = 1 if row["number"] in ("A", "B") else 3
    known = "" if isnan(row.get("entropy", nan)) else f"{row['entropy']:.3f} to {row['alone']:.3f}"
    numbers = [f"{row['fitted']:.{digits}f}", interval_text(row["ci_low"], row["ci_high"], digits)]
    return Row([*map(Value, (NAMES[row["number"]], *numbers, known, f"{row['published']:g}"))])


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


def _models(found: Fitted) -> pd.DataFrame:
    """By budget, size and seed, for two sizes of one budget differ in C by less than a step."""
    points = found.points
    law = found.law.loss(points["N"], points["D"])
    budgets = points.groupby("budget")["C"].transform("mean").where(points["budget"] != "", points["C"])
    models = points.assign(law=law, difference=points["loss"] - law, order=budgets)
    return models.sort_values(["order", "N", "seed"], ignore_index=True).drop(columns="order")


def _model_row(row: Mapping[str, Any]) -> Row:
    sizes = [f"{row['N']:,.0f}", f"{row['D']:,.0f}", f"{row['C']:.2e}"]
    losses = [f"{row['law']:.3f}", f"{row['difference']:+.3f}"]
    values = [Value(row["system"]), Value(str(row["seed"])), Value(row["budget"]), *map(Value, sizes)]
    return Row([*values, Value(f"{row['loss']:.3f}", runs=(row["runs"],)), *map(Value, losses)])


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
