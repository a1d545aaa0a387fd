"""Tuning of learning rates: the scores of each rate on validation, and the chosen one.

A study's systems may have `rates`, each of which makes a separate system. Systems without a task are chosen by their
validation loss. Systems of a task are chosen by the metric that the study names under `chosen_by`:

    chosen_by: {sentiment: accuracy}  # of its validation split, higher is better

Systems with neither, such as word vectors, are chosen by systems that start from them, one from each rate.

The best is the lowest rate whose value is within `TIE` of the best value: seeds differ by more, so that the very best
rate of one run would not be the best of the next.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from retable.core.errors import UsageError
from retable.reporting.results import Result

LOSS = "loss"
TIE = 0.005  # nats, or a share; also written in a note of conf/table/rates.yaml
COLUMNS = ["system", "corpus", "task", "split", "metric", "rate", "value", "best", "runs"]


def rates_rows(
    rates: Mapping[str, Mapping[str, float]],
    chosen_by: Mapping[str, str],
    pretrained: Sequence[Result],
    values: pd.DataFrame,
) -> pd.DataFrame:
    """Return one row per system, corpus, task and rate; a system with several seeds is judged by their mean.

    Args:
        rates: by system, the rates of the systems that were trained for it, by their names.
        chosen_by: metrics by task.
        pretrained: results without a task.
        values: other runs, rows of `results.tidy`.

    Raises: UsageError: the metric of a task is not named, or not measured.
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
                    f"{system} has rates, but no metric to choose the best for {task}; write chosen_by: "
                    f"{{{task}: {', or '.join(sorted(known))}}}"
                )
            for run in runs[runs["metric"] == chosen_by[task]].itertuples():
                facts = {"system": system, "corpus": run.corpus, "task": task, "split": "validation"}
                facts |= {"metric": run.metric, "rate": by_name[run.system], "value": run.value}
                yield facts | {"runs": run.result.name}
