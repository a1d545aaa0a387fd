"""Resolution of a cell's name or path to its folder."""

from pathlib import Path

from retable.core.errors import UsageError, closest

RUN = "runs:/"
# files of weights; the cell of a trained system contains at least one of these files
PAYLOAD = ("model.safetensors", "vectors.bin")


def find_cell(name: str | Path) -> Path:
    """Return the folder of a cell.

    Names of cells are looked up in `outputs/` of the working folder, and in `studies/*/outputs/`.

    name: a path, the name of a cell in `outputs/` (`pretrain/grammar/gpt-1`, or `gpt-1` if only one cell has this
        name), or an MLflow run, `runs:/<id>`.

    Raises: UsageError: no cell or several cells have this name.
    """
    if str(name).startswith(RUN):
        from retable.tracking.store import cell_of

        name = cell_of(str(name).removeprefix(RUN))
    folders = [Path("outputs"), *sorted(Path().glob("studies/*/outputs"))]
    for path in (Path(name), *(folder / name for folder in folders)):
        if (path / "config.yaml").exists():
            return path
    systems = {path.parent for folder in folders for file in PAYLOAD for path in folder.glob(f"*/*/*/{file}")}
    cells = {"/".join(path.parts[-3:]): path for path in sorted(systems, reverse=True)}
    matches = [cell for cell in cells if f"/{cell}".endswith(f"/{name}")]
    if len(matches) > 1:
        raise UsageError(f"{name} is ambiguous; write {' or '.join(sorted(matches))} instead")
    if matches:
        return cells[matches[0]]
    if not cells:
        raise UsageError(f"no cell {str(name)!r}: outputs/ has no trained system here; run `retable repro` first")
    known = sorted(cells) if "/" in str(name) else sorted({path.name for path in systems})
    raise UsageError(f"no cell {str(name)!r}, neither as a path nor in outputs/; {closest(str(name), known)}")
