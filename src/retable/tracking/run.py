"""A cell's run in MLflow, as far as that answers; what it does not take waits for it."""

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

WAITING = Path("work/mlflow")  # what MLflow did not take
OPEN = Path("work/open")  # a mark for each run that a process has open
OPEN_BY = "retable.open."  # the tag that a run has as long as a mark of this name stands somewhere
SCORE = "score"  # the metric by which a list of runs is sorted
SCORED_BY = "retable.score"  # the tag with the name of the metric that this is
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # a task may call a column "#1 String", and a metric have a try's name
_VALUE_LIMIT = 6000  # MLflow's, for a parameter
_DIGEST_LIMIT = 36  # MLflow's, for a data set


class DataSet(NamedTuple):
    """A file that a run reads: `context` is train, validation or test."""

    name: str
    digest: str
    context: str
    path: str

    def logged(self) -> DatasetInput:
        dataset = Dataset(self.name, self.digest[:_DIGEST_LIMIT], "local", json.dumps({"uri": self.path}))
        return DatasetInput(dataset, [InputTag("mlflow.data.context", self.context)])


class Group(NamedTuple):
    """A run under which others stand, such as a study's: made by the first of them."""

    name: str
    key: str
    tags: dict[str, str]


class RunSpec(NamedTuple):
    """What a run is opened with; JSON holds it, so that it can wait for MLflow.

    key: it stands for a cell's configuration, inputs and code. The same key means the same numbers, so what is done
        again, or goes on behind a kill, is recorded once.
    upstream: the cells that it was made from, whose runs a tag names.
    measures: how it is called below the run of the system in the first of these, which gets its scores, too. Where that
        has no run, it stands under `group`, as `name`.
    parent: the id of the run that it stands under, whatever else there is.
    monitored: whether it has MLflow's system metrics, such as the processor's load every ten seconds, if
        MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is true.
    """

    name: str
    key: str
    parameters: dict[str, str] = {}  # noqa: RUF012, nobody changes it
    tags: dict[str, str] = {}  # noqa: RUF012
    data_sets: Sequence[DataSet] = ()
    upstream: Sequence[str] = ()
    measures: str | None = None
    group: Group | None = None
    parent: str | None = None
    monitored: bool = False


class Ending(NamedTuple):
    """How a run is closed."""

    status: str
    metrics: dict[str, float]
    files: Sequence[str]
    tags: dict[str, str] = {}  # noqa: RUF012, nobody changes it


