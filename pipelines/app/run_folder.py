"""The record of a cell: its folder complete or not there at all, what it was made from, its run in MLflow."""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from omegaconf import DictConfig, OmegaConf

from pipelines.app.observers import loggers
from pipelines.app.stage import output_folder
from pipelines.config import environment
from pipelines.config.conf import debugging, in_mlflow, of_result, overrides, stage_name
from pipelines.config.environment import ENGINE
from pipelines.config.errors import ThereAlready, is_main_process
from pipelines.study.adhoc import difference
from pipelines.study.code_reached import LOADED, code, own_part, reached_by
from retable.core import artifacts
from retable.core.digests import FORMAT, digest, digest_of
from retable.core.publishing import (
    check_owner,
    check_path,
    exclusive,
    publish,
    recover,
    remove_empty,
    require_one_mount,
)
from retable.planning.conf import flat
from retable.training.signals import Pruned, Stopped

if TYPE_CHECKING:
    from retable.tracking.run import Run

THREADS = "threads"  # of a scratch folder: on how many its checkpoints were computed
REPLACED = "replaced"  # beside scratch folders: a cell that another is taking the place of


class RunFolder:
    """An open cell: `folder` takes its payload, `scratch` survives a kill, `log` goes to MLflow."""

    def __init__(self, folder: Path, scratch: Path, log: Callable[..., None]):
        self.folder, self.scratch, self.log = folder, scratch, log
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, Any] = {}  # facts, the same whenever the cell is made
        self.costs: dict[str, Any] = {}  # seconds, speeds, memory: of this making alone
        self.files: list[str] = []  # of the folder, small ones to read: they stand in MLflow too


@dataclass(frozen=True)
class Making:
    """What is made: the cell's place, and all that its numbers come of.

    Attributes:
        facts: stage, system, corpus, seed and task, which identify the cell.
        digests: of the files that it is made from.
        cells: that it is made from.
    """

    stage: str
    place: str
    config: dict[str, Any]
    facts: dict[str, Any]
    digests: dict[str, str]
    cells: list[Path]
    key: str

    @property
    def out(self) -> Path:
        return output_folder(self.stage, self.place)

    @property
    def bench(self) -> Path:
        """The folder where everything of the cell waits that a kill leaves."""
        return _bench(self.stage, self.place)

    @property
    def scratch(self) -> Path:
        return self.bench / self.key[:12]


@contextlib.contextmanager
def run_folder(
    cfg: DictConfig,
    inputs: list[Path],
    upstream: list[Path],
    system: str,
    seed: int,
    *,
    corpus: str,
    task: str | None = None,
    place: str | None = None,
) -> Iterator[RunFolder]:
    """Run the body of a stage and leave its cell complete, or not at all.

    `inputs` are the files whose digests the record keeps; `upstream` the cells that led to them, to which those that
    hold an input are added; `place` is where the cell goes if not to `cfg.out`. The body fills `record.folder` and
    `record.metrics`; `record.extra` adds to `run.json`, `record.costs` to the record beside the cell. In the processes
    that a distributed strategy starts beside the first, the body runs alike, and what it writes is thrown away.
    """
    stage, cell = stage_name(cfg), place or cfg.out
    whole: Any = OmegaConf.to_container(cfg, resolve=True)
    config, tracked = of_result(stage, whole), in_mlflow(cfg, overrides())
    differs = environment.suffix()
    if not (differs or environment.by_dvc() or debugging(overrides())):
        differs = difference(stage, cell, config, overrides())
    place = cell + differs
    facts = {"stage": stage, "system": system + differs, "corpus": corpus, "seed": seed, "task": task}
    with _held(stage, place, facts):
        making = _making(stage, place, config, facts, inputs, upstream)
        if not is_main_process():
            with _thrown_away(making) as record:
                yield record
            return
        if environment.is_job() and artifacts.read_record(making.out).get("key") == making.key:
            shutil.rmtree(making.scratch, ignore_errors=True)  # a kill may have left it
            environment.report(there=True)
            raise ThereAlready
        with _scratch(making):
            made = {"study": environment.study(), **artifacts.git_state()}
            with loggers(cfg, flat(config)) as sinks, _run(tracked, making, made) as run:
                log = _log_to([*([run.log] if run else []), *sinks])
                with _costs() as costs, _written(making, log) as record:
                    yield record
                known = [artifacts.read_record(each).get("mlflow_run_id") for each in making.cells]
                made |= {"mlflow_run_id": run and run.id}
                made |= {"upstream_runs": [each for each in known if each is not None], **costs, **record.costs}
                artifacts.write_record(making.out, made)
            if run is not None:
                _finish(run, making, record)
            # By the key a job knows that it has nothing to do: its run has ended, too. MLflow may answer only now.
            artifacts.write_record(making.out, {**made, "key": making.key, "mlflow_run_id": run and run.id})
            shutil.rmtree(making.scratch)
    if not environment.is_job():  # the launcher shows the scores of all jobs
        print(f"{making.out}: {', '.join(_scores(making.out, record.metrics)) or 'made'}")
        if differs:
            said = f"{stage}/{cell} is made otherwise, and is as it was"
            print(f"a try: {making.out} has what came of it; {said}", file=sys.stderr)
    if debugging(overrides()):
        print(f"debugged: {making.out} has what came of it; outputs/ and MLflow are as they were", file=sys.stderr)


