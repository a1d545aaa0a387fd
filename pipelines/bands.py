"""A study's tables against its recorded bands: `python -m pipelines.bands study=smoke`. Exit code 1 on a drift."""

import sys
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from pipelines.entry import CONF, stage
from retable.artifacts import require
from retable.errors import UsageError
from retable.plan.conf import Conf
from retable.plan.study import read_study


@stage
def bands(cfg: DictConfig) -> None:
    recorded = read_study(Conf(CONF), cfg.name).reported.get("bands")
    if not recorded:
        raise UsageError(f"study {cfg.name} has no recorded bands; give conf/study/{cfg.name}.yaml a list `bands`")
    drifted = 0
    for table, rows in recorded.items():
        path = require(Path("results", cfg.name, f"{table}.csv"))
        measured = pd.read_csv(path, keep_default_na=False).set_index(["system", "task", "split", "metric"])["mean"]
        for system, task, split, metric, low, high in rows:
            key = (system, task, split, metric)
            value = float(measured.get(key, float("nan")))
            inside = low <= value <= high
            drifted += not inside
            verdict = "ok   " if inside else "DRIFT"
            print(f"{verdict} {table}: {' '.join(filter(None, key))} = {value:.4g}, band {low} to {high}")
    if drifted:
        sys.exit(1)


if __name__ == "__main__":
    bands()
