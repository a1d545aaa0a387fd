"""A separate project in which tests run commands and end them at chosen moments, and methods that read its files."""

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
KEPT = ("repro.lock", "log", "made", "measured", "graph.txt")  # names in work/ that may remain
SECONDS = int(os.environ.get("CHAOS_SECONDS", 300))  # a command that takes longer counts as hanging


class End(NamedTuple):
    """The signal that a command gets, and when: at its n-th touch of a file or the store (`moment`; 0 is never)."""

    moment: int = 0
    number: signal.Signals = signal.SIGKILL


NEVER = End()


class Project:
    """A folder in which commands run, each as a fork of the server at `forks`.

    Commands run one at a time, unless two projects in the same folder have different names (`called`).
    """

    def __init__(self, folder: Path, forks: str, called: str = "beside"):
        self.folder, self._forks = folder, forks
        self._beside = folder.with_name(f"{folder.name}.{called}")
        for each in (folder, self._beside):
            each.mkdir(parents=True, exist_ok=True)

    def run(self, module: str, *arguments: str, end: End = NEVER, **environment: str) -> tuple[int, str]:
        """Run a command and all processes that it starts. Return its exit code, below 0 for a signal, and its
        output.
        """
        code, said, touched = (self._beside / name for name in ("code", "said", "touched"))
        for file in (code, said, touched):
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
        submit(self._forks, warden, watched, str(self.folder), own | environment, str(said), str(said))
        told = said.read_text(encoding="utf-8")
        if not (ended := code.read_text(encoding="utf-8")):
            pytest.fail(f"{module} {arguments} hangs, which was to get {end}\n{told}")
        return int(ended), told

    def succeed(self, module: str, *arguments: str, **environment: str) -> str:
        code, said = self.run(module, *arguments, **environment)
        assert code == 0, said
        return said

    def touched(self) -> int:
        """Return how often the last command touched files."""
        return (self._beside / "touched").stat().st_size

    def files(self) -> dict[str, str]:
        """Return the digests of all outputs of stages, without measured times and records of when and where they were
        made.
        """
        made = (self.folder / "outputs").rglob("*")
        kept = (path for path in made if path.is_file() and not path.name.endswith((".record.json", ".log")))
        return {str(path.relative_to(self.folder)): "" if "scaling" in path.parts else digest(path) for path in kept}

    def runs(self) -> dict[str, str]:
        """Return the content of MLflow's runs by name: how many runs, their states, metrics with steps, and files.

        Values that are measured times are replaced by None.
        """
        file, copy = tempfile.mkstemp(".db", dir=self._beside)  # a new name: MLflow keeps a known file open
        os.close(file)
        shutil.copy(self.folder / "mlflow.db", copy)
        client = MlflowClient(f"sqlite:///{copy}")
        experiment = client.get_experiment_by_name("retable")
        assert experiment is not None
        found: dict[str, list[Any]] = {}
        for run in client.search_runs([experiment.experiment_id]):
            stage = run.data.tags["retable.stage"]
            histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
            points = {
                name: [(point.step, point.value if stage != "scaling" else None) for point in history]
                for name, history in histories.items()
            }
            files = sorted(file.path for file in client.list_artifacts(run.info.run_id))
            found.setdefault(f"run {stage} {run.info.run_name}", []).append([run.info.status, points, files])
        return {name: json.dumps(runs, sort_keys=True) for name, runs in found.items()}

    def left(self) -> list[Path]:
        """Return remaining scratch files and locks, without logs and what is kept of cells."""
        return sorted(path for path in (self.folder / "work").glob("*") if path.name not in KEPT)

    def unfinished(self) -> list[str]:
        """Return the names for which at least one run is not finished."""
        finished = RunStatus.to_string(RunStatus.FINISHED)
        return [name for name, runs in self.runs().items() if {status for status, *_ in json.loads(runs)} != {finished}]
