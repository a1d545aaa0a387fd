"""Where the cell is that somebody names."""

from pathlib import Path

from retable.core.errors import UsageError, closest

RUN = "runs:/"
PAYLOAD = ("model.safetensors", "vectors.bin")  # one of them, or both, is in a system's cell


def find_cell(name: str | Path) -> Path:
    """The folder of a cell: a path, `pretrain/grammar/gpt-1` or, if only one cell ends so, `gpt-1` below `outputs/` of
    the working folder or of the studies in it, or `runs:/<id>` of MLflow. UsageError if there is none, or several."""
    if str(name).startswith(RUN):
        from retable.tracking.store import cell_of

        name = cell_of(str(name).removeprefix(RUN))
    folders = [Path("outputs"), *sorted(Path().glob("studies/*/outputs"))]
    for path in (Path(name), *(folder / name for folder in folders)):
        if (path / "config.yaml").exists():
            return path
    systems = {path.parent for folder in folders for file in PAYLOAD for path in folder.glob(f"*/*/*/{file}")}
    cells = {"/".join(path.parts[-3:]): path for path in sorted(systems, reverse=True)}
    found = [cell for cell in cells if f"/{cell}".endswith(f"/{name}")]
    if len(found) > 1:
        raise UsageError(f"{name} may be {' or '.join(sorted(found))}; write one of them")
    if found:
        return cells[found[0]]
    if not cells:
        raise UsageError(f"{name} is no folder of a cell, and outputs/ has none here; `retable repro` makes some")
    known = sorted(cells) if "/" in str(name) else sorted({path.name for path in systems})
    raise UsageError(f"{name} is no folder of a cell, nor a cell below outputs/; {closest(str(name), known)}")
