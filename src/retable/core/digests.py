"""Each file of a cell is the one that its stage wrote: `digests.json` says what was written, and who reads checks it.

What this finds is damage: a bit that flipped, a copy that broke off, a file of another cell. Who changes a cell on
purpose can change its digests as well.
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
FORMAT = 2  # of a cell, as its run.json says; those before had no digests
LARGE = 64 << 20  # bytes; to hash fewer takes less than a tenth of a second
REMEMBERED = Path("work/remembered.json")
_TICK = 2e9  # ns; what is written twice within the file system's clock looks unchanged

_known: dict[str, list[Any]] = {}  # by device and inode: size, times and sha256
_unchecked: list[Path] = []


def digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal.

    As long as its inode says that nothing was written, it is computed once a process, and of a large file once for all
    processes of the project: a corpus of gigabytes is not read through whenever a stage begins. The price: a bit of a
    large file that rots on the disk by itself is not found before `work/` is removed.
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
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = str(path)  # of a read that fails Python has no name
        raise
    if time.time_ns() - max(stamp[1:]) > _TICK:
        _known[inode] = [*stamp, found]
        if stat.st_size >= LARGE and REMEMBERED.parent.is_dir() and Path("outputs").is_dir():
            begun = REMEMBERED.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):  # then it is read through again
                begun.write_text(json.dumps(_remembered() | {inode: _known[inode]}))
                begun.replace(REMEMBERED)
    return found


def _remembered() -> dict[str, list[Any]]:
    try:
        found = json.loads(REMEMBERED.read_text())
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) else {}


def digest_of(value: Any) -> str:
    """The sha256 of a value that JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_digests(cell: Path) -> None:
    """Write `digests.json`: size and sha256 of each other file, and that of all this."""
    files = {name: {"sha256": digest(path), "size": path.stat().st_size} for name, path in _files(cell).items()}
    (cell / DIGESTS).write_text(_text(files), encoding="utf-8")


def _text(files: dict[str, dict[str, Any]]) -> str:
    whole = {"files": files, "sha256": digest_of(files)}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def check(path: Path) -> None:
    """Raise UsageError, which names the file, where `path` is a file of a cell and not as its stage wrote it, or where
    the cell that it is of, or that it is itself, lacks a file or has one too many.

    A cell of before there were digests is read as it is, and a line on standard error says so, once a process.
    """
    cell = next((folder for folder in (path, *path.parents) if _is_cell(folder)), None)
    if cell is None:
        return
    if not (cell / DIGESTS).exists():
        if _run(cell).get("format", 1) >= FORMAT:
            raise UsageError(f"{cell / DIGESTS} is missing, without which the cell can't be checked; {remedy(cell)}")
        if not _unchecked:
            print(f"warning: {cell} was made before cells had digests; it is read unchecked, as others of its time are",
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
    """What `digests.json` has of each file, once the names and sizes are those that there are."""
    try:
        text = (cell / DIGESTS).read_text(encoding="utf-8")
        files = json.loads(text)["files"]
        intact = text == _text(files)
    except (ValueError, TypeError, KeyError, RecursionError):
        intact = False
    if not intact:
        raise _damaged(cell / DIGESTS)
    found = _files(cell)
    for name in sorted(files.keys() | found.keys()):
        if name not in found:
            raise UsageError(f"{cell / name} is missing, a file of its cell; {remedy(cell)}")
        if name not in files:
            raise UsageError(f"{cell / name} is no file of its cell; remove it")
        if found[name].stat().st_size != files[name]["size"]:
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
    """Those of a cell, by their names in it; but no hidden ones, which a file system or an editor leaves."""
    names = {path.relative_to(cell).as_posix(): path for path in sorted(cell.rglob("*")) if not path.is_dir()}
    return {name: path for name, path in names.items() if name != DIGESTS and not path.name.startswith(".")}


def _damaged(path: Path) -> UsageError:
    return UsageError(f"{path} is damaged: it is not the file that was written with its cell; {remedy(path)}")


def remedy(path: Path) -> str:
    """What to do about what is damaged."""
    return made_by(path) or "copy the cell anew from where it came"


def made_by(path: Path) -> str | None:
    """Which stage makes what `path` is of, or is; None for a path of another form than those of cells."""
    if (name := _cell_name(path)) is None:
        return None
    stage = name.partition("/")[0]
    return f"stage {stage} makes it: `retable repro` of a study that has {name}, or `python -m {module_of(stage)}`"


def _cell_name(path: Path) -> str | None:
    """The cell that `path` is of, or is: `STAGE/CORPUS/NAME`, of stage prepare `prepare/CORPUS`."""
    parts = path.parts
    stage, *names = parts[parts.index("outputs") + 1 :] if "outputs" in parts[:-1] else [""]
    length = 1 if stage == "prepare" else 2
    is_file = len(names) == length and re.search(r"\.[a-z]\w*$", names[-1])  # it is beside cells, not in one
    odd = {".", ".."} & {*parts} or {*STAGES, "outputs"} & {*names[:1]}  # these name a cell by its stage or its path
    if stage not in STAGES or len(names) < length or is_file or odd:
        return None
    return "/".join([stage, *names[:length]])
