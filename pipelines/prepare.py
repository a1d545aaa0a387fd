"""Write the three splits of a corpus: `python -m pipelines.prepare corpus=grammar`."""

import re
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import build_task, chosen
from pipelines.executors.executor import workers
from retable.core.settings import build
from retable.corpora.overlap import text_overlap
from retable.inference.build import takes_setting

# Matches in UTF-8 bytes: ASCII control characters except white space and separators; U+0080 to U+009F except NEL.
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1b\x7f]|\xc2[\x80-\x84\x86-\x9f]")


@stage
def prepare(cfg: DictConfig) -> None:
    tasks = {name: build_task(name) for name in cfg.corpus.get("tasks", ())}
    sources = [Path(value) for value in cfg.corpus.write.values() if isinstance(value, str)]
    sources += [path for task in tasks.values() for path in task.inputs]
    inside = [[path] if path.is_file() else sorted(path.rglob("*")) for path in sources]
    sources = [path for paths in inside for path in paths if path.is_file()]
    with (
        run_folder(cfg, inputs=sources, upstream=[], system="oracle", seed=0, corpus=chosen("corpus")) as record,
        workers(record.scratch) as spread,
    ):
        given: dict[str, Any] = {"tasks": tasks} if tasks else {}
        given |= {"spread": spread} if takes_setting(cfg.corpus.write, "spread") else {}
        given |= {"unit": cfg.corpus.unit} if takes_setting(cfg.corpus.write, "unit") else {}
        record.metrics = build(cfg.corpus.write, "corpus.write", folder=record.folder, **given)
        train, test = (record.folder / f"{split}.txt" for split in ("train", "test"))
        if train.exists() and test.exists():
            shares = text_overlap(train, test, cfg.corpus.unit)
            record.metrics |= {f"test/{name}": share for name, share in shares.items()}
        record.extra["protocol"] = f"whole {cfg.corpus.unit}"
        for path in sorted(record.folder.glob("*.txt")):
            _warn_of_control_characters(path, Path("outputs/prepare", cfg.out, path.name))


def _warn_of_control_characters(path: Path, display_name: Path) -> None:
    """Print how many lines have control characters, which are rarely intended, and the number of the first such line.

    The characters stay in the text, so that the text is the same as for other programs that read the corpus.
    """
    with path.open("rb") as file:
        numbers = [number for number, line in enumerate(file, 1) if _CONTROL.search(line)]
    if numbers:
        lines = f"{len(numbers)} lines have" if len(numbers) > 1 else "1 line has"
        kinds = "control characters, such as NUL or a terminal's escapes"
        print(f"warning: {display_name}: {lines} {kinds}, first line {numbers[0]}; they are kept", file=sys.stderr)


if __name__ == "__main__":
    prepare()
