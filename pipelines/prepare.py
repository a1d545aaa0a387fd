"""Source → text: `python -m pipelines.prepare corpus=grammar`."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import chosen, stage
from pipelines.record import recorded
from pipelines.tasks import build_task


@stage
def prepare(cfg: DictConfig) -> None:
    tasks = {name: build_task(name) for name in cfg.corpus.get("tasks", ())}
    sources = [Path(value) for value in cfg.corpus.write.values() if isinstance(value, str)]
    sources += [path for task in tasks.values() for path in task.inputs]
    sources = [path for path in sources if path.is_file()]
    with recorded(cfg, inputs=sources, upstream=[], system="oracle", seed=0, corpus=chosen("corpus")) as record:
        given = {"tasks": tasks} if tasks else {}
        record.metrics = instantiate(cfg.corpus.write, _partial_=True)(folder=record.folder, **given)
        record.extra["protocol"] = f"whole {cfg.corpus.unit}"


if __name__ == "__main__":
    prepare()
