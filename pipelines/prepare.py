"""Source → text: `python -m pipelines.prepare corpus=grammar`."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage


@stage
def prepare(cfg: DictConfig) -> None:
    sources = [Path(value) for value in cfg.corpus.write.values() if isinstance(value, str) and Path(value).is_file()]
    with recorded(cfg, inputs=sources, upstream=[], system="oracle", seed=0) as record:
        record.metrics = instantiate(cfg.corpus.write, folder=record.folder)
        record.extra["protocol"] = f"whole {cfg.corpus.unit}"


if __name__ == "__main__":
    prepare()
