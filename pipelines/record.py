"""The record of a cell: its folder complete or not there at all, what it was made from, its run in MLflow."""

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml
from omegaconf import DictConfig, OmegaConf

from pipelines import swept
from pipelines.engines import ENGINE
from pipelines.entry import is_main_process, output_folder, overrides, stage_name
from pipelines.observers import AROUND, debugging, in_mlflow, loggers
from pipelines.reach import LOADED, code, own_part, reached_by
from pipelines.tries import difference, flat
from retable import artifacts
from retable.digests import FORMAT, digest, digest_of
from retable.publishing import alone, publish, refuse_foreign, refuse_place, remove_empty, settle
from retable.training.signals import Pruned, Stopped

OPENED = "mlflow_key"  # of a scratch folder: a run of this key is open
THREADS = "threads"  # of a scratch folder: on how many its checkpoints were computed
REPLACED = "replaced"  # beside scratch folders: a cell that another is taking the place of


class Record:
    """An open cell: `folder` takes its payload, `scratch` survives a kill, `log` goes to MLflow."""

    def __init__(self, folder: Path, scratch: Path, log: Callable[..., None]):
        self.folder, self.scratch, self.log = folder, scratch, log
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, Any] = {}  # facts, the same whenever the cell is made
        self.costs: dict[str, Any] = {}  # seconds, speeds, memory: of this making alone
        self.files: list[str] = []  # of the folder, small ones to read: they stand in MLflow too


