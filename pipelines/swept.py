"""What a job of a multirun knows of it, by its environment: how its cell's name ends, where it tells what it makes, and
of a search its trial."""

import json
import os
from pathlib import Path
from typing import Any

SWEPT = "RETABLE_SWEPT"  # the end of its cell's name, which says what the job sets
TOLD = "RETABLE_TOLD"  # the file in which the job says what it makes
TRIAL = "RETABLE_TRIAL"  # JSON: storage, study, trial, metric and pruner of a search, which may end a training


def is_job() -> bool:
    return SWEPT in os.environ


def suffix() -> str:
    return os.environ.get(SWEPT, "")


def tell(**facts: Any) -> None:
    """Say something to the multirun, beside what was said before."""
    if TOLD in os.environ:
        path = Path(os.environ[TOLD])
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(known | facts), encoding="utf-8")


def trial() -> dict[str, Any] | None:
    return json.loads(os.environ[TRIAL]) if TRIAL in os.environ else None


class ThereAlready(BaseException):
    """The cell stands there, made by the same configuration, inputs and code: there is nothing to do."""
