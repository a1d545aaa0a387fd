"""A trained system → its scores: `python -m pipelines.evaluate stage=pretrain cell=grammar/lstm-1`.

Several benchmarks read the model once, each into a folder of its own: `benchmark=[perplexity,phenomena]`. What an
earlier evaluation of the same system measured by the same settings, data and code is not measured again.

Word vectors that were trained elsewhere: `python -m pipelines.evaluate vectors=google.bin benchmark=google_analogies`.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipelines import computing
from pipelines.entry import is_main_process, stage
from pipelines.reach import code, reached_by
from pipelines.record import loaded_from, recorded
from pipelines.tokens import require_tokens
from retable.artifacts import read_json, read_run, require, root, write_metrics
from retable.cells.find import PAYLOAD
from retable.cells.systems import load_system, load_vectors
from retable.digests import DIGESTS, digest, digest_of, write_digests
from retable.errors import UsageError
from retable.settings import build


@stage
def evaluate(cfg: DictConfig) -> None:
    if cfg.vectors:
        source = Path(cfg.vectors)
        name = source.parent.name if source.stem == "vectors" else source.stem  # embed cells call theirs vectors.bin
        inputs, cells, seed = [require(source)], [], 0
        corpus, place = "vectors", cfg.out.replace(cfg.cell, f"vectors/{name}")  # an `out` of the user's own stays
        system = load_vectors(source)
    else:
        source = Path("outputs", cfg.stage, cfg.cell)
        payload = [source / file for file in PAYLOAD]
        inputs = [path for path in payload if path.exists()] or [require(payload[0])]
        cells, run = [source], read_run(source)
        name, seed, corpus, place = run["system"], run["seed"], run["corpus"], cfg.out
        require_tokens(source, cfg.tokens)
        system = load_system(source)
    benchmarks = {key: build(part, f"benchmark.{key}") for key, part in cfg.benchmark.items()}
    for key, benchmark in benchmarks.items():
        if not isinstance(system, benchmark.asks_for):
            raise UsageError(
                f"{source} is no {benchmark.asks_for.__name__}, which benchmark {key} asks for; choose another one"
            )
    computing.place(cfg, system)
    named = dict.fromkeys(path for benchmark in benchmarks.values() for path in benchmark.inputs)
    cells += sorted({path.parent for path in named if (path.parent / "run.json").exists()})
    keys = {key: key_of(cfg, key, benchmark, inputs, cells) for key, benchmark in benchmarks.items()}
    inputs += map(_require, named)
    with recorded(cfg, inputs, cells, name, seed, corpus=corpus, place=place) as record:
        computing.begin(cfg, record)
        for key, benchmark in benchmarks.items():
            folder = record.folder / key
            kept = root() / "work/measured" / keys[key][:20]
            if (metrics := measured_before(kept, folder)) is None:
                folder.mkdir()
                metrics = benchmark(system, folder)
                write_metrics(folder, metrics)
                if is_main_process():
                    keep(folder, kept)
            if twice := sorted(metrics.keys() & record.metrics.keys()):
                raise UsageError(f"benchmark {key} has {twice[0]}, as one before it; ask the two in runs of their own")
            record.metrics |= metrics
        record.extra["protocol"] = system.protocol


def key_of(cfg: DictConfig, name: str, benchmark: Any, inputs: Sequence[Path], cells: list[Path]) -> str:
    """What the scores of a benchmark depend on: its settings, its data, the system, and the code that it reaches."""
    settings = OmegaConf.to_container(cfg.benchmark[name], resolve=True)
    digests = {str(path): digest(path) for path in (*inputs, *map(_require, benchmark.inputs))}
    reached = reached_by("evaluate", {"benchmark": settings}, *loaded_from(cells))
    return digest_of([settings, digests, code().fingerprint(reached)])


def measured_before(kept: Path, folder: Path) -> dict[str, float] | None:
    """The scores of a benchmark that are kept, and its files in `folder`; None if there are none, or damaged ones."""
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
    """Keep what a benchmark measured for later evaluations of the same system, in any study."""
    begun = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.copytree(folder, begun)
    write_digests(begun)
    try:
        begun.rename(kept)
    except OSError:  # another process was first
        shutil.rmtree(begun)


def _require(path: Path) -> Path:
    if path.exists() or "outputs" in path.parts:
        return require(path)
    raise UsageError(f"{path} does not exist; set RETABLE_DATA to the folder of data sets, or put the file there")


if __name__ == "__main__":
    evaluate()
