"""Compute and check the sizes and sha256 digests of the files of a cell, the output folder of a stage.

The digests are in the cell's file `digests.json`.

Each file is checked before it is read. The check detects damage: a flipped bit, an incomplete copy, a file of another
cell. The check does not protect against deliberate changes, because the digests can be changed too.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from retable.core.errors import UsageError
from retable.core.stages import STAGES, module_of

DIGESTS, RUN = "digests.json", "run.json"
FORMAT = 2  # version of the cell format in run.json; version 1 had no digests
LARGE = 64 << 20  # bytes; smaller files are hashed in less than 0.1 s
REMEMBERED = Path("work/remembered.json")
_TICK = 2e9  # ns; two writes within this time may result in the same file time on some file systems

_known: dict[str, list[Any]] = {}  # maps device and inode of a file to its size, times and sha256
_unchecked: list[Path] = []


def digest(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal.

    The result is cached in memory, by inode, size and times. Digests of files of 64 MiB and more are also cached on
    disk, in `work/remembered.json`, so that stages do not read a large corpus again. Therefore, if a disk error changes
    a large file, the damage is not detected until `work/` is removed.
    """
    stat = path.stat()
    inode = f"{stat.st_dev}:{stat.st_ino}"
    stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
    if stat.st_size >= LARGE and inode not in _known:
        _known.update(_remembered())
    if inode in _known and _known[inode][:-1] == stamp:
        return _known[inode][-1]
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = str(path)  # if reading fails after opening, Python does not set the error's file name
        raise
    if time.time_ns() - max(stamp[1:]) > _TICK:
        _known[inode] = [*stamp, sha256]
        if stat.st_size >= LARGE and REMEMBERED.parent.is_dir() and Path("outputs").is_dir():
            begun = REMEMBERED.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):  # without the cache, the next process hashes the file again
                begun.write_text(json.dumps(_remembered() | {inode: _known[inode]}))
                begun.replace(REMEMBERED)
    return sha256


def _remembered() -> dict[str, list[Any]]:
    try:
        digests = json.loads(REMEMBERED.read_text())
    except (OSError, ValueError):
        digests = None
    return digests if isinstance(digests, dict) else {}


def digest_of(value: Any) -> str:
    """Return the sha256 of a JSON-serializable value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_digests(cell: Path) -> None:
    """Write `digests.json`: a list with size and sha256 of every other file of a cell, and the sha256 of this list."""
    files = {name: {"sha256": digest(path), "size": path.stat().st_size} for name, path in _files(cell).items()}
    (cell / DIGESTS).write_text(_text(files), encoding="utf-8")


def _text(files: dict[str, dict[str, Any]]) -> str:
    whole = {"files": files, "sha256": digest_of(files)}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def check(path: Path) -> None:
    """Check that a file of a cell, or a whole cell, has not changed since a stage wrote it.

    The names and sizes of all files of the cell are compared. If `path` is a file, the file's sha256 is compared, too.
    Paths outside cells and old cells without digests are not checked. For old cells, one warning per process is
    printed.

    Raises: UsageError: a file is damaged, missing, or does not belong to the cell; the message names the file.
    """
    cell = next((folder for folder in (path, *path.parents) if _is_cell(folder)), None)
    if cell is None:
        return
    if not (cell / DIGESTS).exists():
        if _run(cell).get("format", 1) >= FORMAT:
            raise UsageError(f"{cell / DIGESTS} is missing, so the cell cannot be checked; {remedy(cell)}")
        if not _unchecked:
            print(f"warning: {cell} was made before cells had digests; it is read unchecked, as all cells of that time",
                  file=sys.stderr)  # fmt: skip
            _unchecked.append(cell)
        return
    stat = (cell / DIGESTS).stat()
    written = _written(cell, (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    name = path.relative_to(cell).as_posix()
    if path.is_file() and name != DIGESTS and digest(path) != written[name]["sha256"]:
        raise _damaged(path)


@functools.cache
def _written(cell: Path, stamp: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Read `digests.json`, compare it with the names and sizes of the cell's files, and return its entries."""
    try:
        text = (cell / DIGESTS).read_text(encoding="utf-8")
        files = json.loads(text)["files"]
        intact = text == _text(files)
    except (ValueError, TypeError, KeyError, RecursionError):
        intact = False
    if not intact:
        raise _damaged(cell / DIGESTS)
    existing = _files(cell)
    for name in sorted(files.keys() | existing.keys()):
        if name not in existing:
            raise UsageError(f"{cell / name} is missing from its cell; {remedy(cell)}")
        if name not in files:
            raise UsageError(f"{cell / name} does not belong to its cell; remove it")
        if existing[name].stat().st_size != files[name]["size"]:
            raise _damaged(cell / name)
    return files


def _is_cell(folder: Path) -> bool:
    return (folder / DIGESTS).exists() or ((folder / RUN).exists() and "stage" in _run(folder))


def _run(cell: Path) -> dict[str, Any]:
    try:
        run = json.loads((cell / RUN).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise _damaged(cell / RUN) from None
    return run if isinstance(run, dict) else {}


def _files(cell: Path) -> dict[str, Path]:
    """Return the files of a cell by relative path, except hidden files, which file systems and editors create."""
    names = {path.relative_to(cell).as_posix(): path for path in sorted(cell.rglob("*")) if not path.is_dir()}
    return {name: path for name, path in names.items() if name != DIGESTS and not path.name.startswith(".")}


def _damaged(path: Path) -> UsageError:
    return UsageError(f"{path} is damaged: it differs from the file that its stage wrote; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return advice for a damaged file: to run the stage that made the file, or to copy the cell again."""
    return made_by(path) or "copy the cell again from its source"


def made_by(path: Path) -> str | None:
    """Return advice that names the stage that makes `path` or the cell that contains `path`; None outside cells."""
    if (name := _cell_name(path)) is None:
        return None
    stage = name.partition("/")[0]
    return f"stage {stage} makes it: `retable repro` in a study that contains {name}, or `python -m {module_of(stage)}`"


def _cell_name(path: Path) -> str | None:
    """Return the name of the cell that `path` is or belongs to: `STAGE/CORPUS/NAME`, or `prepare/CORPUS`."""
    parts = path.parts
    stage, *names = parts[parts.index("outputs") + 1 :] if "outputs" in parts[:-1] else [""]
    length = 1 if stage == "prepare" else 2
    is_file = len(names) == length and re.search(r"\.[a-z]\w*$", names[-1])  # a file next to cells, such as a record
    odd = {".", ".."} & {*parts} or {*STAGES, "outputs"} & {*names[:1]}  # a cell cannot have such a name
    if stage not in STAGES or len(names) < length or is_file or odd:
        return None
    return "/".join([stage, *names[:length]])
