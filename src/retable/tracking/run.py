"""Log a cell's run to MLflow. If MLflow does not answer, the run is stored in `work/mlflow` and sent later."""

import contextlib
import fcntl
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunStatus, RunTag
from mlflow.tracking import MlflowClient

from retable.core.artifacts import read_record, root, write_json, write_record
from retable.core.digests import digest_of
from retable.tracking.store import (
    NO_ANSWER,
    begun,
    concealed,
    create,
    exclusive,
    is_known,
    open_store,
    place_of,
    tagged,
)

WAITING = Path("work/mlflow")  # Folder with the runs that MLflow has not accepted yet.
OPEN = Path("work/open")  # Folder with a locked file (`_Mark`) for each run that a process has open.
# A run has a tag for each process in which it is open: this prefix and the name of the process's `_Mark`.
OPEN_BY = "retable.open."
SCORE = "score"  # Name of the metric for sorting a list of runs.
SCORED_BY = "retable.score"  # The tag with the name of the metric that SCORE copies.
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # Characters that MLflow rejects in names.
_VALUE_LIMIT = 6000  # MLflow's limit for the value of a parameter, in characters.
_DIGEST_LIMIT = 36  # MLflow's limit for the digest of a data set, in characters.


class DataSet(NamedTuple):
    """A file that a run reads; `context` is train, validation or test."""

    name: str
    digest: str
    context: str
    path: str

    def logged(self) -> DatasetInput:
        dataset = Dataset(self.name, self.digest[:_DIGEST_LIMIT], "local", json.dumps({"uri": self.path}))
        return DatasetInput(dataset, [InputTag("mlflow.data.context", self.context)])


class Group(NamedTuple):
    """A parent run, such as the run of a study; the first child run creates it."""

    name: str
    key: str
    tags: dict[str, str]


class RunSpec(NamedTuple):
    """All facts needed to open a run, which can be stored as JSON until MLflow answers.

    Attributes:
        key: identifies a cell's configuration, inputs and code. The same key means the same numbers, so a repeated or
            resumed cell is recorded once.
        upstream: the cells from which this cell was made; a tag lists their runs.
        measures: for an evaluation, the name of its run as a child of the run of the first cell in `upstream`. The
            parent run also gets the scores. If the first cell in `upstream` has no run, the parent is `group`, and the
            run's name is `name`.
        parent: id of the parent run; takes precedence over `measures` and `group`.
        monitored: whether to log MLflow's system metrics, such as the CPU load every ten seconds, if
            MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is true.
    """

    name: str
    key: str
    parameters: dict[str, str] = {}  # noqa: RUF012, not mutated
    tags: dict[str, str] = {}  # noqa: RUF012
    data_sets: Sequence[DataSet] = ()
    upstream: Sequence[str] = ()
    measures: str | None = None
    group: Group | None = None
    parent: str | None = None
    monitored: bool = False


class Ending(NamedTuple):
    """The status, metrics, files and tags with which a run is closed."""

    status: str
    metrics: dict[str, float]
    files: Sequence[str]
    tags: dict[str, str] = {}  # noqa: RUF012, not mutated


