"""Run a stage's body and publish the stage's cell atomically, with origins, costs and a run in MLflow."""

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
from pipelines.study.code_reached import LOADED, code, entry_points_of, own_part
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

THREADS = "threads"  # file in a scratch folder: number of threads that computed the folder's checkpoints
REPLACED = "replaced"  # folder for the old cell while a new cell replaces it


class RunFolder:
    """A cell that is being written.

    Attributes:
        folder: the folder for the cell's files; it becomes the cell.
        scratch: the folder for checkpoints; if the process is killed, this folder remains.
        log: a function that logs points of a learning curve to MLflow and the loggers.
    """

    def __init__(self, folder: Path, scratch: Path, log: Callable[..., None]):
        self.folder, self.scratch, self.log = folder, scratch, log
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, Any] = {}  # facts that are the same each time the cell is made
        self.costs: dict[str, Any] = {}  # seconds, speeds and memory of this run
        self.files: list[str] = []  # small files of the folder that are also stored in MLflow


@dataclass(frozen=True)
class Making:
    """A cell that is being made: its place, and everything that its results depend on.

    Attributes:
        facts: stage, system, corpus, seed and task, which identify the cell.
        digests: digests of the input files, by their names in records.
        cells: the cells that this cell is made from.
        key: digest of the configuration, the inputs and the code.
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
        """Return the cell's working folder, in which a killed process leaves unfinished files."""
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
    """Run the body of a stage and publish its cell, either complete or not at all.

    The body writes files to `record.folder` and scores to `record.metrics`. Facts in `record.extra` are added to
    `run.json`. Costs in `record.costs` are added to the file `<cell>.record.json` next to the cell. With a distributed
    strategy, every process runs the body; only the files of the main process are kept.

    Args:
        cfg: the stage's configuration.
        inputs: the files that the cell depends on; their digests are recorded.
        upstream: the cells that this cell is made from; cells that contain a file of `inputs` are added to these cells.
        system, seed, corpus, task: facts that identify the cell.
        place: the cell's path below `outputs/<stage>/`; None if it is `cfg.out`.
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
            with _discarded(making) as record:
                yield record
            return
        if environment.is_job() and artifacts.read_record(making.out).get("key") == making.key:
            shutil.rmtree(making.scratch, ignore_errors=True)  # left by a kill
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
            # The key is written last, as a mark that the cell and its run are finished. Later jobs look for it.
            artifacts.write_record(making.out, {**made, "key": making.key, "mlflow_run_id": run and run.id})
            shutil.rmtree(making.scratch)
    if not environment.is_job():  # for jobs of a multirun, the launcher shows the scores
        print(f"{making.out}: {', '.join(_scores(making.out, record.metrics)) or 'made'}")
        if differs:
            reason = f"its settings differ from those of {stage}/{cell}, which is unchanged"
            print(f"a try: the result is in {making.out}; {reason}", file=sys.stderr)
    if debugging(overrides()):
        print(f"debugged: the result is in {making.out}; outputs/ and MLflow are unchanged", file=sys.stderr)


def _scores(cell: Path, metrics: Mapping[str, float]) -> Iterator[str]:
    """Yield the main scores of a finished cell as text, with 95 % intervals if the cell has a file `units.csv`."""
    scores, known = artifacts.main_scores(metrics), dict[str, tuple[float, float]]()
    if [*cell.glob("units.csv"), *cell.glob("*/units.csv")]:
        from retable.reporting.results import intervals  # here and not at the top, since this imports pandas

        known = intervals(cell, scores)
    for name, value in scores.items():
        low, high = known.get(name, (nan, nan))
        yield f"{name} {value:.5g}" + f" ({low:.5g} to {high:.5g})" * (low <= high)


@contextlib.contextmanager
def _held(stage: str, place: str, facts: Mapping[str, Any]) -> Iterator[None]:
    """Lock the cell's folder for this process; finish an interrupted replacement of an old cell.

    Only the main process locks the folder; other processes do nothing.
    """
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
    digests = {artifacts.recorded_name(path): digest(artifacts.require(path)) for path in inputs}
    own = own_part(stage, config)
    reached = code().fingerprint(entry_points_of(stage, own, *loaded_from(upstream)))
    key = digest_of([stage, str(output_folder(stage, place)), own, digests, described(upstream), reached])
    holding = [path.parent for path in inputs if (path.parent / "run.json").exists()]
    return Making(stage, place, config, facts, digests, [*dict.fromkeys([*upstream, *holding])], key)


@contextlib.contextmanager
def _discarded(making: Making) -> Iterator[RunFolder]:
    """Yield an open cell whose files are discarded, for processes other than the main process."""
    making.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as nowhere:
        yield RunFolder(Path(nowhere), making.scratch, lambda points: None)


@contextlib.contextmanager
def _scratch(making: Making) -> Iterator[None]:
    """Make the cell's scratch folder, and remove scratch folders that were made with other settings, inputs or code.

    With `debug=`, the scratch folder of an earlier run is removed, too. When a search prunes the trial, the trial's
    scratch folder is removed at the end.
    """
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
    """Open the cell's run in MLflow, and close the run if the block raises; if not `tracked`, yield None."""
    if not tracked:
        yield None
        return
    from pipelines.app.mlflow_run import run_spec
    from retable.tracking.run import start

    project = os.path.relpath(artifacts.project_folder(), artifacts.root())
    tags = {"cell": _display_name(making.out), "folder": project, **making.facts, **made}
    run = start(run_spec(making.key, making.place, making.config, tags, making.digests, making.cells))
    try:
        yield run
    except Stopped:  # the run resumes when the stage runs again
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
    """Yield a dictionary that at the block's end gets seconds, peak memory (MiB), hardware and environment."""
    costs: dict[str, Any] = {}
    # Seconds are measured by the monotonic clock, since the system's clock may be changed during a run.
    started, startup = time.monotonic(), max(time.time() - psutil.Process().create_time(), 0.0)
    yield costs
    costs |= {"startup_seconds": round(startup, 2), "seconds": round(time.monotonic() - started, 2)}
    costs |= {"peak_memory_mib": round(artifacts.peak_memory()), "hardware": artifacts.hardware()}
    costs["environment"] = artifacts.environment()