def _scores(cell: Path, metrics: Mapping[str, float]) -> Iterator[str]:
    """The main scores of a finished cell, with the 95 % intervals over its units where it has units."""
    scores, known = artifacts.main_scores(metrics), dict[str, tuple[float, float]]()
    if [*cell.glob("units.csv"), *cell.glob("*/units.csv")]:
        from retable.reporting.results import intervals  # imports pandas

        known = intervals(cell, scores)
    for name, value in scores.items():
        low, high = known.get(name, (nan, nan))
        yield f"{name} {value:.5g}" + f" ({low:.5g} to {high:.5g})" * (low <= high)


@contextlib.contextmanager
def _held(stage: str, place: str, facts: Mapping[str, Any]) -> Iterator[None]:
    """Have the cell's place to this process alone, with what a kill left there put in order."""
    if not is_main_process():
        yield
        return
    out, bench = output_folder(stage, place), _bench(stage, place)
    check_path(place)
    with exclusive(bench, out, patiently=environment.is_job() or ENGINE in os.environ):
        recover(out, bench / REPLACED)
        check_owner(out, facts)
        environment.report(cell=str(out))
        yield


def _making(
    stage: str, place: str, config: dict[str, Any], facts: dict[str, Any], inputs: list[Path], upstream: list[Path]
) -> Making:
    digests = {str(path): digest(artifacts.require(path)) for path in inputs}
    own = own_part(stage, config)
    reached = code().fingerprint(reached_by(stage, own, *loaded_from(upstream)))
    key = digest_of([stage, str(output_folder(stage, place)), own, digests, reached])
    holding = [path.parent for path in inputs if (path.parent / "run.json").exists()]
    return Making(stage, place, config, facts, digests, [*dict.fromkeys([*upstream, *holding])], key)


@contextlib.contextmanager
def _thrown_away(making: Making) -> Iterator[RunFolder]:
    """What a process writes that isn't the first."""
    making.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as nowhere:
        yield RunFolder(Path(nowhere), making.scratch, lambda points: None)


@contextlib.contextmanager
def _scratch(making: Making) -> Iterator[None]:
    """Give the cell its scratch folder, and remove those of other configurations, inputs or code. Where somebody debugs
    or a search ends the trial, its own goes, too."""
    try:
        for left in making.bench.iterdir():
            if re.fullmatch("[0-9a-f]{12}", left.name) and (left != making.scratch or debugging(overrides())):
                shutil.rmtree(left)
        making.scratch.mkdir(exist_ok=True)
        require_one_mount(making.scratch, making.out)
        with _same_threads(making.scratch):
            yield
    except Pruned as pruned:
        shutil.rmtree(making.scratch)
        environment.report(pruned=pruned.step)
        raise
    finally:
        remove_empty(making.scratch)


@contextlib.contextmanager
def _run(tracked: bool, making: Making, made: Mapping[str, Any]) -> Iterator["Run | None"]:
    """Open the cell's run in MLflow, if it is to have one; close it where the block does not end well."""
    if not tracked:
        yield None
        return
    from pipelines.app.mlflow_run import run_spec
    from retable.tracking.run import start

    project = os.path.relpath(artifacts.project_folder(), artifacts.root())
    tags = {"cell": _called(making.out), "folder": project, **making.facts, **made}
    run = start(run_spec(making.key, making.place, making.config, tags, making.digests, making.cells))
    try:
        yield run
    except Stopped:  # it goes on when the stage runs again, like a killed one
        run.stop()
        raise
    except Pruned as pruned:
        run.stop({"retable.pruned": str(pruned.step)})
        raise
    except Exception:
        run.fail()
        raise


