"""GLUE (Wang et al. 2018): average validation scores over its tasks, and differences to a baseline."""

import numpy as np
import pandas as pd

from retable.core.errors import UsageError
from retable.metrics.intervals import mean_std, paired_test, percentile_interval
from retable.reporting.ablations import difference
from retable.reporting.fields import SIGNIFICANT
from retable.reporting.results import CELL, COLUMNS, units_of
from retable.reporting.units import UnitSums

# For each task: the title of its column in the paper, and its metrics. A task's score is the mean of its metrics
# (section 5.2); for MNLI it is the mean over the matched and the mismatched set.
TASKS: dict[str, tuple[str, dict[tuple[str, str], str]]] = {
    "cola": ("CoLA", {("cola", "matthews"): "Matthews"}),
    "sst2": ("SST-2", {("sst2", "accuracy"): "accuracy"}),
    "mrpc": ("MRPC", {("mrpc", "accuracy"): "accuracy", ("mrpc", "f1"): "F1"}),
    "qqp": ("QQP", {("qqp", "accuracy"): "accuracy", ("qqp", "f1"): "F1"}),
    "stsb": ("STS-B", {("stsb", "pearson"): "Pearson", ("stsb", "spearman"): "Spearman"}),
    "mnli": ("MNLI", {("mnli", "accuracy"): "matched", ("mnli_mismatched", "accuracy"): "mismatched"}),
    "qnli": ("QNLI", {("qnli", "accuracy"): "accuracy"}),
    "rte": ("RTE", {("rte", "accuracy"): "accuracy"}),
    "wnli": ("WNLI", {("wnli", "accuracy"): "accuracy"}),
}
TITLES = {measure: (title, metric) for title, metrics in TASKS.values() for measure, metric in metrics.items()}
AVERAGES = {"average": "with WNLI", "average_without_wnli": "without"}
SPLIT = "validation"


def _of_glue(frame: pd.DataFrame) -> pd.Series:
    """Return a mask of the rows with validation scores of GLUE's tasks."""
    return frame["task"].isin({task for task, _ in TITLES}) & (frame["split"] == SPLIT)


