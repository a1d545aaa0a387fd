"""Environment variables that pass facts from a command to its stages.

Two more variables are defined elsewhere. RETABLE_FORKS is in `executors/local.py`, which runs without the project's
code. RETABLE_PACKAGES is in `retable.core.trust`, because the library needs this variable as well.
"""

import json
import os
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from retable.core.errors import UsageError

DATA = "RETABLE_DATA"  # the folder of data sets
MIRROR = "RETABLE_MIRROR"  # a folder or address with the same paths as the folder of data sets, for `retable fetch`
STUDY = "RETABLE_STUDY"  # the study that `retable repro` runs
PROGRESS = "RETABLE_PROGRESS"  # the file to which training writes its progress, such as 10/200
DEVICES = "RETABLE_DEVICES"  # devices that a process needs, in the format of `executors.executor.resources`
ENGINE = "RETABLE_ENGINE"  # engine that runs parts of a process's work: name, or slots and server address
PARENT_RUN = "RETABLE_PARENT_RUN"  # a sweep's MLflow run, which is the parent of the runs of all jobs
JOB_SUFFIX = "RETABLE_JOB_SUFFIX"  # suffix of a cell's name, made from the job's settings
JOB_REPORT = "RETABLE_JOB_REPORT"  # the file to which a job writes facts about its result
TRIAL = "RETABLE_TRIAL"  # as JSON, a search's storage, study, trial, metric, and its pruner for early stopping


def data() -> Path:
    return Path(os.environ.get(DATA) or "data")


def mirror() -> str | None:
    """Return the address of the mirror without a final slash, or None if no mirror is set."""
    return os.environ.get(MIRROR, "").rstrip("/") or None


def study() -> str | None:
    """Return the study for which DVC runs this stage, or None if a user started the stage."""
    return os.environ.get(STUDY) if by_dvc() else None


def by_dvc() -> bool:
    return "DVC_STAGE" in os.environ


def progress() -> Path | None:
    return Path(file) if (file := os.environ.get(PROGRESS)) else None


def engine() -> str:
    return os.environ.get(ENGINE, "local")


def parent_run() -> str | None:
    return os.environ.get(PARENT_RUN)


def is_job() -> bool:
    """Return whether this process is a job of a multirun."""
    return JOB_SUFFIX in os.environ


def suffix() -> str:
    return os.environ.get(JOB_SUFFIX, "")


def report(**facts: Any) -> None:
    """Add facts to the report that a job writes for its multirun. Outside a multirun, do nothing."""
    if JOB_REPORT in os.environ:
        path = Path(os.environ[JOB_REPORT])
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(known | facts), encoding="utf-8")


def trial() -> dict[str, Any] | None:
    return json.loads(os.environ[TRIAL]) if TRIAL in os.environ else None


def _readable(name: str, *default: Any) -> Any:
    """Resolve `oc.env` for RETABLE_DATA only: a secret variable could reach a committed file or MLflow."""
    if name != DATA:
        raise UsageError(f"${{oc.env:{name}}} is not allowed; a configuration may read only the variable {DATA}")
    return os.environ.get(name, *default) if default else os.environ[name]


OmegaConf.register_new_resolver("oc.env", _readable, replace=True)
