"""Where the cell is that somebody names."""

from pathlib import Path

from retable.errors import UsageError, closest

RUN = "runs:/"
PAYLOAD = ("model.safetensors", "vectors.bin")  # one of them, or both, is in a system's cell


def find_cell(name: str | Path) -> Path:
    """The folder of a cell: a path, `pretrain/grammar/gpt-1` or, where one cell alone ends so, `gpt-1` below `outputs/`
    of the project that the working folder is, or `runs:/<id>` of MLflow. UsageError where there is none, or several."""
    if str(name).startswith(RUN):
        from retable.tracking.store import cell_of

        name = cell_of(str(name).removeprefix(RUN))
    for path in (Path(name), Path("outputs", name)):
        if (path / "config.yaml").exists():
            return path
    systems = {path.parent for file in PAYLOAD for path in Path("outputs").glob(f"*/*/*/{file}")}
    cells = {str(path.relative_to("outputs")): path for path in systems}
    found = [cell for cell in cells if f"/{cell}".endswith(f"/{name}")]
    if len(found) > 1:
        raise UsageError(f"{name} may be {' or '.join(sorted(found))}; write one of them")
    if found:
        return cells[found[0]]
    if not cells:
        raise UsageError(f"{name} is no folder of a cell, and outputs/ has none here; `retable repro` makes some")
    known = sorted(cells) if "/" in str(name) else sorted({path.name for path in systems})
    raise UsageError(f"{name} is no folder of a cell, nor a cell below outputs/; {closest(str(name), known)}")
