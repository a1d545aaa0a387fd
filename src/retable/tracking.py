"""Recording in MLflow: one run a cell, the same one when a killed stage goes on. The only importer of mlflow."""

import contextlib
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
from mlflow.entities import Metric, Param, RunStatus, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from retable.errors import UsageError

for _chatty in ("alembic", "mlflow.store.db.utils"):
    logging.getLogger(_chatty).setLevel(logging.WARNING)

EXPERIMENT = "retable"
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # a task may call a column "#1 String", and a metric have a try's name
_VALUE_LIMIT = 6000  # MLflow's limit for a parameter


class Run:
    """An open MLflow run. Logging a point that the run has already changes nothing."""

    def __init__(self, client: MlflowClient, run_id: str):
        self.id = run_id
        self._client = client
        self._logged: dict[str, set[int]] = {}

    def log(self, points: Iterable[tuple[int, str, float]]) -> None:
        """Log (step, metric, value) points; a resumed run may bring points that the killed one had logged."""
        now = int(time.time() * 1000)
        fresh = []
        for step, said, value in points:
            name = _NOT_IN_NAMES.sub("_", said)
            if name not in self._logged:
                history = self._client.get_metric_history(self.id, name)
                self._logged[name] = {metric.step for metric in history}
            if step not in self._logged[name]:
                self._logged[name].add(step)
                fresh.append(Metric(name, value, now, step))
        for start in range(0, len(fresh), 1000):  # MLflow's limit for a batch
            self._client.log_batch(self.id, metrics=fresh[start : start + 1000])

    def describe(self, metrics: Mapping[str, float], files: Iterable[Path]) -> None:
        """Log the final metrics that no curve has logged, and the small files that describe the run."""
        self.log(
            [(0, name, value) for name, value in metrics.items() if _NOT_IN_NAMES.sub("_", name) not in self._logged]
        )
        for file in files:
            self._client.log_artifact(self.id, str(file))

    def finish(self) -> None:
        self._client.set_terminated(self.id, RunStatus.to_string(RunStatus.FINISHED))

    def fail(self) -> None:
        with contextlib.suppress(MlflowException):
            self._client.set_terminated(self.id, RunStatus.to_string(RunStatus.FAILED))


def start(name: str, key: str, parameters: Mapping[str, Any], tags: Mapping[str, Any]) -> Run:
    """Open the run of `key`: the one that a killed or an earlier try began, or a new one called `name`.

    The key stands for a cell's configuration, inputs and code, so the same key means the same numbers, and what is
    done again is recorded once. The store is `MLFLOW_TRACKING_URI`, by default `mlflow.db` (sqlite) in the project
    with the artifacts beside it.
    """
    with _alone():
        client = _client()
        experiment = _experiment(client)
    named = {"retable.key": key} | {tag: str(value) for tag, value in tags.items()}
    begun = client.search_runs([experiment], f"tags.`retable.key` = '{key}'", max_results=1)
    if begun:
        run_id = begun[0].info.run_id
        client.update_run(run_id, status=RunStatus.to_string(RunStatus.RUNNING))
        client.log_batch(run_id, tags=[RunTag(tag, value) for tag, value in named.items()])
    else:
        run_id = client.create_run(experiment, run_name=name, tags=named).info.run_id
    logged = [Param(_NOT_IN_NAMES.sub("_", name), str(value)[:_VALUE_LIMIT]) for name, value in parameters.items()]
    for first in range(0, len(logged), 100):  # MLflow's limit for a batch; the same value again changes nothing
        client.log_batch(run_id, params=logged[first : first + 100])
    return Run(client, run_id)


def _root() -> Path:
    # An experiment of `dvc exp run --temp` runs in a copy of the project; its records belong to the project.
    return Path(os.environ.get("DVC_ROOT", ".")).resolve()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: two that open a store which isn't there would both make its tables, and one would fail."""
    with (_root() / "mlflow.db.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _client() -> MlflowClient:
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{_root() / 'mlflow.db'}"
    if "://" not in uri or uri.startswith("file:"):
        raise UsageError(
            f"MLFLOW_TRACKING_URI={uri} is a file store, which MLflow no longer supports; "
            "write sqlite:////full/path/mlflow.db or the address of a server"
        )
    return MlflowClient(uri)


def _experiment(client: MlflowClient) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found:
        return found.experiment_id
    local = client.tracking_uri.startswith("sqlite:")
    location = (_root() / "mlartifacts").as_uri() if local else None
    try:
        return client.create_experiment(EXPERIMENT, artifact_location=location)
    except MlflowException:  # another process made it in the meantime
        found = client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            raise
        return found.experiment_id