def glue_averages(frame: pd.DataFrame, values: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the averages over the tasks of GLUE that were run.

    Args:
        frame: results averaged over seeds, from `results.aggregate`.
        values: results of single runs, from `results.tidy`.

    Returns: the averages per system, published systems included, as rows like those of `frame`; and the averages per
        run, as rows like those of `values`.
    """
    frame, values = frame[_of_glue(frame)], values[_of_glue(values)]
    if values.empty:
        return frame[:0], values
    averages = pd.concat([_averages(part) for _, part in values.groupby("corpus")])
    rows = pd.concat([*(_aggregated(part) for _, part in averages.groupby(CELL)), _published(frame, values)])
    return rows.reindex(columns=COLUMNS).astype({"mean": float, "published": float, "std": float}), averages


def glue_differences(values: pd.DataFrame, averages: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return each system's difference to a baseline, for each metric and average of GLUE.

    Raises: UsageError: the baseline was not run on any task of GLUE.
    """
    if baseline not in set(values.loc[_of_glue(values), "system"]):
        raise UsageError(
            f"baseline={baseline} was not run on any task of GLUE in this study; set baseline to a system that was"
        )
    return _differences(pd.concat([values[_of_glue(values)], averages]), baseline)


def _averages(values: pd.DataFrame) -> pd.DataFrame:
    """Average the scores of each run over GLUE's tasks, with and without WNLI.

    A run is left out if it has no score on a task on which another run of the same corpus has a score.
    """
    scores = _task_scores(values.set_index(["system", "seed", "task", "metric"])["value"])
    runs = values.groupby(["system", "seed"])["result"].agg(list)
    rows = []
    for name, tasks in _averaged(scores).items():
        for (system, seed), score in scores[tasks].dropna().mean(axis=1).items():
            cell = dict(zip(CELL, (system, values["corpus"].iloc[0], "glue", SPLIT, name), strict=True))
            rows.append(cell | {"value": score, "seed": seed, "protocol": "", "result": runs[system, seed]})
    return pd.DataFrame(rows, columns=[*CELL, "value", "seed", "protocol", "result"])


def _averaged(scores: pd.DataFrame) -> dict[str, list[str]]:
    """Map the name of each average to the tasks that the average includes."""
    without = [task for task in TASKS if task in scores and task != "wnli"]
    averaged = {"average": [*without, "wnli"], "average_without_wnli": without}
    return {name: tasks for name, tasks in averaged.items() if tasks and set(tasks) <= set(scores)}


def _task_scores(values: pd.Series) -> pd.DataFrame:
    """Compute each task's score from its metrics; the last two index levels of `values` are task and metric."""
    table = values.unstack(["task", "metric"])
    scores = {}
    for task, (_, metrics) in TASKS.items():
        if columns := [measure for measure in metrics if measure in table]:
            scores[task] = table[columns].mean(axis=1, skipna=False)
    return pd.DataFrame(scores)


def _aggregated(values: pd.DataFrame) -> pd.DataFrame:
    """Combine the runs of one average into a row like those of `results.aggregate`."""
    mean, std = mean_std(values["value"])
    runs = " ".join(dict.fromkeys(result.name for results in values["result"] for result in results))
    row = dict(zip(CELL, values[CELL].iloc[0], strict=True)) | {"mean": mean, "std": std, "n": len(values)}
    return pd.DataFrame([row | {"runs": runs, "protocol": "", "verdict": "n/a", "source": "", "note": ""}])


def _published(frame: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Average the scores of published systems over the tasks that this study ran.

    A published system is left out if it lacks a score for a task that this study ran.
    """
    rows = []
    for corpus, part in frame[frame["n"] == 0].groupby("corpus"):
        run = values[values["corpus"] == corpus].set_index(["system", "seed", "task", "metric"])["value"]
        published = _task_scores(part.set_index(["system", "task", "metric"])["published"])
        for name, tasks in _averaged(_task_scores(run)).items():
            for system, score in published.reindex(columns=tasks).dropna().mean(axis=1).items():
                cell = dict(zip(CELL, (system, corpus, "glue", SPLIT, name), strict=True))
                texts = part.loc[part["system"] == system, ["source", "note"]].iloc[0].to_dict()
                rows.append(cell | {"published": score, "n": 0, "runs": "", **texts})
    return pd.DataFrame(rows, columns=[*CELL, "published", "n", "runs", "source", "note"])


def _differences(values: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return a row per system and metric: the gain over the baseline on the same corpus.

    A row has an interval over seeds, and an interval and a p-value over test examples. `significant` is true if the
    interval over seeds excludes 0 and the p-value is below SIGNIFICANT. Averages over tasks have no scores per example,
    so `significant` depends only on their interval over seeds.
    """
    rows, keys = [], [*(("glue", name) for name in AVERAGES), *TITLES]
    for (corpus, task, _, metric), part in values.groupby(CELL[1:]):
        systems = {system: own.sort_values("seed") for system, own in part.groupby("system")}
        if baseline not in systems:
            continue
        base = None if task == "glue" else units_of(systems[baseline])
        for system, own in systems.items():
            if system == baseline:
                continue
            mean, low, high, _ = difference(part, system, baseline)
            of_examples = _over_examples(mean, base, None if task == "glue" else units_of(own))
            facts = {"system": system, "corpus": corpus, "task": task, "split": SPLIT, "metric": metric}
            facts |= {"baseline": baseline, "n": len(own), "difference": mean, "seeds_low": low, "seeds_high": high}
            facts |= dict(zip(("examples_low", "examples_high", "p"), of_examples, strict=True))
            title, name = ("Average", AVERAGES[metric]) if task == "glue" else TITLES[task, metric]
            facts |= {"_place": keys.index((task, metric)), "_title": title, "_metric": name}
            significant = bool(low * high > 0 and (task == "glue" or of_examples[2] < SIGNIFICANT))
            rows.append(facts | {"significant": significant, "_bold": significant})
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    return frame.assign(_mean=frame.groupby(["corpus", "system"])["difference"].transform("mean"))


def _over_examples(mean: float, base: UnitSums | None, own: UnitSums | None) -> tuple[float, float, float]:
    """Return the interval of a difference (bootstrap over test examples), and the p-value.

    Both ends and the p-value are NaN if the two systems were not measured on the same examples.
    """
    if base is None or own is None or base.text != own.text:
        return np.nan, np.nan, np.nan
    replicates = own.replicates - base.replicates
    return (*percentile_interval(replicates, n=own.n_blocks), paired_test(mean, replicates))
