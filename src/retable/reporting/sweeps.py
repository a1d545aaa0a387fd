"""Reports of sweeps: a table of the trials, and figures of the search and of the importance of settings.

The trials of a sweep are a frame with a row per trial and these columns:

- `trial`: number of the trial.
- `state`: complete, pruned, failed or running.
- `metric`, `value` and `direction`: the metric to optimise, its value, and minimize or maximize.
- `step`: the step at which a pruned trial ended.
- `seconds` and `cell`: duration and output folder.

All other columns are the settings that the sweep varies, named as on the command line.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.core.errors import UsageError, reading
from retable.reporting.figures import COLOURS, FAINT, WIDTH, Figure, axis_width, svg_of, titled
from retable.reporting.markup import Column, Row, Table, Value, anchor, markdown_table
from retable.reporting.page import report_page
from retable.reporting.results import COLUMNS

FACTS = ("trial", "state", "value", "step", "seconds", "cell", "metric", "direction")
COMPLETE, PRUNED = "complete", "pruned"
HEIGHT = 220
PRUNED_NOTE = (
    "A pruned trial was stopped early, because its validation value was worse than that of most trials at the same "
    "step. Its value is from that step."
)
EXPECTED_NOTE = (
    "Expected best value of k trials that are drawn with replacement from all trials (Dodge et al. 2019, section 3). "
    "The band is the standard deviation. A pruned trial counts with its last value."
)


def read_trials(path: Path) -> pd.DataFrame:
    """Read the file `trials.csv` of a sweep.

    Raises: UsageError: the file is missing, or was not written by a sweep.
    """
    with reading(path, OSError, ValueError):
        trials = pd.read_csv(path)
        if missing := [name for name in FACTS if name not in trials] or ["row"] * trials.empty:
            raise UsageError(f"{path} has no {', '.join(missing)}; run the sweep again")
        return trials.astype({"value": float, "step": float, "seconds": float})


def settings_of(trials: pd.DataFrame) -> list[str]:
    return [name for name in trials.columns if name not in FACTS]


def best_of(trials: pd.DataFrame) -> pd.Series | None:
    """Return the complete trial with the best value, or None if no trial is complete."""
    done = _known(trials, COMPLETE)
    if done.empty:
        return None
    return done.loc[done["value"].idxmin() if _minimizes(trials) else done["value"].idxmax()]


def sweep_table(trials: pd.DataFrame, name: str = "") -> Table:
    """Return the table of a sweep, with a row per trial.

    Complete trials come first, from the best to the worst, then pruned trials, then failed and running trials.
    """
    settings, best = settings_of(trials), best_of(trials)
    placed = trials.assign(
        _last=~trials["state"].isin([COMPLETE, PRUNED]), _pruned=trials["state"] == PRUNED,
        _place=trials["value"] if _minimizes(trials) else -trials["value"],
    ).sort_values(["_last", "_pruned", "_place", "trial"])  # fmt: skip
    metric = _one(trials, "metric")
    columns = [Column("Trial"), *(Column(each, numeric=_is_numeric(trials[each])) for each in settings)]
    columns += [Column(metric), Column("State", numeric=False), Column("Seconds"), Column("Cell", numeric=False)]
    rows = []
    for _, row in placed.iterrows():
        state = f"pruned at step {row['step']:.0f}" if row["state"] == PRUNED else row["state"]
        value = "" if pd.isna(row["value"]) else f"{row['value']:.4f}"
        values = [Value(f"{row['trial']}"), *(Value(_short(row[each])) for each in settings)]
        values += [Value(value, bold=best is not None and row["trial"] == best["trial"]), Value(state)]
        seconds = "" if pd.isna(row["seconds"]) else f"{row['seconds']:.0f}"
        rows.append(Row([*values, Value(seconds), Value(str(row["cell"]).removeprefix("outputs/"))]))
    notes = [PRUNED_NOTE] if (trials["state"] == PRUNED).any() else []
    return Table(anchor(name, "trials-") if name else "trials", name or "Trials", columns, {"": rows}, notes)


def sweep_tables(sweeps: Mapping[str | int, pd.DataFrame]) -> Iterator[tuple[Table, pd.DataFrame]]:
    """Yield the table of each sweep with its trials; `sweeps` maps the titles of the tables to the trials.

    Raises: UsageError: the files of two tables would have the same name.
    """
    titles: dict[str, str | int] = {}
    for title, trials in sweeps.items():
        table = sweep_table(trials, str(title))
        if table.name in titles:
            raise UsageError(
                f"sweeps: the tables {titles[table.name]!r} and {title!r} would both be in the file {table.name}.csv; "
                "write titles that differ in letters or digits"
            )
        titles[table.name] = title
        yield table, trials


def write_sweep(title: str, sweeps: Mapping[str, pd.DataFrame], folder: Path) -> Path:
    """Write `report.md`, its figures and the page `report.html` for one or several sweeps; return the page's path."""
    tables = [sweep_table(trials, name if len(sweeps) > 1 else "") for name, trials in sweeps.items()]
    figures: dict[str, Figure] = {}
    for name, trials in sweeps.items():
        suffix = f" · {name}" if len(sweeps) > 1 else ""
        drawn = {"History": history(trials), "Settings and values": coordinates(trials)}
        drawn["Importance of settings"] = _bars(weights) if (weights := importances(trials)) else None
        figures |= {f"{kind}{suffix}": figure for kind, figure in drawn.items() if figure is not None}
    if (best := expected_best(sweeps)) is not None:
        figures["Expected best by number of trials"] = best
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"# {title}\n", *map(markdown_table, tables)]
    for number, (name, figure) in enumerate(figures.items()):
        (folder / f"figure-{number}.svg").write_text(svg_of(figure), encoding="utf-8")
        parts.append(f"![{name}](figure-{number}.svg)\n")
    notes = f"{EXPECTED_NOTE}\n" if best is not None else ""
    (folder / "report.md").write_text("\n".join([*parts, notes]), encoding="utf-8")
    page = folder / "report.html"
    nothing = pd.DataFrame(columns=COLUMNS)
    page.write_text(report_page(title, "", notes.strip(), nothing, tables, figures, {}), encoding="utf-8")
    return page


