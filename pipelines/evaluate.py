"""A trained system → its scores: `python -m pipelines.evaluate stage=pretrain cell=grammar/lstm-1`.

Word vectors that were trained elsewhere: `python -m pipelines.evaluate vectors=google.bin benchmark=google_analogies`.
"""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from pipelines.entry import recorded, stage
from pipelines.load import load_system, load_vectors
from retable.artifacts import read_run, require
from retable.errors import UsageError


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
        inputs, cells, run = [require(source / "model.safetensors")], [source], read_run(source)
        inputs += source.glob("vectors.bin")
        name, seed, corpus, place = run["system"], run["seed"], run["corpus"], cfg.out
        tokens = OmegaConf.load(require(source / "config.yaml")).tokens
        if tokens != cfg.tokens:
            text, _, tokenizer = tokens.partition("/")
            raise UsageError(f"{source} was trained on {tokens}; write corpus={text} tokenizer={tokenizer}")
        system = load_system(source)
    benchmark = instantiate(cfg.benchmark)
    if not isinstance(system, benchmark.asks_for):
        raise UsageError(
            f"{source} is no {benchmark.asks_for.__name__}, which this benchmark asks for; choose another one"
        )
    inputs += map(_require, benchmark.inputs)
    cells += sorted({path.parent for path in benchmark.inputs if (path.parent / "run.json").exists()})
    with recorded(cfg, inputs, cells, name, seed, corpus=corpus, place=place) as record:
        record.metrics = benchmark(system, record.folder)
        record.extra["protocol"] = system.protocol


def _require(path: Path) -> Path:
    if path.exists() or "outputs" in path.parts:
        return require(path)
    raise UsageError(f"{path} does not exist; set RETABLE_DATA to the folder of data sets, or put the file there")


if __name__ == "__main__":
    evaluate()
