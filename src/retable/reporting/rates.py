"""How systems were tuned: each at several learning rates, and which of them validation chose.

A study's systems may have `rates`, of which each makes a system of its own. What was learnt without a task is chosen by
its validation loss; what learnt one by the metric that the study names for it, under `chosen_by`:

    chosen_by: {sentiment: accuracy}  # of its validation split; higher is better

What has neither, such as word vectors, is chosen by the systems that start from it, one from each of its rates.

The best is the lowest of the rates whose value is within `TIE` of the best value: seeds differ by more, so that the
very best of a run would be another in the next.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from retable.errors import UsageError
from retable.reporting.elmo import METRICS
from retable.reporting.fields import filled_table
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

LOSS = "loss"
TIE = 0.005  # nats, or a share
COLUMNS = ["system", "corpus", "task", "split", "metric", "rate", "value", "best", "runs"]


def rates_tables(
    rates: Mapping[str, Mapping[str, float]],
    chosen_by: Mapping[str, str],
    pretrained: Sequence[Result],
    values: pd.DataFrame,
) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table of the rates, where there are some, with its rows: one a system, corpus, task and rate.

    `rates` are by system those of the systems that stand for it, by their names; `pretrained` is what was learnt
    without a task; `values` are the runs of the others, as `results.tidy` has them. A system of several seeds is chosen
    by their mean. UsageError for a task whose metric to choose by is not said, or not measured.
    """
    if not rates:
        return
    rows = [*_of_losses(rates, pretrained), *_of_tasks(rates, chosen_by, values)]
    frame = pd.DataFrame(rows, columns=[*COLUMNS[:-2], "runs"])
    keys = COLUMNS[:5]
    measured = frame.groupby([*keys, "rate"], sort=False)
    frame = measured.agg(value=("value", "mean"), runs=("runs", " ".join)).reset_index()
    frame["worse"] = frame["value"].where(frame["metric"] == LOSS, -frame["value"])
    ties = frame[frame["worse"] <= frame.groupby(keys)["worse"].transform("min") + TIE + 1e-9]
    frame["best"] = frame.index.isin(ties.groupby(keys)["rate"].idxmin())
    frame["place"] = frame["system"].map([*rates].index)
    frame = frame.sort_values(["corpus", "place", "task", "rate"], ignore_index=True)[COLUMNS]
    yield _table(frame), frame


def _of_losses(rates: Mapping[str, Mapping[str, float]], pretrained: Sequence[Result]) -> Iterator[dict[str, object]]:
    for system, by_name in rates.items():
        for result in pretrained:
            if result.run["system"] in by_name:
                facts = {"system": system, "corpus": result.run["corpus"], "task": "", "split": "validation"}
                value = result.metrics[f"validation/{LOSS}"]
                rate = by_name[result.run["system"]]
                yield facts | {"metric": LOSS, "rate": rate, "value": value, "runs": result.name}


def _of_tasks(
    rates: Mapping[str, Mapping[str, float]], chosen_by: Mapping[str, str], values: pd.DataFrame
) -> Iterator[dict[str, object]]:
    values = values[(values["split"] == "validation") & (values["task"] != "")]
    for system, by_name in rates.items():
        for task, runs in values[values["system"].isin([*by_name])].groupby("task"):
            if chosen_by.get(str(task)) not in (known := {*runs["metric"]}):
                raise UsageError(
                    f"{system} has rates, and no metric says which is the best for {task}; write chosen_by: "
                    f"{{{task}: {', or '.join(sorted(known))}}}"
                )
            for run in runs[runs["metric"] == chosen_by[task]].itertuples():
                facts = {"system": system, "corpus": run.corpus, "task": task, "split": "validation"}
                facts |= {"metric": run.metric, "rate": by_name[run.system], "value": run.value}
                yield facts | {"runs": run.result.name}


def _table(frame: pd.DataFrame) -> Table:
    frame = frame.assign(times=frame["rate"] / frame.groupby(COLUMNS[:5])["rate"].transform("min"))
    times = sorted({*frame["times"].round(3)})
    columns = [Column(title, numeric=False) for title in ("System", "Task", "Chosen by")]
    columns += [Column("Lowest rate"), *(Column(f"× {each:g}", "Validation") for each in times), Column("Best rate")]
    panels: dict[str, list[Row]] = {}
    for (corpus, system, task, metric), part in frame.groupby(["corpus", "system", "task", "metric"], sort=False):
        by_times = {round(each["times"], 3): each for _, each in part.iterrows()}
        best, ends = part[part["best"]].iloc[0]["rate"], {part["rate"].min(), part["rate"].max()}
        name = "nats a token" if metric == LOSS else METRICS.get(metric, metric)
        panels.setdefault(str(corpus), []).append(
            Row(
                [
                    *map(Value, (system, task, name, _rate(part["rate"].min()))),
                    *(_value(by_times.get(each)) for each in times),
                    Value(f"{_rate(best)}{' *' * (best in ends)}"),
                ]
            )
        )
    notes = [
        "Each system at several learning rates, all else the same; the lowest and its multiples. Bold: the best by "
        f"validation, of which the recipe or the study took its rate; where others are within {TIE} nats of the best, "
        f"or within {100 * TIE:g} of 100, the lowest of them, for seeds differ by more. The lower the loss, the "
        "better, in nats a token of what the system is trained on; the higher the other metrics, times 100. No number "
        "is of a test split.",
        "A best rate with * is the lowest or the highest that was tried.",
    ]
    return filled_table("rates", "Learning rates, chosen on validation", columns, panels, notes)


def _rate(rate: float) -> str:
    return f"{rate:.3g}"


def _value(row: pd.Series | None) -> Value:
    if row is None:
        return Value("")
    text = f"{row['value']:.3f}" if row["metric"] == LOSS else f"{100 * row['value']:.1f}"
    return Value(text, bold=row["best"], runs=tuple(row["runs"].split()))