def expected_best_of(values: NDArray[np.float64], lower: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the expected best of k = 1 … N draws with replacement from N values, and its standard deviation.

    The distribution function of the maximum of k draws is the k-th power of the empirical distribution function (Dodge
    et al. 2019, equation 5).

    lower: whether smaller values are better.
    """
    ordered = np.sort(-values if lower else values)
    size = np.arange(1, len(ordered) + 1)
    at_most = (size[None, :] / len(ordered)) ** size[:, None]  # (k, value)
    weights = np.diff(at_most, axis=1, prepend=0.0)
    mean = weights @ ordered
    spread = np.sqrt(np.maximum(weights @ ordered**2 - mean**2, 0.0))
    return (-mean if lower else mean), spread


def expected_best(sweeps: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw the expected best value by number of trials, a line per sweep; return None for too few trials."""
    lines, metric = [], ""
    for name, trials in sweeps.items():
        known = _known(trials)
        if len(known) < 2:
            continue
        metric = _one(trials, "metric")
        mean, spread = expected_best_of(known["value"].to_numpy(float), _minimizes(trials))
        budget = np.arange(1, len(mean) + 1)
        line = {"sweep": name, "trials": budget, "seconds": budget * known["seconds"].mean(), "value": mean}
        lines.append(pd.DataFrame(line | {"low": mean - spread, "high": mean + spread}))
    if not lines:
        return None
    legend = alt.Legend() if len(lines) > 1 else None
    base = alt.Chart(pd.concat(lines)).encode(
        x=alt.X("trials:Q", title="trials", scale=_free(), axis=alt.Axis(tickMinStep=1, format="d")),
        color=alt.Color("sweep:N", scale=alt.Scale(range=list(COLOURS)), legend=legend),
    )
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=f"best {metric}", scale=_free()), y2="high:Q")
    hover = [alt.Tooltip(f"{each}:Q", format=".4~g") for each in ("trials", "seconds", "value")]
    line = base.mark_line(point=True).encode(y=alt.Y("value:Q", scale=_free()), tooltip=["sweep:N", *hover])
    figure = alt.layer(band, line).properties(width=WIDTH - 70, height=HEIGHT)
    return titled(figure, "Expected best by number of trials", "band: standard deviation")


def history(trials: pd.DataFrame) -> Figure | None:
    """Draw trials' values by trial number, and the best value so far; return None if there are no values."""
    known = trials[trials["value"].notna()].sort_values("trial")
    if known.empty:
        return None
    done = known["value"].where(known["state"] == COMPLETE)
    known = known.assign(best=done.cummin() if _minimizes(trials) else done.cummax())
    known["best"] = known["best"].ffill()
    metric = _one(trials, "metric")
    base = alt.Chart(known[["trial", "state", "value", "best"]]).encode(
        x=alt.X("trial:Q", title="trial", axis=alt.Axis(tickMinStep=1, format="d"))
    )
    points = base.mark_point(filled=True, size=45).encode(
        y=alt.Y("value:Q", title=metric, scale=_free()),
        color=alt.Color("state:N", scale=alt.Scale(domain=[COMPLETE, PRUNED], range=[COLOURS[0], FAINT])),
        shape=alt.Shape("state:N", scale=alt.Scale(domain=[COMPLETE, PRUNED], range=["circle", "cross"])),
        tooltip=["trial:Q", "state:N", alt.Tooltip("value:Q", format=".4~f")],
    )
    line = base.mark_line(interpolate="step-after", color=COLOURS[1]).encode(y=alt.Y("best:Q", scale=_free()))
    figure = alt.layer(line, points).properties(width=WIDTH - 70, height=HEIGHT)
    return titled(figure, "Value of each trial", "line: the best so far")


