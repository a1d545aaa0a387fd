"""Recording in MLflow: one run a cell, the same one when a killed stage goes on. The only importer of mlflow."""

import contextlib
import fcntl
import getpass
import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunStatus, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from retable.errors import UsageError

for _chatty in ("alembic", "mlflow.store.db.utils", "mlflow.system_metrics.system_metrics_monitor"):
    logging.getLogger(_chatty).setLevel(logging.WARNING)

EXPERIMENT = "retable"
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # a task may call a column "#1 String", and a metric have a try's name
_VALUE_LIMIT = 6000  # MLflow's, for a parameter
_DIGEST_LIMIT = 36  # MLflow's, for a data set


class Run:
    """An open MLflow run. Logging a point that the run has already changes nothing."""

    def __init__(self, client: MlflowClient, run_id: str, measured: str | None = None, monitor: Any = None):
        self.id = run_id
        self._client = client
        self._measured = measured
        self._monitor = monitor
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
        if self._measured is not None:
            self._score(self._measured, metrics)

    def _score(self, run_id: str, metrics: Mapping[str, float]) -> None:
        """Log what was measured of a system on the run that trained it: beside the settings it is one plot."""
        there, now = self._client.get_run(run_id).data.metrics, int(time.time() * 1000)
        named = {_NOT_IN_NAMES.sub("_", name): value for name, value in metrics.items() if "/" in name}
        fresh = [Metric(name, value, now, 0) for name, value in named.items() if there.get(name) != value]
        for start in range(0, len(fresh), 1000):
            self._client.log_batch(run_id, metrics=fresh[start : start + 1000])

    def finish(self) -> None:
        self._stop_monitoring()
        self._client.set_terminated(self.id, RunStatus.to_string(RunStatus.FINISHED))

    def fail(self) -> None:
        self._stop_monitoring()
        with contextlib.suppress(MlflowException):
            self._client.set_terminated(self.id, RunStatus.to_string(RunStatus.FAILED))

    def _stop_monitoring(self) -> None:
        if self._monitor is not None:
            self._monitor.finish()


class DataSet(NamedTuple):
    """A file that a run reads: `context` is train, validation or test."""

    name: str
    digest: str
    context: str
    path: str

    def logged(self) -> DatasetInput:
        dataset = Dataset(self.name, self.digest[:_DIGEST_LIMIT], "local", json.dumps({"uri": self.path}))
        return DatasetInput(dataset, [InputTag("mlflow.data.context", self.context)])


def start(
    name: str,
    key: str,
    parameters: Mapping[str, Any],
    tags: Mapping[str, Any],
    inputs: Iterable[DataSet] = (),
    measured: str | None = None,
    monitored: bool = False,
) -> Run:
    """Open the run of `key`: the one that a killed or an earlier try began, or a new one called `name`.

    The key stands for a cell's configuration, inputs and code, so the same key means the same numbers, and what is
    done again is recorded once. The store is `MLFLOW_TRACKING_URI`, by default `mlflow.db` (sqlite) in the project
    with the artifacts beside it. `measured` is the id of the run of a system, which gets the scores, too. A `monitored`
    run has MLflow's system metrics, such as the processor's load every ten seconds, unless
    MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is false.
    """
    client, experiment = _store()
    named = {tag: str(value) for tag, value in tags.items()}
    run_id = _begun(client, experiment, key)
    if run_id is not None:
        client.update_run(run_id, status=RunStatus.to_string(RunStatus.RUNNING))
        client.log_batch(run_id, tags=[RunTag(tag, value) for tag, value in named.items()])
    else:  # what can't change later
        run_id = _create(client, experiment, name, key, named)
        logged = [Param(_NOT_IN_NAMES.sub("_", name), str(value)[:_VALUE_LIMIT]) for name, value in parameters.items()]
        for first in range(0, len(logged), 100):  # MLflow's limit for a batch
            client.log_batch(run_id, params=logged[first : first + 100])
        if read := [each.logged() for each in inputs]:
            client.log_inputs(run_id, read)
    return Run(client, run_id, measured, _monitor(client, run_id) if monitored else None)


def group(name: str, key: str, tags: Mapping[str, Any]) -> str:
    """The id of the run that others stand under, made where there is none of this key."""
    client, experiment = _store()
    with _alone():
        run_id = _begun(client, experiment, key) or _create(client, experiment, name, key, tags)
        client.set_terminated(run_id, RunStatus.to_string(RunStatus.FINISHED))
    return run_id


def known(run_id: str) -> bool:
    """Whether the store has a run: a cell may have been made on another machine, or before the store was removed."""
    client, _ = _store()
    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException:
        return False


def _store() -> tuple[MlflowClient, str]:
    with _alone():
        return (client := _client()), _experiment(client)


def _begun(client: MlflowClient, experiment: str, key: str) -> str | None:
    found = client.search_runs([experiment], f"tags.`retable.key` = '{key}'", max_results=1)
    return found[0].info.run_id if found else None


def _create(client: MlflowClient, experiment: str, name: str, key: str, tags: Mapping[str, Any]) -> str:
    named = {"retable.key": key, **tags}
    with contextlib.suppress(KeyError, OSError):  # nobody has this number, as in some containers
        named["mlflow.user"] = getpass.getuser()
    return client.create_run(experiment, run_name=name, tags=named).info.run_id


def _monitor(client: MlflowClient, run_id: str) -> Any:
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower() != "true":
        return None
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=client.tracking_uri)
    monitor.start()
    return monitor


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


def cell_of(run_id: str) -> Path:
    """The folder of the cell that a run made. UsageError where there is no such run, or it was of no cell."""
    try:
        tags = _client().get_run(run_id).data.tags
    except MlflowException as error:
        raise UsageError(f"runs:/{run_id} is no run of this MLflow: {error.message}") from None
    if "retable.cell" not in tags:
        raise UsageError(f"runs:/{run_id} is a run of no cell; take one that a stage made")
    return _root() / "outputs" / tags["retable.cell"]
