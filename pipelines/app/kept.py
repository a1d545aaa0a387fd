"""A cache of benchmark scores for later evaluations of the same system: `work/measured/<key>`."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipelines.app.run_folder import described, loaded_from
from pipelines.study.code_reached import code, entry_points_of
from retable.core.artifacts import read_json, require
from retable.core.digests import DIGESTS, digest, digest_of, write_digests
from retable.core.errors import UsageError, require_file


def key_of(cfg: DictConfig, name: str, benchmark: Any, inputs: Sequence[Path], cells: list[Path]) -> str:
    """Return a digest of everything that a benchmark's scores depend on: settings, data, system and code."""
    settings = OmegaConf.to_container(cfg.benchmark[name], resolve=True)
    digests = {str(path): digest(path) for path in (*inputs, *map(require_input, benchmark.inputs))}
    reached = entry_points_of("evaluate", {"benchmark": settings}, *loaded_from(cells))
    of_cells = described(cells)
    return digest_of([settings, cfg.trainer.precision, cfg.vectors, digests, of_cells, code().fingerprint(reached)])


def measured_before(kept: Path, folder: Path) -> dict[str, float] | None:
    """Return a benchmark's cached scores and copy its files to `folder`.

    If the cache folder `kept` is missing or damaged, return None.
    """
    if not kept.exists():
        return None
    try:
        files = [require(path) for path in sorted(kept.glob("[!.]*")) if path.name != DIGESTS]
        metrics = read_json(kept / "metrics.json")
    except UsageError:
        shutil.rmtree(kept)
        return None
    folder.mkdir()
    for path in files:
        shutil.copyfile(path, folder / path.name)
    return metrics


def keep(folder: Path, kept: Path) -> None:
    """Copy a benchmark's files and scores to the cache folder `kept`, for later evaluations of the same system."""
    begun = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.copytree(folder, begun)
    write_digests(begun)
    try:
        begun.rename(kept)
    except OSError:  # another process has cached the same scores
        shutil.rmtree(begun)


def require_input(path: Path) -> Path:
    if "outputs" in path.parts:
        return require(path)
    require_file(path)
    return require(path)