def coordinates(trials: pd.DataFrame) -> Figure | None:
    """Draw parallel coordinates: a line per trial, through its settings to its value.

    Better trials have darker lines. Returns None for fewer than two trials, or if no setting varies.
    """
    settings, known = _varied(trials), _known(trials)
    if len(known) < 2 or not settings:
        return None
    metric = _one(trials, "metric")
    parts, ticks = [], []
    for axis in [*settings, metric]:
        column = known["value"] if axis == metric else known[axis]
        places, marks = _places(column)
        ticks += [{"axis": axis, "place": place, "text": text} for place, text in marks]
        own = {"axis": axis, "place": places, "shown": [*map(_short, column)]}
        parts.append(pd.DataFrame(own | {"trial": [*known["trial"]], "value": [*known["value"]]}))
    top = alt.Axis(orient="top", labelAngle=0, title=None, offset=14)
    x = alt.X("axis:N", sort=[*settings, metric], axis=top, scale=alt.Scale(type="point", padding=0.4))
    scheme = alt.Scale(scheme="viridis", reverse=not _minimizes(trials))
    lines = alt.Chart(pd.concat(parts)).mark_line(strokeWidth=1.5, opacity=0.75).encode(
        x=x, y=alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[0, 1])), detail="trial:N",
        color=alt.Color("value:Q", scale=scheme, title=metric, legend=alt.Legend(orient="bottom")),
        tooltip=["trial:N", "axis:N", "shown:N", alt.Tooltip("value:Q", format=".4~f")],
    )  # fmt: skip
    labels = alt.Chart(pd.DataFrame(ticks)).mark_text(align="left", dx=5, dy=-6).encode(x=x, y="place:Q", text="text:N")
    figure = alt.layer(lines, labels).properties(width=WIDTH - 20, height=HEIGHT)
    return titled(figure, "Settings and values", "one line per trial")


def importances(trials: pd.DataFrame) -> dict[str, float]:
    """Compute the share of variance that each setting explains among the better trials.

    The method is PED-ANOVA (Watanabe et al. 2023). The result is empty for fewer than four complete trials, or if all
    values are equal.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    settings, known = _varied(trials), _known(trials, COMPLETE)
    if len(known) < 4 or known["value"].nunique() < 2 or not settings:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if _minimizes(trials) else "maximize")
    distributions: dict[str, Any] = {}
    for name in settings:
        if _is_numeric(known[name]):
            low, high = known[name].astype(float).agg(["min", "max"])
            distributions[name] = optuna.distributions.FloatDistribution(low, high, log=_is_wide(low, high))
        else:
            distributions[name] = optuna.distributions.CategoricalDistribution(sorted(known[name].astype(str).unique()))
    for _, trial in known.iterrows():
        params = {name: float(trial[name]) if _is_numeric(known[name]) else str(trial[name]) for name in settings}
        made = optuna.trial.create_trial(params=params, distributions=distributions, value=float(trial["value"]))
        study.add_trial(made)
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def _bars(weights: Mapping[str, float]) -> Figure:
    frame = pd.DataFrame({"setting": [*weights], "share": [*weights.values()]})
    bars = alt.Chart(frame).mark_bar(color=COLOURS[0]).encode(
        x=alt.X("share:Q", title="share of the variance", scale=alt.Scale(domain=[0, 1])),
        y=alt.Y("setting:N", sort=None, title=None),
        tooltip=["setting:N", alt.Tooltip("share:Q", format=".3f")],
    ).properties(width=WIDTH - axis_width(weights), height=24 * len(frame))  # fmt: skip
    return titled(bars, "Importance of settings", "PED-ANOVA")


def _places(column: pd.Series) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the positions of values on an axis from 0 to 1, and the labels of the axis.

    Numbers are placed by size, texts in alphabetical order at equal distances.
    """
    if _is_numeric(column):
        numbers = column.astype(float)
        shown = np.log(numbers) if _is_wide(numbers.min(), numbers.max()) else numbers
        low, high = shown.min(), shown.max()
        places = (shown - low) / (high - low) if high > low else shown * 0 + 0.5
        return [*places], [(0.0, _short(numbers.min())), (1.0, _short(numbers.max()))]
    names = sorted(column.astype(str).unique())
    at = {name: i / max(len(names) - 1, 1) for i, name in enumerate(names)}
    return [at[str(name)] for name in column], [(place, name) for name, place in at.items()]


def _is_wide(low: float, high: float) -> bool:
    """Check whether positive values need a log axis: they span a factor of ten or more."""
    return low > 0 and high / low >= 10


def _known(trials: pd.DataFrame, *states: str) -> pd.DataFrame:
    """Return the trials that have a value and are in `states`, by default complete or pruned."""
    return trials[trials["state"].isin(states or [COMPLETE, PRUNED]) & trials["value"].notna()]


def _varied(trials: pd.DataFrame) -> list[str]:
    return [name for name in settings_of(trials) if trials[name].nunique() > 1]


def _is_numeric(column: pd.Series) -> bool:
    return bool(pd.to_numeric(column, errors="coerce").notna().all())


def _short(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def _one(trials: pd.DataFrame, column: str) -> str:
    return str(trials[column].iloc[0])


def _minimizes(trials: pd.DataFrame) -> bool:
    return _one(trials, "direction") == "minimize"


def _free() -> alt.Scale:
    return alt.Scale(zero=False)
