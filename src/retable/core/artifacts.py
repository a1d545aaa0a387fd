"""What a stage leaves behind: payload files, `config.yaml`, `metrics.json`, `run.json` and the digests of all these.

All of it follows from configuration, inputs and code: made again, a cell is the same bytes. What is of one making
alone, such as its run in MLflow, its commit and its seconds, is the cell's record, a file beside the cell.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retable.core.digests import DIGESTS, check, digest, made_by, remedy
from retable.core.errors import UsageError, closest
from retable.core.stages import STAGES

_CODE = ("src", "pipelines", "conf", "studies/*/study.yaml", "pyproject.toml", "requirements.lock")
CHECKOUT = Path(__file__).parents[3]  # if the package is not installed elsewhere
_PACKAGES = ("torch", "lightning", "hydra-core", "mlflow", "dvc", "tokenizers", "numpy", "pandas")


# What metrics count, instead of measuring a system.
_COUNTS = {"bytes", "compression", "examples", "flops", "lines", "nats", "parameters", "samples", "steps", "tokens",
           "units", "words"}  # fmt: skip


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def write_metrics(folder: Path, metrics: Mapping[str, float]) -> None:
    """Write `metrics.json`: flat, sorted, finite. Raises UsageError for a number that is not finite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise UsageError(f"{name} is {value}: the training has diverged; lower optimizer.lr, or clip_norm")
    write_json(folder / "metrics.json", metrics)


def main_scores(metrics: Mapping[str, float], n: int = 3) -> dict[str, float]:
    """Return at most `n` of a cell's metrics: those of the test split, else of validation, else any; never counts.

    Overlap, a property of the data, is among them only if the cell measures nothing else.
    """
    scores = {name: value for name, value in metrics.items() if name.rpartition("/")[2] not in _COUNTS}
    scores = {name: value for name, value in scores.items() if "/overlap_" not in name} or scores
    for split in ("test", "validation", "dev"):
        if of_split := {name: value for name, value in scores.items() if split in name.split("/")}:
            scores = of_split
            break
    # A perplexity says more than the sums that it is made of, and is listed first.
    ordered = sorted(scores, key=lambda name: (not name.endswith("perplexity_word"), name.count("/")))
    return {name: scores[name] for name in ordered[:n]}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a cell. UsageError where it is missing or damaged."""
    try:
        found = json.loads(require(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is damaged; {remedy(path)}")
    return found


def read_run(folder: Path) -> dict[str, Any]:
    """The `run.json` of a finished stage."""
    return read_json(folder / "run.json")


def changed_inputs(cells: Iterable[Path]) -> dict[Path, str]:
    """Return the files that cells were made from and that have changed since, each with a cell that was made from it.

    Cells upstream of the given ones count, too. A file that does not exist has not changed: cells may be moved away
    from their texts. No file of a cell is read through, only texts and data sets.
    """
    found: dict[Path, str] = {}
    waiting, seen = [*cells], set[Path]()
    while waiting:
        if (cell := waiting.pop().resolve()) in seen or "outputs" not in cell.parts:
            continue
        seen.add(cell)
        project = cell.parents[cell.parts[::-1].index("outputs")]
        try:
            run = read_json(cell / "run.json")
            for name, before in run["digests"].items():
                if (path := project / name).is_file() and _digest_of(path) != before:
                    found.setdefault(path, cell.relative_to(project / "outputs").as_posix())
            waiting += [project / "outputs" / name for name in run["made_from"]]
        except (UsageError, KeyError, AttributeError, TypeError, OSError):
            continue  # of a damaged cell, whose reader names the damage, or of one that does not exist here
    return found


def _digest_of(path: Path) -> str:
    """The sha256 of a file: of a cell's by what its stage wrote down."""
    owner = next((folder for folder in path.parents if (folder / DIGESTS).exists()), None)
    if owner is None:
        return digest(path)
    return read_json(owner / DIGESTS)["files"][path.relative_to(owner).as_posix()]["sha256"]


def record_file(cell: Path) -> Path:
    """Where a cell's record is: beside the cell, outside of what DVC keeps."""
    return cell.with_name(f"{cell.name}.record.json")