class Run:
    """A run in MLflow. If MLflow does not answer, training continues without waiting.

    Logged points that MLflow did not accept are sent again after some minutes, and at the end of the run. If MLflow
    still does not answer, the run is stored in `work/mlflow` until `send_waiting` sends it. Points that MLflow already
    has are not sent again.

    Attributes:
        id: the run's id in MLflow; None until MLflow answers.
    """

    id: str | None = None

    def __init__(self, opening: RunSpec, points: Iterable[tuple[int, str, float]] = (), mark: "_Mark | None" = None):
        self._opening, self._points, self._mark = opening, [*points], mark
        self._taken: list[tuple[int, str, float]] = []
        self._measured: str | None = None
        self._monitor: Any = None
        self._logged: dict[str, set[int]] = {}
        self._silent_until: float | None = None

    def log(self, points: Iterable[tuple[int, str, float]]) -> None:
        """Log (step, metric, value) points that the run did not log before it was killed."""
        self._points += points
        if self._silent_until is None or time.monotonic() > self._silent_until:
            self._send()

    def finish(self, metrics: Mapping[str, float], files: Iterable[Path], score: str | None = None) -> None:
        """Close the run as FINISHED.

        Args:
            metrics: final metrics; metrics that already have points are skipped.
            files: small files to store with the run.
            score: name of the metric for sorting a list of runs.
        """
        tags = {} if score is None else {SCORED_BY: score}
        metrics = dict(metrics) if score is None else {**metrics, SCORE: metrics[score]}
        self._end(RunStatus.FINISHED, metrics, [str(file) for file in files], tags)

    def fail(self) -> None:
        self._end(RunStatus.FAILED)

    def stop(self, tags: Mapping[str, str] | None = None) -> None:
        """Close the run as KILLED, with tags; the next run with the same key resumes it."""
        self._end(RunStatus.KILLED, tags=tags)

    def _end(
        self,
        status: int,
        metrics: Mapping[str, float] | None = None,
        files: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        if self._monitor is not None:
            self._monitor.finish()
        sent = False
        try:
            sent = self._send(
                ending := Ending(RunStatus.to_string(status), dict(metrics or {}), files, dict(tags or {}))
            )
            if not sent:
                _wait(self._opening, self._taken + self._points, ending, self.id)
        finally:  # even on a full disk: the next run of this project closes this run
            if self._mark is not None:
                self._mark.leave(remove=sent)
        if sent:
            send_waiting()
            end_killed()

    def _send(self, ending: "Ending | None" = None) -> bool:
        """Send pending points, and `ending` if given; return whether MLflow accepted them."""
        began = time.monotonic()
        try:
            client, experiment = open_store()
            if self.id is not None and self._silent_until is not None and not is_known(client, self.id):
                self._begin_again()
            if self.id is None:
                by = self._mark.tag if self._mark else {}
                self.id, self._measured = _open(client, experiment, self._opening, by)
                self._monitor = _monitor(client, self.id) if self._opening.monitored and ending is None else None
            self._log(client, self.id)
            if ending is not None:
                self._close(client, self.id, ending)
        except NO_ANSWER as error:
            if self._silent_until is None:
                reason = concealed(str(error)).strip().partition("\n")[0][:200] or type(error).__name__
                print(f"MLflow does not answer: {reason}; the run is sent later, or by `retable sync`", file=sys.stderr)
            now = time.monotonic()
            self._silent_until = now + max(60, 20 * (now - began))
            return False
        return True

    def _begin_again(self) -> None:
        """Prepare to log all points to a new run, after the store was removed and created again."""
        if self._monitor is not None:
            self._monitor.finish()
        self.id, self._logged, self._points, self._taken = None, {}, self._taken + self._points, []

    def _log(self, client: MlflowClient, run_id: str) -> None:
        now = int(time.time() * 1000)
        fresh = []
        for step, metric_name, value in self._points:
            name = _NOT_IN_NAMES.sub("_", metric_name)
            if step not in self._steps(client, run_id, name):
                fresh.append(Metric(name, value, now, step))
        for start in range(0, len(fresh), 1000):  # MLflow's maximum number of metrics per request
            batch = fresh[start : start + 1000]
            client.log_batch(run_id, metrics=batch)
            for metric in batch:
                self._logged[metric.key].add(metric.step)
        self._taken += self._points
        self._points = []

    def _steps(self, client: MlflowClient, run_id: str, name: str) -> set[int]:
        """Return the steps at which MLflow has points of a metric."""
        if name not in self._logged:
            self._logged[name] = {metric.step for metric in client.get_metric_history(run_id, name)}
        return self._logged[name]

    def _close(self, client: MlflowClient, run_id: str, ending: "Ending") -> None:
        named = {_NOT_IN_NAMES.sub("_", name): value for name, value in ending.metrics.items()}
        self._points = [(0, name, value) for name, value in named.items() if not self._steps(client, run_id, name)]
        self._log(client, run_id)
        for file in ending.files:
            client.log_artifact(run_id, file)
        for tag, value in ending.tags.items():
            client.set_tag(run_id, tag, value)
        if self._measured is not None:
            _score(client, self._measured, ending)
        _terminate(client, run_id, ending.status)
        if self._mark is not None:
            _untag(client, run_id, self._mark.path.name)


class _Mark:
    """A file that this process keeps locked while it has a run open; the kernel unlocks it if the process dies.

    The file's unique name is part of a tag of the run, because several processes, also on different machines, may have
    the same run open.
    """

    def __init__(self, key: str):
        while True:
            self.path = root() / OPEN / uuid4().hex
            with contextlib.suppress(FileNotFoundError):  # repeat if another process removed the empty folder
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                fcntl.flock(self._file, fcntl.LOCK_EX)
                if self.path.exists():  # `end_killed` of another process may have removed the file
                    self._write(key)
                    break
                os.close(self._file)
        self.tag = {f"{OPEN_BY}{self.path.name}": f"process {os.getpid()} on {socket.gethostname()}"}

    def _write(self, key: str) -> None:
        try:
            os.write(self._file, key.encode())
        except OSError:  # the disk is full
            self.leave(remove=True)
            raise

    def leave(self, remove: bool) -> None:
        """Unlock the mark's file; remove it if MLflow has accepted the run's end."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def start(opening: RunSpec) -> Run:
    """Open a run, and discard a waiting run with the same key, because all points are logged again."""
    _waiting(opening.key).unlink(missing_ok=True)
    run = Run(opening, mark=_Mark(opening.key))
    run.log([])
    if run.id is not None:
        end_killed()
    return run


def end_killed() -> int:
    """Close the runs of this project whose processes were killed.

    Runs that another process has open, here or on another machine, stay open. If MLflow does not answer, the next call
    tries again.

    Returns: the number of runs closed.
    """
    ended = 0
    for path in (root() / OPEN).glob("*"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("r+", encoding="utf-8") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                client, experiment = open_store()
                for run_id in begun(client, experiment, mark.read()):
                    _untag(client, run_id, path.name)
                    run = client.get_run(run_id)
                    is_running = run.info.status == RunStatus.to_string(RunStatus.RUNNING)
                    if is_running and not any(tag.startswith(OPEN_BY) for tag in run.data.tags):
                        _terminate(client, run_id, RunStatus.to_string(RunStatus.KILLED))
                        ended += 1
            except NO_ANSWER:
                break
            path.unlink()
    with contextlib.suppress(OSError):  # the folder does not exist, or some runs are open
        (root() / OPEN).rmdir()
    return ended


def _untag(client: MlflowClient, run_id: str, mark: str) -> None:
    if (tag := f"{OPEN_BY}{mark}") in client.get_run(run_id).data.tags:
        client.delete_tag(run_id, tag)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def send_waiting() -> int:
    """Send waiting runs to MLflow, oldest first, and update the records of their cells.

    Sending stops at the first run that MLflow does not accept.

    Returns: the number of runs sent.
    """
    sent = 0
    if not (folder := root() / WAITING).exists():
        return sent
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process is sending the runs
            return sent
        for path in sorted(folder.glob("*.json"), key=_written):
            try:
                waiting = json.loads(path.read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):  # another process opened the run again, or the file is incomplete
                continue
            cell = place_of({"retable.cell": ""} | waiting["opening"]["tags"], str(path))
            run = Run(_opening_of(waiting["opening"]), waiting["points"])
            ending = Ending(**waiting["ending"])
            there = ending._replace(files=[file for file in ending.files if Path(file).exists()])
            if not run._send(there):
                break
            path.unlink(missing_ok=True)
            sent += 1
            if (record := read_record(cell)) and record.get("mlflow_run_id") == waiting["id"]:
                write_record(cell, record | {"mlflow_run_id": run.id})
    return sent


def n_waiting() -> int:
    """Return the number of runs that MLflow has not accepted yet."""
    return len(list((root() / WAITING).glob("*.json")))


def _wait(opening: RunSpec, points: Sequence[tuple[int, str, float]], ending: Ending, id: str | None) -> None:
    path = _waiting(opening.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = opening._asdict() | {"data_sets": [each._asdict() for each in opening.data_sets]}
    facts["group"] = opening.group and opening.group._asdict()
    begun = path.with_suffix(".begun")
    try:
        write_json(begun, {"opening": facts, "points": points, "ending": ending._asdict(), "id": id})
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)  # the file still exists only after an error, such as a full disk


def _waiting(key: str) -> Path:
    return root() / WAITING / f"{digest_of(key)[:12]}.json"


def _opening_of(facts: Mapping[str, Any]) -> RunSpec:
    data_sets = [DataSet(**each) for each in facts["data_sets"]]
    return RunSpec(**{**facts, "data_sets": data_sets, "group": facts["group"] and Group(**facts["group"])})


def _open(client: MlflowClient, experiment: str, opening: RunSpec, by: dict[str, str]) -> tuple[str, str | None]:
    """Reopen the run with this key, or create it.

    Args:
        client, experiment: the store and the id of its experiment.
        opening: describes the run.
        by: the tag that shows that this process has opened the run.

    Returns: the id of the run; and, for an evaluation, the id of the run that trained the system, otherwise None.
    """
    upstream = [read_record(Path(cell)).get("mlflow_run_id") for cell in opening.upstream]
    runs = [run for run in upstream if run is not None]
    measured = runs[0] if opening.measures and upstream[:1] == runs[:1] and runs and is_known(client, runs[0]) else None
    tags = opening.tags | {"retable.upstream": ",".join(runs)} | by
    if parent := opening.parent or measured or (opening.group and _group(client, experiment, opening.group)):
        tags["mlflow.parentRunId"] = parent
    if there := begun(client, experiment, opening.key):
        run_id = there[0]
        client.log_batch(run_id, tags=[RunTag(tag, value) for tag, value in tags.items()])
        client.update_run(run_id, status=RunStatus.to_string(RunStatus.RUNNING))
        return run_id, measured
    name = opening.measures if measured and opening.measures else opening.name
    run_id = create(client, experiment, name, opening.key, tags)
    logged = [Param(_NOT_IN_NAMES.sub("_", name), value[:_VALUE_LIMIT]) for name, value in opening.parameters.items()]
    for first in range(0, len(logged), 100):  # MLflow's maximum number of parameters per request
        client.log_batch(run_id, params=logged[first : first + 100])
    if read := [each.logged() for each in opening.data_sets]:
        client.log_inputs(run_id, read)
    return run_id, measured


def _terminate(client: MlflowClient, run_id: str, status: str) -> None:
    """End a run with the current time, or with its start time if the clock was set back."""
    client.set_terminated(run_id, status, max(int(time.time() * 1000), client.get_run(run_id).info.start_time))


def _score(client: MlflowClient, run_id: str, ending: Ending) -> None:
    """Log an evaluation's scores to the run that trained the system, so that MLflow can plot scores by setting.

    SCORE of that run is a perplexity if one was measured, otherwise the score of the first evaluation.
    """
    run, now = client.get_run(run_id), int(time.time() * 1000)
    there, of = run.data.metrics, {tag: value for tag, value in ending.tags.items() if tag == SCORED_BY}
    named = {_NOT_IN_NAMES.sub("_", name): value for name, value in ending.metrics.items() if "/" in name}
    before = run.data.tags.get(SCORED_BY, "")
    if of and (of[SCORED_BY].endswith("perplexity_word") or before in ("", of[SCORED_BY])):
        named[SCORE] = ending.metrics[SCORE]
        client.set_tag(run_id, SCORED_BY, of[SCORED_BY])
    fresh = [Metric(name, value, now, 0) for name, value in named.items() if there.get(name) != value]
    for start in range(0, len(fresh), 1000):
        client.log_batch(run_id, metrics=fresh[start : start + 1000])


def _group(client: MlflowClient, experiment: str, group: Group) -> str:
    """Return the id of a group's parent run; create the run if needed.

    If several machines created the run at the same moment, the first run is kept, and gets the children of the other
    runs.
    """
    with exclusive():
        if not begun(client, experiment, group.key):
            create(client, experiment, group.name, group.key, group.tags)
        first, *others = begun(client, experiment, group.key)
        for other in others:
            for below in tagged(client, experiment, "mlflow.parentRunId", other):
                client.set_tag(below, "mlflow.parentRunId", first)
            client.delete_run(other)
        client.set_terminated(first, RunStatus.to_string(RunStatus.FINISHED))
    return first


def describe_group(key: str, note: str, metrics: Mapping[str, float], page: Path) -> None:
    """Add a note, metrics and a page to a group's run, if MLflow contains the run.

    The note ends with a link to the page. If the store does not answer, one line is printed.
    """
    try:
        client, experiment = open_store()
        for run_id in begun(client, experiment, key)[:1]:
            link = f"#/experiments/{experiment}/runs/{run_id}/artifacts/{page.name}"
            client.log_artifact(run_id, str(page))
            client.set_tag(
                run_id, "mlflow.note.content", f"{note}\n\n[The report]({link}), a copy of `{page}`.".strip()
            )
            now = int(time.time() * 1000)
            named = [Metric(_NOT_IN_NAMES.sub("_", name), value, now, 0) for name, value in metrics.items()]
            for start in range(0, len(named), 1000):
                client.log_batch(run_id, metrics=named[start : start + 1000])
    except NO_ANSWER as error:
        print(f"the study's means are not in MLflow: {concealed(str(error)).strip()[:200]}", file=sys.stderr)


def _monitor(client: MlflowClient, run_id: str) -> Any:
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false").lower() != "true":
        return None
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=client.tracking_uri)
    monitor.start()
    return monitor
