"""Losses and speeds of the same training in one process and in several.

A study lists, for each system that is trained in one process, the systems that differ only in their trainer:

    devices: {gpt: [gpt_ddp_2, gpt_fsdp_2]}

Efficiency is the speed of n processes, divided by n times the speed of one process.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import nan, prod
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import yaml

from retable.core.errors import UsageError
from retable.reporting.figures import FAINT, Figure, titled
from retable.reporting.lines import DOTTED, Look, Scale, line_panel
from retable.reporting.results import CELL, Result

LOOKS = {"ddp": Look(is_marked=True), "fsdp": Look(DOTTED, is_marked=True, shape="square")}
COLUMNS = [
    *("mean", "loss", "strategy", "processes", "threads", "accelerator"),
    *("tokens_per_second", "efficiency", "runs", "_of"),
]


def devices_rows(devices: Mapping[str, Sequence[str]], pretrained: Sequence[Result]) -> pd.DataFrame:
    """Return one row per corpus and system, as means over seeds; each system in one process precedes its variants.

    `mean` is the difference of the last validation loss to that of the system in one process, in nats; it is NaN for
    this system itself. `tokens_per_second` and `efficiency` are NaN if processes shared cores, or if the record of the
    cell has no speed.

    Args:
        devices: systems with several processes, by the same system with one process.
        pretrained: results of the stage `pretrain`.

    Raises: UsageError: a system has no validation loss, or there is no result of the same system with one process.
    """
    rows = []
    for of, variants in devices.items():
        one: dict[str, dict[str, Any]] = {}
        for system in (of, *variants):
            for corpus, runs in _by_corpus(system, pretrained):
                row = _measured(system, runs)
                if system == of and row["processes"] > 1:
                    raise UsageError(f"devices: {of} has {row['processes']} processes; name a system with one process")
                if system != of and corpus not in one:
                    raise UsageError(f"devices: {of} is not trained on {corpus}, so {system} cannot be compared")
                first = one.setdefault(corpus, row)
                facts = {"system": system, "corpus": corpus, "task": "", "split": "validation"}
                row |= facts | {"metric": "loss_difference", "mean": nan, "_of": of}
                row["efficiency"] = row["tokens_per_second"] / first["tokens_per_second"] / row["processes"]
                rows.append(row | ({} if row is first else {"mean": row["loss"] - first["loss"]}))
    return pd.DataFrame(rows, columns=[*CELL, *COLUMNS]).sort_values("corpus", kind="stable", ignore_index=True)


def _by_corpus(system: str, results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    own = [result for result in results if result.run["system"] == system]
    for corpus in sorted({result.run["corpus"] for result in own}):
        yield corpus, [result for result in own if result.run["corpus"] == corpus]


def _measured(system: str, runs: Sequence[Result]) -> dict[str, Any]:
    if any("validation/loss" not in run.metrics for run in runs):
        raise UsageError(f"devices: {system} has no validation loss; list only systems that are trained by gradients")
    trainer = yaml.load(runs[0].config, yaml.CSafeLoader)["trainer"]
    devices = trainer["devices"]
    return {
        "loss": np.mean([run.metrics["validation/loss"] for run in runs]),
        "strategy": trainer.get("strategy", ""),
        "processes": prod((devices if isinstance(devices, int) else len(devices), trainer.get("num_nodes", 1))),
        "threads": runs[0].run.get("threads", 1),
        "accelerator": trainer["accelerator"],
        "tokens_per_second": np.mean([run.record.get("tokens_per_second", nan) for run in runs]),
        "runs": " ".join(run.name for run in runs),
    }


def devices_figures(rows: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus: the speed relative to one process, by the number of processes."""
    timed = rows[rows["efficiency"].notna()]
    corpora = timed.loc[timed["processes"] > 1, "corpus"]
    return {str(corpus): _speeds(str(corpus), timed[timed["corpus"] == corpus]) for corpus in corpora.unique()}


def _speeds(corpus: str, rows: pd.DataFrame) -> Figure:
    rows = rows.assign(x=rows["processes"], y=rows["processes"] * rows["efficiency"], system=rows["_of"])
    several = rows[rows["processes"] > 1]
    firsts = several.drop_duplicates(["system", "strategy"]).assign(x=1, y=1.0)
    lines = pd.concat([firsts, several]).rename(columns={"strategy": "variant"})
    most = int(lines["x"].max())
    x = Scale("processes", 0.95, most + 0.05, ticks=range(1, most + 1), format="d")
    y = Scale.over("speed relative to one process", lines["y"], [most])
    ideal = alt.Chart(pd.DataFrame({"x": [1, most], "y": [1, most]})).mark_line(color=FAINT, strokeDash=[6, 3])
    looks = {name: look for name, look in LOOKS.items() if name in {*lines["variant"]}}
    lines = lines[["system", "variant", "x", "y"]].sort_values(["system", "variant", "x"])
    figure = line_panel(lines, x, y, looks, over=[ideal.encode(x.x(), y.y())])
    subtitle = "circles: DDP; squares, dotted: FSDP; grey: an efficiency of 1"
    return titled(figure, "Speed by number of processes", f"corpus {corpus}", subtitle)
