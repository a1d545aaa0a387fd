"""A study's tables against its recorded bands: `python -m pipelines.bands study=smoke`. Exit code 1 on a drift."""

import sys
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from pipelines.entry import stage
from retable.artifacts import require
from retable.errors import UsageError


@stage
def bands(cfg: DictConfig) -> None:
    if "bands" not in cfg:
        raise UsageError(f"study {cfg.study} has no recorded bands; give conf/study/{cfg.study}.yaml a list `bands`")
    drifted = 0
    for table, rows in cfg.bands.items():
        path = require(Path("results", cfg.study, f"{table}.csv"))
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