class Run:
    """A run in MLflow, if that answers; a training neither ends nor waits for it.

    What it doesn't take is sent again after some minutes, and at the end; what then is left waits in `work/mlflow` for
    `send_waiting`. Points that MLflow has already change nothing.

    id: that in MLflow; None as long as it has not answered.
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
        """Log (step, metric, value) points; a resumed run may bring points that the killed one had logged."""
        self._points += points
        if self._silent_until is None or time.monotonic() > self._silent_until:
            self._send()

    def finish(self, metrics: Mapping[str, float], files: Iterable[Path], score: str | None = None) -> None:
        """Close it with the final metrics that no curve has logged, and small files that describe it.

        score: the name of the metric by which a list of runs is sorted.
        """
        tags = {} if score is None else {SCORED_BY: score}
        metrics = dict(metrics) if score is None else {**metrics, SCORE: metrics[score]}
        self._end(RunStatus.FINISHED, metrics, [str(file) for file in files], tags)

    def fail(self) -> None:
        self._end(RunStatus.FAILED)

    def stop(self, tags: Mapping[str, str] | None = None) -> None:
        """Somebody ended it, which tags may say more of; the run of the same key goes on with it."""
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
        sent = self._send(ending := Ending(RunStatus.to_string(status), dict(metrics or {}), files, dict(tags or {})))
        if not sent:
            _wait(self._opening, self._taken + self._points, ending, self.id)
        if self._mark is not None:
            self._mark.leave(remove=sent)
        if sent:
            send_waiting()
            end_killed()

    def _send(self, ending: "Ending | None" = None) -> bool:
        """Whether MLflow has taken what is to be logged, and the end."""
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
                said = concealed(str(error)).strip().partition("\n")[0][:200] or type(error).__name__
                print(f"MLflow takes nothing: {said}; it gets all later, or by `retable sync`", file=sys.stderr)
            now = time.monotonic()
            self._silent_until = now + max(60, 20 * (now - began))
            return False
        return True

    def _begin_again(self) -> None:
        """The store is another than it was: it was removed, and made anew."""
        if self._monitor is not None:
            self._monitor.finish()
        self.id, self._logged, self._points, self._taken = None, {}, self._taken + self._points, []

    def _log(self, client: MlflowClient, run_id: str) -> None:
        now = int(time.time() * 1000)
        fresh = []
        for step, said, value in self._points:
            name = _NOT_IN_NAMES.sub("_", said)
            if step not in self._steps(client, run_id, name):
                fresh.append(Metric(name, value, now, step))
        for start in range(0, len(fresh), 1000):  # MLflow's limit for a batch
            batch = fresh[start : start + 1000]
            client.log_batch(run_id, metrics=batch)
            for metric in batch:
                self._logged[metric.key].add(metric.step)
        self._taken += self._points
        self._points = []

    def _steps(self, client: MlflowClient, run_id: str, name: str) -> set[int]:
        """At which a metric has points there."""
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
    """A file that this process holds locked as long as it has a run open; the kernel frees it, whatever ends that.

    It has a name of its own, which is a tag of the run: others may have the same run open, on other machines too.
    """

    def __init__(self, key: str):
        while True:
            self.path = root() / OPEN / uuid4().hex
            with contextlib.suppress(FileNotFoundError):  # another process has removed the folder, which was empty
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                fcntl.flock(self._file, fcntl.LOCK_EX)
                if self.path.exists():  # else one that was looking for killed ones came between
                    os.write(self._file, key.encode())
                    break
                os.close(self._file)
        self.tag = {f"{OPEN_BY}{self.path.name}": f"process {os.getpid()} on {socket.gethostname()}"}

    def leave(self, remove: bool) -> None:
        """Hold it no longer; one that is not removed is of a run whose end MLflow has not taken."""
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def start(opening: RunSpec) -> Run:
    """The run of what begins now; what waits of an earlier try, it brings again."""
    _waiting(opening.key).unlink(missing_ok=True)
    run = Run(opening, mark=_Mark(opening.key))
    run.log([])
    if run.id is not None:
        end_killed()
    return run


def end_killed() -> int:
    """Close the runs that killed processes of this project left open; how many. Those that another process has open,
    here or on another machine, stay so; where MLflow does not answer, the next call tries again."""
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
    with contextlib.suppress(OSError):  # there is none, or some runs are open
        (root() / OPEN).rmdir()
    return ended


def _untag(client: MlflowClient, run_id: str, mark: str) -> None:
    if (tag := f"{OPEN_BY}{mark}") in client.get_run(run_id).data.tags:
        client.delete_tag(run_id, tag)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def send_waiting() -> int:
    """Send the runs that wait, the oldest first, until MLflow takes one not; how many it took. The records of their
    cells then name them."""
    sent = 0
    if not (folder := root() / WAITING).exists():
        return sent
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process is at it
            return sent
        for path in sorted(folder.glob("*.json"), key=_written):
            try:
                waiting = json.loads(path.read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):  # another process begins the run anew, or it was cut off
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
    """The number of runs that MLflow has not taken yet."""
    return len(list((root() / WAITING).glob("*.json")))


def _wait(opening: RunSpec, points: Sequence[tuple[int, str, float]], ending: Ending, id: str | None) -> None:
    path = _waiting(opening.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    said = opening._asdict() | {"data_sets": [each._asdict() for each in opening.data_sets]}
    said["group"] = opening.group and opening.group._asdict()
    begun = path.with_suffix(".begun")
    try:
        write_json(begun, {"opening": said, "points": points, "ending": ending._asdict(), "id": id})
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)  # where the disk is full


def _waiting(key: str) -> Path:
    return root() / WAITING / f"{digest_of(key)[:12]}.json"


def _opening_of(said: Mapping[str, Any]) -> RunSpec:
    data_sets = [DataSet(**each) for each in said["data_sets"]]
    return RunSpec(**{**said, "data_sets": data_sets, "group": said["group"] and Group(**said["group"])})


def _open(client: MlflowClient, experiment: str, opening: RunSpec, by: dict[str, str]) -> tuple[str, str | None]:
    """The ids of the run, the one that a killed or an earlier try began or else a new one, and of that which it
    measures. The tag `by` says who has it open."""
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
    for first in range(0, len(logged), 100):  # MLflow's limit for a batch
        client.log_batch(run_id, params=logged[first : first + 100])
    if read := [each.logged() for each in opening.data_sets]:
        client.log_inputs(run_id, read)
    return run_id, measured


def _terminate(client: MlflowClient, run_id: str, status: str) -> None:
    """Now, and not before it began, though the clock may have been put back since."""
    client.set_terminated(run_id, status, max(int(time.time() * 1000), client.get_run(run_id).info.start_time))


def _score(client: MlflowClient, run_id: str, ending: Ending) -> None:
    """Log what was measured of a system on the run that trained it: beside the settings it is one plot.

    The score of the run is a perplexity if one was measured, otherwise the score of the first evaluation.
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
    """Its id. Of several, which machines made at the same moment, the first stands, and gets what is below others."""
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
    """Give the run of a group a note, metrics and a page, if MLflow has the run; the note ends with a link to the page.

    A store that does not answer gets nothing: the report is made from files.
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
        print(f"MLflow does not take the study's means: {concealed(str(error)).strip()[:200]}", file=sys.stderr)


def _monitor(client: MlflowClient, run_id: str) -> Any:
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false").lower() != "true":
        return None
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=client.tracking_uri)
    monitor.start()
    return monitor
