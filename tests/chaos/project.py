"""A project of its own, whose commands are ended when a test likes, and what is in it."""

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow.entities import RunStatus
from mlflow.tracking import MlflowClient

from pipelines.executors.client import submit
from retable.core.digests import digest
from retable.core.stages import module_of
from tests.conftest import last_of_each

ROOT = Path(__file__).parent.parent.parent
KEPT = ("repro.lock", "log", "made", "measured", "graph.txt")  # below work/
SECONDS = int(os.environ.get("CHAOS_SECONDS", 300))  # a command that takes longer hangs; on a busy machine more


class End(NamedTuple):
    """At which of the times that a command touches files or the store it gets a signal; 0 for never."""

    moment: int = 0
    number: signal.Signals = signal.SIGKILL


NEVER = End()


class Project:
    """A folder that commands run in, each a fork of the server at `forks`; one at a time, but for those of projects
    in the same folder that are called otherwise."""

    def __init__(self, folder: Path, forks: str, suffix: str = "beside"):
        self.folder, self._forks = folder, forks
        self._beside = folder.with_name(f"{folder.name}.{suffix}")
        for each in (folder, self._beside):
            each.mkdir(parents=True, exist_ok=True)

    def run(self, module: str, *arguments: str, end: End = NEVER, **environment: str) -> tuple[int, str]:
        """The exit code, below 0 for a signal, and what it said, when it and all that it started have ended."""
        code, log, touched = (self._beside / name for name in ("code", "said", "touched"))
        for file in (code, log, touched):
            file.write_text("", encoding="utf-8")
        paths = self.folder / "src", self.folder, ROOT / "tests/chaos/hooked", ROOT / "src", ROOT
        own = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)), "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
            "RETABLE_DATA": "data", "OMP_NUM_THREADS": "1",
            "CHAOS_TOUCHED": str(touched), "CHAOS_MOMENT": str(end.moment), "CHAOS_NUMBER": str(int(end.number)),
        }  # fmt: skip
        module = module if module == "dvc" else module_of(module)
        watched = [str(code), str(SECONDS), module, *last_of_each(arguments)]
        warden = str(ROOT / "tests/chaos/warden.py")
        submit(self._forks, warden, watched, str(self.folder), own | environment, str(log), str(log))
        output = log.read_text(encoding="utf-8")
        if not (ended := code.read_text(encoding="utf-8")):
            pytest.fail(f"{module} {arguments} hangs, which was to get {end}\n{output}")
        return int(ended), output

    def succeed(self, module: str, *arguments: str, **environment: str) -> str:
        code, output = self.run(module, *arguments, **environment)
        assert code == 0, output
        return output

    def touched(self) -> int:
        """How often the last command touched files."""
        return (self._beside / "touched").stat().st_size

    def files(self) -> dict[str, str]:
        """The digests of what the stages leave, but for the records of when and where, and for measured times."""
        made = (self.folder / "outputs").rglob("*")
        kept = (path for path in made if path.is_file() and not path.name.endswith((".record.json", ".log")))
        return {str(path.relative_to(self.folder)): "" if "scaling" in path.parts else digest(path) for path in kept}

    def runs(self) -> dict[str, str]:
        """Of MLflow's runs what stands in them, by their names: how often, in what state, which metrics at which
        steps, which files. Of times, that they stand there."""
        file, copy = tempfile.mkstemp(".db", dir=self._beside)  # MLflow would go on with a file that was replaced
        os.close(file)
        shutil.copy(self.folder / "mlflow.db", copy)
        client = MlflowClient(f"sqlite:///{copy}")
        experiment = client.get_experiment_by_name("retable")
        assert experiment is not None
        by_name: dict[str, list[Any]] = {}
        for run in client.search_runs([experiment.experiment_id]):
            stage = run.data.tags["retable.stage"]
            histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
            points = {
                name: [(point.step, point.value if stage != "scaling" else None) for point in history]
                for name, history in histories.items()
            }
            files = sorted(file.path for file in client.list_artifacts(run.info.run_id))
            by_name.setdefault(f"run {stage} {run.info.run_name}", []).append([run.info.status, points, files])
        return {name: json.dumps(runs, sort_keys=True) for name, runs in by_name.items()}

    def left(self) -> list[Path]:
        """Of scratch and locks: logs may stay, and what is kept of cells."""
        return sorted(path for path in (self.folder / "work").glob("*") if path.name not in KEPT)

    def unfinished(self) -> list[str]:
        """The names of the runs of which one or more are not finished."""
        finished = RunStatus.to_string(RunStatus.FINISHED)
        return [name for name, runs in self.runs().items() if {status for status, *_ in json.loads(runs)} != {finished}]