@contextlib.contextmanager
def recorded(
    cfg: DictConfig,
    inputs: list[Path],
    upstream: list[Path],
    system: str,
    seed: int,
    *,
    corpus: str,
    task: str | None = None,
    place: str | None = None,
) -> Iterator[Record]:
    """Run the body of a stage and leave its cell complete, or not at all.

    `inputs` are the files whose digests the record keeps; `upstream` the cells that led to them, to which those that
    hold an input are added; `place` is where the cell goes if not to `cfg.out`. The body fills `record.folder` and
    `record.metrics`; `record.extra` adds to `run.json`, `record.costs` to the record beside the cell. In the processes
    that a distributed strategy starts beside the first, the body runs alike, and what it writes is thrown away.
    """
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    config = {key: value for key, value in config.items() if key not in AROUND}
    name, cell = stage_name(cfg), place or cfg.out
    differs = swept.suffix()
    if not (differs or _by_dvc() or debugging(overrides())):
        differs = difference(name, cell, config, overrides())
    place, system = cell + differs, system + differs
    out, bench = output_folder(name, place), _bench(name, place)
    facts = {"stage": name, "system": system, "corpus": corpus, "seed": seed, "task": task}
    with contextlib.ExitStack() as kept:
        if is_main_process():
            refuse_place(place)
            kept.enter_context(alone(bench, out, swept.is_job() or ENGINE in os.environ))
            settle(out, bench / REPLACED)
            refuse_foreign(out, facts)
            swept.tell(cell=str(out))
        digests = {str(path): digest(artifacts.require(path)) for path in inputs}
        own = own_part(name, config)
        reached = code().fingerprint(reached_by(name, own, *loaded_from(upstream)))
        key = digest_of([name, str(out), own, digests, reached])
        scratch = bench / key[:12]
        if not is_main_process():
            scratch.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory() as nowhere:
                yield Record(Path(nowhere), scratch, lambda points: None)
            return
        if swept.is_job() and artifacts.read_record(out).get("key") == key:
            swept.tell(there=True)
            raise swept.ThereAlready
        kept.callback(remove_empty, scratch)
        # From the first step again, whatever became of the last try, where somebody debugs.
        _give_up(each for each in bench.iterdir() if each != scratch or debugging(overrides()))
        scratch.mkdir(exist_ok=True)
        kept.enter_context(_same_threads(scratch))
        made = [path.parent for path in inputs if (path.parent / "run.json").exists()]
        cells = [*dict.fromkeys([*upstream, *made])]
        known = [artifacts.read_record(cell).get("mlflow_run_id") for cell in cells]
        runs = [run for run in known if run is not None]
        making = {"study": current_study(), **artifacts.git_state()}
        with loggers(cfg, flat(config)) as sinks:
            project = os.path.relpath(artifacts.project_folder(), artifacts.root())
            tags = {"cell": _called(out), "folder": project, **facts, **making}
            run = None
            if in_mlflow(cfg, overrides()):
                from pipelines.runs import opening
                from retable.tracking.run import start

                (scratch / OPENED).write_text(key, encoding="utf-8")
                run = start(opening(key, place, config, tags, digests, cells))
                sinks = [run.log, *sinks]

            def log(points: Any) -> None:
                for sink in sinks:
                    sink(points)

            # Of two clocks: seconds by the one that goes on evenly, whatever the other is set to.
            started, startup = time.monotonic(), max(time.time() - psutil.Process().create_time(), 0.0)
            try:
                with publish(out, scratch / "payload", bench / REPLACED) as folder:
                    record = Record(folder, scratch, log)
                    yield record
                    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
                    artifacts.write_metrics(folder, record.metrics)
                    origins = {"made_from": [*map(_called, cells)], "digests": digests, "format": FORMAT}
                    if (threads := record.costs.get("threads", 1)) != 1:  # they add in another order: other last digits
                        origins["threads"] = threads
                    artifacts.write_json(folder / "run.json", facts | origins | record.extra)
                making |= {
                    "key": key,
                    "mlflow_run_id": run and run.id,
                    "upstream_runs": runs,
                    "startup_seconds": round(startup, 2),
                    "seconds": round(time.monotonic() - started, 2),
                    "peak_memory_mib": round(artifacts.peak_memory()),
                    "hardware": artifacts.hardware(),
                    "environment": artifacts.environment(),
                }
                artifacts.write_record(out, making | record.costs)
            except Stopped:  # it goes on when the stage runs again, like a killed one
                if run is not None:
                    run.stop()
                raise
            except Pruned as pruned:
                if run is not None:
                    run.stop({"retable.pruned": str(pruned.step)})
                shutil.rmtree(scratch)
                swept.tell(pruned=pruned.step)
                raise
            except Exception:
                if run is not None:
                    run.fail()
                    (scratch / OPENED).unlink()
                raise
        if run is not None:
            files = [out / file for file in ("config.yaml", "metrics.json", "run.json", "curve.csv", *record.files)]
            run.finish(record.metrics, [*filter(Path.exists, files), artifacts.record_file(out)])
            if run.id != making["mlflow_run_id"]:  # MLflow has answered only now
                artifacts.write_record(out, making | record.costs | {"mlflow_run_id": run.id})
        shutil.rmtree(scratch)
    if differs and not swept.is_job():
        print(f"a try: {out} has what came of it; {name}/{cell} is made otherwise, and is as it was", file=sys.stderr)
    if debugging(overrides()):
        print(f"debugged: {out} has what came of it; outputs/ and MLflow are as they were", file=sys.stderr)


def _bench(stage: str, place: str) -> Path:
    """Where a cell is made, and everything of it waits that a kill leaves."""
    return Path("work", "debug/scratch" if debugging(overrides()) else "", stage, place)


def _give_up(left: Iterable[Path]) -> None:
    """Remove what killed runs left that had another configuration, inputs or code, and close their runs in MLflow.
    Where that does not answer, the next making of the cell tries again."""
    for scratch in (path for path in left if re.fullmatch("[0-9a-f]{12}", path.name)):
        if (opened := scratch / OPENED).exists():
            from retable.tracking.run import give_up

            if not give_up(opened.read_text(encoding="utf-8")):
                continue  # another time
        shutil.rmtree(scratch)


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


def _by_dvc() -> bool:
    return "DVC_STAGE" in os.environ


def current_study() -> str | None:
    """The study that `make repro` makes, for which DVC runs this cell; None for a run by hand."""
    return os.environ.get("RETABLE_STUDY") if _by_dvc() else None
