"""What stands in the tables beside the measured: the cost of training, published rows that were not run, notes."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from retable.reporting.glue import is_glue
from retable.reporting.results import CELL, COLUMNS, ORACLE, Result
from retable.reporting.translation import is_translation
from retable.reporting.units import LIKELIHOODS
from retable.reporting.without_training import is_without_training

NOT_RUN = "not run"  # the verdict of a published row that the study has no run of


def complete(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    trained: Iterable[Result],
    notes: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    """The aggregates with the rows that others published and the study didn't run.

    Such rows are of the corpora on which the study measured a language model, of the data sets, in any form, of which
    it measured a translator, and of each task of GLUE, of tagging, of answers, of choices, of coreference or without
    training that it measured; they have no mean and no run, and as flops what the published training cost. Those of a
    row that was run are its own, from the metrics of `trained`. `notes` are texts by corpus and system, which stand
    before what a row has to say of itself.
    """
    models = frame[frame["metric"].isin(LIKELIHOODS) & (frame["system"] != ORACLE)]
    shown = references["metric"].isin(LIKELIHOODS) & references["corpus"].isin(models["corpus"])
    translated = _data_set(frame.loc[is_translation(frame["task"]), "corpus"])
    shown |= is_translation(references["task"]) & _data_set(references["corpus"]).isin(translated)
    shown |= is_without_training(references["task"]) & references["task"].isin(frame["task"])
    shown |= is_glue(references["task"]) & references["task"].isin(frame["task"])
    for task in ("tagging", "answers", "choices", "coreference"):
        shown |= (references["task"] == task) & references["corpus"].isin(frame.loc[frame["task"] == task, "corpus"])
    others = references[shown]
    others = others.rename(columns={"value": "published"}).assign(verdict=NOT_RUN, n=0, runs="", protocol="")
    others["note"] = others["note"].mask(
        others["relative_to"] != "", "judged by the difference to " + others["relative_to"]
    )
    run = set(frame[CELL].itertuples(index=False, name=None))
    others = others[[cell not in run for cell in others[CELL].itertuples(index=False, name=None)]]
    flops = pd.DataFrame([_flops(result) for result in trained], columns=["system", "corpus", "flops"])
    own = flops.groupby(["system", "corpus"])["flops"].mean()
    systems = list(zip(frame["system"], frame["corpus"], frame["task"], strict=True))
    frame = frame.assign(flops=[np.nan if task else own.get((system, corpus)) for system, corpus, task in systems])
    if len(others):
        frame = pd.concat([frame, others.reindex(columns=COLUMNS)]).sort_values(CELL, ignore_index=True)
    noted = (frame["task"] == "") | is_translation(frame["task"]) | is_glue(frame["task"])
    told = [
        notes.get(row.corpus, {}).get(row.system, "") if is_noted else ""
        for row, is_noted in zip(frame.itertuples(), noted, strict=True)
    ]
    joined = ["; ".join(filter(None, pair)) for pair in zip(told, frame["note"], strict=True)]
    return frame.assign(note=joined, flops=frame["flops"].astype(float))


def _data_set(corpora: pd.Series) -> pd.Series:
    """What a corpus is a form of: multi30k of multi30k_lowercase."""
    return corpora.map(lambda corpus: corpus.partition("_")[0])


def _flops(result: Result) -> tuple[str, str, float]:
    return result.run["system"], result.run["corpus"], result.metrics.get("flops", np.nan)
