"""A trained system → its scores: `python -m pipelines.evaluate stage=pretrain cell=grammar/lstm-1`."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage
from pipelines.load import load_system
from retable.artifacts import read_run, require


@stage
def evaluate(cfg: DictConfig) -> None:
    cell = Path("outputs", cfg.stage, cfg.cell)
    weights = require(cell / "model.safetensors")
    run = read_run(cell)
    system = load_system(cell)
    benchmark = instantiate(cfg.benchmark)
    inputs = [weights, *map(require, benchmark.inputs)]
    with recorded(cfg, inputs, upstream=[cell], system=run["system"], seed=run["seed"]) as record:
        record.metrics = benchmark(system, record.folder)
        record.extra["protocol"] = system.protocol


if __name__ == "__main__":
    evaluate()