def _log_to(sinks: Sequence[Callable[[Any], None]]) -> Callable[[Any], None]:
    def log(points: Any) -> None:
        for sink in sinks:
            sink(points)

    return log


@contextlib.contextmanager
def _costs() -> Iterator[dict[str, Any]]:
    """Yield what the block takes of time and memory, and on what: known at its end."""
    costs: dict[str, Any] = {}
    # Of two clocks: seconds by the one that goes on evenly, whatever the other is set to.
    started, startup = time.monotonic(), max(time.time() - psutil.Process().create_time(), 0.0)
    yield costs
    costs |= {"startup_seconds": round(startup, 2), "seconds": round(time.monotonic() - started, 2)}
    costs |= {"peak_memory_mib": round(artifacts.peak_memory()), "hardware": artifacts.hardware()}
    costs["environment"] = artifacts.environment()


@contextlib.contextmanager
def _written(making: Making, log: Callable[[Any], None]) -> Iterator[RunFolder]:
    """Put the cell in its place when the block ends well: payload, configuration, metrics, origins."""
    with publish(making.out, making.scratch / "payload", making.bench / REPLACED) as folder:
        record = RunFolder(folder, making.scratch, log)
        yield record
        OmegaConf.save(OmegaConf.create(making.config), folder / "config.yaml")
        artifacts.write_metrics(folder, record.metrics)
        origins = {"made_from": [*map(_called, making.cells)], "digests": making.digests, "format": FORMAT}
        if (threads := record.costs.get("threads", 1)) != 1:  # they add in another order: other last digits
            origins["threads"] = threads
        artifacts.write_json(folder / "run.json", making.facts | origins | record.extra)


def _finish(run: "Run", making: Making, record: RunFolder) -> None:
    """Close the cell's run in MLflow with its metrics and small files."""
    names = ("config.yaml", "metrics.json", "run.json", "curve.csv", *record.files)
    files = [making.out / name for name in names if (making.out / name).exists()]
    metrics = without_doubles(record.metrics)
    scores = [] if making.stage in ("prepare", "tokenize") else artifacts.main_scores(metrics, 1)
    score = next((name for name in scores if "test" in name.split("/")), None)
    run.finish(metrics, [*files, artifacts.record_file(making.out)], score)


def without_doubles(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics without a task's scores on validation that the curve ends with: `sentiment/validation/accuracy`
    where `validation/accuracy` is the same number. metrics.json has both, and tables read the first."""

    def doubles(name: str) -> bool:
        _, separator, rest = name.partition("/")
        return bool(separator) and rest.startswith("validation/") and metrics.get(rest) == metrics[name]

    return {name: value for name, value in metrics.items() if not doubles(name)}


def _bench(stage: str, place: str) -> Path:
    return Path("work", "debug/scratch" if debugging(overrides()) else "", stage, place)


@contextlib.contextmanager
def _same_threads(scratch: Path) -> Iterator[None]:
    """Go on with as many threads as a training began with, whatever this machine has: another number adds in another
    order. Says so where that is not what was asked for."""
    if (torch := sys.modules.get("torch")) is None:  # nothing is trained
        yield
        return
    kept, now = scratch / THREADS, torch.get_num_threads()
    if kept.exists() and any(scratch.glob("*.ckpt")):
        if (began := int(kept.read_text())) != now:
            print(f"goes on with {began} threads, as it began, for {now}; remove {scratch} to begin anew",
                  file=sys.stderr)  # fmt: skip
            torch.set_num_threads(began)
    else:
        kept.write_text(str(now))
    try:
        yield
    finally:
        if not any(scratch.glob("*.ckpt")):
            kept.unlink(missing_ok=True)


def _called(cell: Path) -> str:
    """What a cell is called: `pretrain/grammar/lstm-1`, and outside of `outputs/` the whole path."""
    return str(cell).removeprefix("outputs/")


def loaded_from(cells: list[Path]) -> Iterator[dict[str, Any]]:
    """What the systems of these cells are built from again, of those that hold one."""
    for cell in cells:
        if (config := cell / "config.yaml").exists():  # read as what it is: it may have come from elsewhere
            made = yaml.load(artifacts.require(config).read_text(encoding="utf-8"), yaml.CSafeLoader)
            yield {key: made[key] for key in LOADED if isinstance(made.get(key), dict | list)}
