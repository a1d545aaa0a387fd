"""Read and write the files of a cell (the output folder of a stage), and the record of the run that made the cell.

A cell contains `config.yaml`, `metrics.json`, `run.json` and the stage's results. The contents of a cell depend only on
configuration, inputs and code, so that a new run writes the same bytes. Facts about one run, such as its MLflow id,
commit and duration, are in the cell's record, a file next to the cell.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retable.core.digests import DIGESTS, check, digest, made_by, remedy
from retable.core.errors import UsageError, closest
from retable.core.hub import CHECKPOINT
from retable.core.stages import STAGES

_CODE = ("src", "pipelines", "conf", "studies/*/study.yaml", "pyproject.toml", "requirements.lock")
CHECKOUT = Path(__file__).parents[3]  # the repository, if Retable runs from a repository
# The path of a checkpoint's file in the cache of the Hugging Face hub. No name on the hub contains "--".
_CACHED = re.compile(r".*/models--(.+)/snapshots/([0-9a-f]{40})/(.+)")
_PACKAGES = ("torch", "lightning", "hydra-core", "mlflow", "dvc", "tokenizers", "numpy", "pandas")


# Metrics that are counts and not scores of a system.
_COUNTS = {"bytes", "compression", "examples", "flops", "lines", "nats", "parameters", "samples", "steps", "tokens",
           "units", "words"}  # fmt: skip


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def write_metrics(folder: Path, metrics: Mapping[str, float]) -> None:
    """Write `metrics.json`, a flat and sorted mapping from names to finite numbers.

    Raises: UsageError: a number is not finite.
    """
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise UsageError(f"{name} is {value}: the training has diverged; lower optimizer.lr or clip_norm")
    write_json(folder / "metrics.json", metrics)


def main_scores(metrics: Mapping[str, float], n: int = 3) -> dict[str, float]:
    """Return at most `n` of a cell's metrics, without counts such as `tokens`.

    If the test split has metrics, only metrics of the test split are returned; otherwise, only metrics of validation.
    Overlap with the training data is a property of the data, so it is included only if the cell has no other metrics.
    """
    scores = {name: value for name, value in metrics.items() if name.rpartition("/")[2] not in _COUNTS}
    scores = {name: value for name, value in scores.items() if "/overlap_" not in name} or scores
    for split in ("test", "validation", "dev"):
        if of_split := {name: value for name, value in scores.items() if split in name.split("/")}:
            scores = of_split
            break
    # Perplexity is listed first, because perplexity summarises other metrics.
    ordered = sorted(scores, key=lambda name: (not name.endswith("perplexity_word"), name.count("/")))
    return {name: scores[name] for name in ordered[:n]}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a cell.

    Raises: UsageError: the file is missing or damaged.
    """
    try:
        contents = json.loads(require(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        contents = None
    if not isinstance(contents, dict):
        raise UsageError(f"{path} is damaged; {remedy(path)}")
    return contents


def read_run(folder: Path) -> dict[str, Any]:
    """Return the `run.json` of a finished stage."""
    return read_json(folder / "run.json")


def recorded_name(path: Path) -> str:
    """Return the name of a file in records: its path, or `hf:OWNER/NAME@COMMIT/FILE` for a file in the hub's cache.

    The path of the cache differs between machines.
    """
    if (match := _CACHED.fullmatch(path.as_posix())) is None:
        return str(path)
    repository, commit, file = match.groups()
    return f"{CHECKPOINT}{repository.replace('--', '/')}@{commit}/{file}"


def changed_inputs(cells: Iterable[Path]) -> dict[Path, str]:
    """Find input files that have changed since `cells` were made from these files.

    The search includes all cells from which `cells` were made, directly or indirectly. A missing file does not count as
    changed, because a cell may be copied to a machine without the texts. Digests are computed only for texts and data
    sets; a cell's files have stored digests.

    Returns: for each changed file, the name of one cell that was made from it.
    """
    changed: dict[Path, str] = {}
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
                    changed.setdefault(path, cell.relative_to(project / "outputs").as_posix())
            waiting += [project / "outputs" / name for name in run["made_from"]]
        except (UsageError, KeyError, AttributeError, TypeError, OSError):
            continue  # the cell is missing or damaged; a damaged cell raises an error when it is used
    return changed


def _digest_of(path: Path) -> str:
    """Return the sha256 of a file.

    For a file of a cell, the result is the value that is stored in the cell's `digests.json`.
    """
    owner = next((folder for folder in path.parents if (folder / DIGESTS).exists()), None)
    if owner is None:
        return digest(path)
    return read_json(owner / DIGESTS)["files"][path.relative_to(owner).as_posix()]["sha256"]


def record_file(cell: Path) -> Path:
    """Return the path of a cell's record, which is next to the cell.

    The record is not inside the cell, because DVC stores all files of a cell.
    """
    return cell.with_name(f"{cell.name}.record.json")


def write_record(cell: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a finished cell atomically, next to the cell and as a copy for other studies in `work/made`.

    Args:
        cell: folder of the cell.
        record: content of the record, to which digests of the cell's files are added.
    """
    for path in (record_file(cell), _kept(cell)):
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.with_name(f"{path.name}.begun")
        begun.unlink(missing_ok=True)  # an old temporary file may be a link
        write_json(begun, {**record, "of": _digests(cell)})
        begun.replace(path)


def read_record(cell: Path) -> dict[str, Any]:
    """Return the record of the run that made a cell, or {} if the cell has no record.

    A cell has no record if it was copied from another machine, or if its stage was interrupted. A record whose digests
    do not match the cell is ignored.
    """
    for path in (record_file(cell), _kept(cell)):  # the second path contains records of cells that another study made
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # ValueError: a power failure has cut off the record
            continue
        if record.pop("of", None) == _digests(cell):
            return dict(record)
    return {}


def _kept(cell: Path) -> Path:
    """Return the path of the copy of a record that all studies can read.

    The path depends only on the digests of the cell.
    """
    name = hashlib.sha256(json.dumps(_digests(cell), sort_keys=True).encode()).hexdigest()
    return root() / "work/made" / f"{name[:16]}.json"


def _digests(cell: Path) -> dict[str, str]:
    """Compute the digests by which a record is matched with its cell."""
    return {name: digest(path) for name in ("metrics.json", "run.json") if (path := cell / name).exists()}


def require(path: Path) -> Path:
    """Return `path` after checking that it exists and, if it belongs to a cell, is undamaged.

    Raises: UsageError: the file is missing or damaged; the message names the stage that writes the file.
    """
    if not path.exists():
        raise UsageError(f"{path} is missing{_advice(path)}")
    check(path)
    return path


def _advice(path: Path) -> str:
    """Return advice for a missing file.

    The advice is to run the stage that writes the file, or to use an existing cell with a similar name.
    """
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
    """Return the folder of the running DVC project.

    `dvc exp run --temp` runs in a temporary copy of the project; the result is then the original folder, from DVC_ROOT.

    Raises: UsageError: DVC_ROOT is not a folder.
    """
    folder = Path(os.environ.get("DVC_ROOT", "."))
    if not folder.is_dir():
        raise UsageError(f"DVC_ROOT={folder} is not a folder; unset DVC_ROOT, or set it to the folder of a DVC project")
    return folder.resolve()


def root() -> Path:
    """Return the folder that studies share and that contains their MLflow runs.

    For a study in `studies/`, this is the folder that contains `studies/`; otherwise it is the folder of the study.
    """
    folder = project_folder()
    return folder.parent.parent if folder.parent.name == "studies" else folder


def git_state() -> dict[str, Any]:
    """Return the commit of the running code, and whether code, configuration or requirements differ from the commit.

    If Retable is an installed package, both values are None.
    """
    if not (CHECKOUT / "pyproject.toml").exists():
        return {"git_commit": None, "git_dirty": None}
    changed = _git("-C", str(CHECKOUT), "status", "--porcelain", "--", *_CODE)
    commit = _git("-C", str(CHECKOUT), "rev-parse", "HEAD")
    return {"git_commit": commit, "git_dirty": None if changed is None else bool(changed)}


def remote() -> str | None:
    """Return the URL of the code's git remote `origin`, or None if there is no such remote."""
    return _git("-C", str(CHECKOUT), "remote", "get-url", "origin")


def _git(*arguments: str) -> str | None:
    """Return the output of a git command; None if the command fails or git is not installed."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect results."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def peak_memory() -> float:
    """Return the peak memory use of this process so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def hardware() -> str:
    """Return a description of the machine: processor, cores, memory, and the GPUs if this process has used a GPU."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((x.split(":")[1].strip() for x in file if x.startswith("model name")), processor)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    torch: Any = sys.modules.get("torch")  # without torch, the process cannot have used a GPU
    used = torch is not None and torch.cuda.is_initialized()
    gpus = Counter(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) if used else Counter()
    named = [f"{count} × {name}" if count > 1 else name for name, count in gpus.items()]
    return ", ".join([processor, f"{os.cpu_count()} cores", f"{memory:.0f} GiB", *named])