def write_record(cell: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a finished cell; a kill leaves all of it or none."""
    for path in (record_file(cell), _kept(cell)):
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_name(f"{path.name}.begun")
        begun.unlink(missing_ok=True)  # it may be a link to elsewhere
        write_json(begun, {**record, "of": _told_by(cell)})
        begun.replace(path)


def read_record(cell: Path) -> dict[str, Any]:
    """The record of the making that left this cell, {} where there is none: the cell came from another machine or from
    an interrupted stage, or a record that is there is of other numbers."""
    for path in (record_file(cell), _kept(cell)):  # the second of a cell that another study made
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # or one that a loss of power cut off
            continue
        if record.pop("of", None) == _told_by(cell):
            return dict(record)
    return {}


def _kept(cell: Path) -> Path:
    """Where the record of a cell with these numbers is kept for all studies."""
    name = hashlib.sha256(json.dumps(_told_by(cell), sort_keys=True).encode()).hexdigest()
    return root() / "work/made" / f"{name[:16]}.json"


def _told_by(cell: Path) -> dict[str, str]:
    """By what a record knows its cell."""
    return {name: digest(path) for name in ("metrics.json", "run.json") if (path := cell / name).exists()}


def require(path: Path) -> Path:
    """`path`, if it exists, and is as it was written where it is of a cell; else a UsageError, which names the stage
    that makes it."""
    if not path.exists():
        raise UsageError(f"{path} is missing{_instead(path)}")
    check(path)
    return path


def _instead(path: Path) -> str:
    """What to do about a missing file: to run its stage, or to name a cell of that stage."""
    if advice := made_by(path):
        return f"; {advice}"
    if path.parts[:1] != ("outputs",) or len(path.parts) < 3:
        return ""
    of_stage = path.parts[1] in STAGES
    folder, form = (Path(*path.parts[:2]), "CORPUS/NAME") if of_stage else (Path("outputs"), "STAGE/CORPUS/NAME")
    known = [str(run.parent.relative_to(folder)) for run in sorted(folder.glob(f"{'*/' * form.count('/')}*/run.json"))]
    name = str(path.parent.relative_to(folder))
    known = [each for each in known if each.endswith(f"/{name}") or name.endswith(f"/{each}")] or known
    return f"; the name of a cell has the form {form}: {closest(name, known)}" if known else ""


def project_folder() -> Path:
    """The folder of the DVC project that runs; of an experiment in a copy (`dvc exp run --temp`) the original's.
    UsageError if DVC_ROOT names no folder: nothing is made there."""
    folder = Path(os.environ.get("DVC_ROOT", "."))
    if not folder.is_dir():
        raise UsageError(f"DVC_ROOT={folder} is not a folder; unset it, or write the folder of a DVC project")
    return folder.resolve()


def root() -> Path:
    """Where studies keep what they share, their runs in MLflow: above the folder `studies` that a study is in, or in
    the study's own folder."""
    folder = project_folder()
    return folder.parent.parent if folder.parent.name == "studies" else folder


def git_state() -> dict[str, Any]:
    """The commit of the code that runs, and whether code, configuration or locked versions differ from it; None for an
    installed package."""
    if not (CHECKOUT / "pyproject.toml").exists():
        return {"git_commit": None, "git_dirty": None}
    changed = _git("-C", str(CHECKOUT), "status", "--porcelain", "--", *_CODE)
    commit = _git("-C", str(CHECKOUT), "rev-parse", "HEAD")
    return {"git_commit": commit, "git_dirty": None if changed is None else bool(changed)}


def remote() -> str | None:
    """Where the repository of the code came from, as git calls it; None for one that nobody else has."""
    return _git("-C", str(CHECKOUT), "remote", "get-url", "origin")


def _git(*arguments: str) -> str | None:
    """Return what git prints; None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide results."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def peak_memory() -> float:
    """The most memory that this process has held so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def hardware() -> str:
    """The machine in words: processor, cores, memory, and its GPUs where this process has used one."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), processor)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    torch: Any = sys.modules.get("torch")  # what has not imported it has used none
    used = torch is not None and torch.cuda.is_initialized()
    gpus = Counter(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) if used else Counter()
    named = [f"{count} × {name}" if count > 1 else name for name, count in gpus.items()]
    return ", ".join([processor, f"{os.cpu_count()} cores", f"{memory:.0f} GiB", *named])
