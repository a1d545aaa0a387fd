"""A trained system → its scores: `python -m pipelines.evaluate stage=pretrain cell=grammar/lstm-1`."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from pipelines.entry import recorded, stage
from pipelines.load import load_system
from retable.artifacts import read_run, require
from retable.errors import UsageError


@stage
def evaluate(cfg: DictConfig) -> None:
    cell = Path("outputs", cfg.stage, cfg.cell)
    weights = require(cell / "model.safetensors")
    run = read_run(cell)
    tokens = OmegaConf.load(require(cell / "config.yaml")).tokens
    if tokens != cfg.tokens:
        corpus, _, tokenizer = tokens.partition("/")
        raise UsageError(f"{cell} was trained on {tokens}; write corpus={corpus} tokenizer={tokenizer}")
    system = load_system(cell)
    benchmark = instantiate(cfg.benchmark)
    if not hasattr(system, benchmark.asks_for):
        raise UsageError(f"{cell} has no {benchmark.asks_for}, which this benchmark asks for; choose another benchmark")
    inputs = [weights, *map(require, benchmark.inputs)]
    upstream = [cell, *sorted({path.parent for path in benchmark.inputs})]
    with recorded(cfg, inputs, upstream, system=run["system"], seed=run["seed"]) as record:
        record.metrics = benchmark(system, record.folder)
        record.extra["protocol"] = system.protocol


if __name__ == "__main__":
    evaluate()
