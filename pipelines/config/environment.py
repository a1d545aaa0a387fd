"""The environment variables by which a command tells its stages what to know.

All are read here but two: the fork server's own in `executors/local.py`, which runs without the project's code, and
RETABLE_PACKAGES in `retable.core.trust`, which the library needs as well.
"""

import json
import os
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from retable.core.errors import UsageError

DATA = "RETABLE_DATA"  # the folder of data sets
STUDY = "RETABLE_STUDY"  # the study that `retable repro` makes
PROGRESS = "RETABLE_PROGRESS"  # the file in which a training says how far it is: `step/steps`
DEVICES = "RETABLE_DEVICES"  # what an engine gives a process, as `executors.executor.resources` says it
ENGINE = "RETABLE_ENGINE"  # runs parts of a process's work: a name, or slots and address of one that runs
PARENT_RUN = "RETABLE_PARENT_RUN"  # in MLflow, of a sweep's jobs
JOB_SUFFIX = "RETABLE_JOB_SUFFIX"  # the end of the name of a job's cell, which says what the job sets
JOB_REPORT = "RETABLE_JOB_REPORT"  # the file in which a job says what it makes
TRIAL = "RETABLE_TRIAL"  # JSON: storage, study, trial, metric and pruner of a search, which may end a training


def data() -> Path:
    return Path(os.environ.get(DATA, "data"))


def study() -> str | None:
    """The study that DVC runs this stage for; None for a run by hand."""
    return os.environ.get(STUDY) if by_dvc() else None


def by_dvc() -> bool:
    return "DVC_STAGE" in os.environ


def progress() -> Path | None:
    return Path(told) if (told := os.environ.get(PROGRESS)) else None


def engine() -> str:
    return os.environ.get(ENGINE, "local")


def parent_run() -> str | None:
    return os.environ.get(PARENT_RUN)


def is_job() -> bool:
    """Whether this is a job of a multirun."""
    return JOB_SUFFIX in os.environ


def suffix() -> str:
    return os.environ.get(JOB_SUFFIX, "")


def report(**facts: Any) -> None:
    """Say something to the multirun, beside what was said before."""
    if JOB_REPORT in os.environ:
        path = Path(os.environ[JOB_REPORT])
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(known | facts), encoding="utf-8")


def trial() -> dict[str, Any] | None:
    return json.loads(os.environ[TRIAL]) if TRIAL in os.environ else None


def _readable(name: str, *default: Any) -> Any:
    """Resolve `oc.env`: other variables may be secrets, and the value could reach a committed file or MLflow."""
    if name != DATA:
        raise UsageError(f"${{oc.env:{name}}} is not read; a configuration may read only the variable {DATA}")
    return os.environ.get(name, *default) if default else os.environ[name]


OmegaConf.register_new_resolver("oc.env", _readable, replace=True)