@contextlib.contextmanager
def _written(making: Making, log: Callable[[Any], None]) -> Iterator[RunFolder]:
    """Publish the cell when the block ends without an error: the body's files, configuration, metrics and origins."""
    with publish(making.out, making.scratch / "payload", making.bench / REPLACED) as folder:
        record = RunFolder(folder, making.scratch, log)
        yield record
        OmegaConf.save(OmegaConf.create(making.config), folder / "config.yaml")
        artifacts.write_metrics(folder, record.metrics)
        origins = {"made_from": [*map(_display_name, making.cells)], "digests": making.digests, "format": FORMAT}
        # The number of threads determines the order of additions, and so the last digits of results.
        if (threads := record.costs.get("threads", 1)) != 1:
            origins["threads"] = threads
        artifacts.write_json(folder / "run.json", making.facts | origins | record.extra)


def _finish(run: "Run", making: Making, record: RunFolder) -> None:
    """Log the cell's metrics and small files to its run in MLflow, and close the run."""
    names = ("config.yaml", "metrics.json", "run.json", "curve.csv", *record.files)
    files = [making.out / name for name in names if (making.out / name).exists()]
    metrics = without_doubles(record.metrics)
    scores = [] if making.stage in ("prepare", "tokenize") else artifacts.main_scores(metrics, 1)
    score = next((name for name in scores if "test" in name.split("/")), None)
    run.finish(metrics, [*files, artifacts.record_file(making.out)], score)


def without_doubles(metrics: Mapping[str, float]) -> dict[str, float]:
    """Remove a task's validation scores that equal the last points of the learning curve.

    For example, `sentiment/validation/accuracy` is removed if `validation/accuracy` has the same value. The file
    metrics.json still contains both names, and tables read `sentiment/validation/accuracy`.
    """

    def doubles(name: str) -> bool:
        _, separator, rest = name.partition("/")
        return bool(separator) and rest.startswith("validation/") and metrics.get(rest) == metrics[name]

    return {name: value for name, value in metrics.items() if not doubles(name)}


def _bench(stage: str, place: str) -> Path:
    return Path("work", "debug/scratch" if debugging(overrides()) else "", stage, place)


@contextlib.contextmanager
def _same_threads(scratch: Path) -> Iterator[None]:
    """Resume training with its initial number of threads; print a line if this number differs from the setting.

    The number of threads determines the order of additions, which affects the last digits of results.
    """
    if (torch := sys.modules.get("torch")) is None:  # nothing is trained
        yield
        return
    kept, now = scratch / THREADS, torch.get_num_threads()
    if kept.exists() and any(scratch.rglob("*.ckpt")):
        if (began := int(kept.read_text())) != now:
            print(f"resuming with {began} threads, as at the start, instead of {now}; remove {scratch} to start again",
                  file=sys.stderr)  # fmt: skip
            torch.set_num_threads(began)
    else:
        kept.write_text(str(now))
    try:
        yield
    finally:
        if not any(scratch.rglob("*.ckpt")):
            kept.unlink(missing_ok=True)


def _display_name(cell: Path) -> str:
    """Return a cell's path in `outputs/`, such as `pretrain/grammar/lstm-1`.

    A path outside `outputs/` is returned unchanged.
    """
    return str(cell).removeprefix("outputs/")


def described(cells: list[Path]) -> list[Any]:
    """Return what determines the systems of cells in addition to their weights: settings and digests of tokenizers."""
    tokenizers = [cell / "tokenizer.json" for cell in cells]
    return [*loaded_from(cells), *(digest(artifacts.require(path)) for path in tokenizers if path.exists())]


def loaded_from(cells: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield, for each cell, the parts of its configuration that are needed to load the cell's system."""
    for cell in cells:
        # Interpolations in config.yaml are not resolved, since the cell may come from another machine.
        if (config := cell / "config.yaml").exists():
            made = yaml.load(artifacts.require(config).read_text(encoding="utf-8"), yaml.CSafeLoader)
            yield {key: made[key] for key in LOADED if isinstance(made.get(key), dict | list)}
