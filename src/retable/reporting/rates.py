"""Tuning of learning rates: the validation score of each rate, and the chosen rate.

A system of a study may list several learning rates under `rates`; each rate becomes a separate system. Systems without
a task are compared by their validation loss. Systems with a task are compared by the metric under `chosen_by`:

    chosen_by: {sentiment: accuracy}  # measured on the validation split; higher must be better

Systems without a task or a validation loss, such as word vectors, are compared by systems that are trained on a task
from these vectors, one system for each rate.

The chosen rate is the lowest rate whose value is within `TIE` of the best value. Seeds differ by more than `TIE`, so
the rate with the best value would often change with the seed.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from retable.core.errors import UsageError
from retable.reporting.results import Result

LOSS = "loss"
TIE = 0.005  # nats of loss, or 0.5 points of accuracy; repeated in a note of conf/table/rates.yaml
COLUMNS = ["system", "corpus", "task", "split", "metric", "rate", "value", "best", "runs"]


def rates_rows(
    rates: Mapping[str, Mapping[str, float]],
    chosen_by: Mapping[str, str],
    pretrained: Sequence[Result],
    values: pd.DataFrame,
) -> pd.DataFrame:
    """Return one row per system, corpus, task and rate, with the mean over seeds.

    Args:
        rates: for each system, its variants and their learning rates: a mapping from the variant's name to its rate.
        chosen_by: the metric that compares rates, by task.
        pretrained: results of systems without a task.
        values: results of systems with a task, a frame from `results.tidy`.

    Raises: UsageError: `chosen_by` has no metric for a task, or the metric was not measured.
    """
    if not rates:
        return pd.DataFrame()
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
    return _shown(frame)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    rates = frame.groupby(keys := COLUMNS[:5], sort=False)["rate"]
    lowest, highest = rates.transform("min"), rates.transform("max")
    best = frame[frame["best"]].set_index(keys)["rate"].rename("_best")
    frame = frame.assign(_lowest=lowest, _times=(frame["rate"] / lowest).round(3), _bold=frame["best"]).join(
        best, on=keys
    )
    at_end = (frame["_best"] == lowest) | (frame["_best"] == highest)
    frame["_best"] = [f"{best:.3g}{' *' * end}" for best, end in zip(frame["_best"], at_end, strict=True)]
    shown = zip(frame["value"], frame["metric"], strict=True)
    return frame.assign(_value=[f"{value:.3f}" if metric == LOSS else f"{100 * value:.1f}" for value, metric in shown])


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
                    f"{system} has rates, but no metric to choose the best rate for {task}; write chosen_by: "
                    f"{{{task}: {', or '.join(sorted(known))}}}"
                )
            for run in runs[runs["metric"] == chosen_by[task]].itertuples():
                facts = {"system": system, "corpus": run.corpus, "task": task, "split": "validation"}
                facts |= {"metric": run.metric, "rate": by_name[run.system], "value": run.value}
                yield facts | {"runs": run.result.name}
