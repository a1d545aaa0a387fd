"""Evaluate a trained system on benchmarks: `python -m pipelines.evaluate stage=pretrain cell=grammar/lstm-1`.

With several benchmarks, as in `benchmark=[perplexity,phenomena]`, the model is loaded once, and each benchmark writes
to a separate folder. Scores of an earlier evaluation of the same system with the same settings, data and code are
reused.

For word vectors trained elsewhere: `python -m pipelines.evaluate vectors=google.bin benchmark=google_analogies`.
"""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.app.devices import on_devices
from pipelines.app.inputs import require_tokens
from pipelines.app.kept import keep, key_of, measured_before, require_input
from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.errors import is_main_process
from retable.core.artifacts import read_run, require, root, write_metrics
from retable.core.compressed import file_of, plain_name
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.inference.find import PAYLOAD
from retable.inference.systems import load_system, load_vectors
from retable.tasks.table import placed


@stage
def evaluate(cfg: DictConfig) -> None:
    if cfg.vectors:
        source = Path(cfg.vectors)
        # Every embed cell has a file vectors.bin, so the new cell gets the name of the embed cell and not of the file.
        stem = Path(plain_name(source)).stem
        name = file_of(source).parent.name if stem == "vectors" else stem
        inputs, cells, seed = [require(file_of(source))], [], 0
        # The cell's name, which is the default `out`, is replaced. An `out` that the user set stays unchanged.
        corpus, place = "vectors", cfg.out.replace(cfg.cell, f"vectors/{name}")
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
        if not isinstance(system, benchmark.requires):
            raise UsageError(
                f"{source} is not a {benchmark.requires.__name__}, which benchmark {key} needs; write another benchmark"
            )
    named = dict.fromkeys(path for benchmark in benchmarks.values() for path in benchmark.inputs)
    cells += sorted({path.parent for path in named if (path.parent / "run.json").exists()})
    keys = {key: key_of(cfg, key, benchmark, inputs, cells) for key, benchmark in benchmarks.items()}
    inputs += map(require_input, named)
    with (
        on_devices(cfg, system) as computed,
        run_folder(cfg, inputs, cells, name, seed, corpus=corpus, place=place) as record,
    ):
        record.costs |= computed
        for key, benchmark in benchmarks.items():
            folder = record.folder / key
            kept = root() / "work/measured" / keys[key][:20]
            if (metrics := measured_before(kept, folder)) is None:
                folder.mkdir()
                with placed(benchmark.inputs):
                    metrics = benchmark(system, folder)
                write_metrics(folder, metrics)
                if is_main_process():
                    keep(folder, kept)
            if twice := sorted(metrics.keys() & record.metrics.keys()):
                raise UsageError(f"two benchmarks measure {twice[0]}; run benchmark {key} separately")
            record.metrics |= metrics
        record.extra["protocol"] = system.protocol


if __name__ == "__main__":
    evaluate()
