"""A pretrained cell → a folder that transformers loads: `python -m pipelines.export cell=grammar/gpt-1 folder=mine`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from pipelines.entry import stage
from retable.artifacts import read_run, require
from retable.errors import UsageError
from retable.systems import TrainedSystem

if TYPE_CHECKING:
    from retable.exchange.card import Result


@stage
def export(cfg: DictConfig) -> None:
    from retable.cells.systems import load_system
    from retable.exchange import export
    from retable.exchange.card import Card
    from retable.tokenizers.tokenizer import Tokenizer

    cell = Path("outputs/pretrain", cfg.cell)
    system = load_system(cell)
    if not isinstance(system, TrainedSystem):
        raise UsageError(f"{cell} holds no network, and transformers has nothing else; write cell=grammar/gpt-1")
    run = read_run(cell)
    about = f"System {run['system']}, trained on {run['corpus']} with seed {run['seed']}."
    card = Card(cfg.cell.replace("/", "-"), about, cfg.license, [run["corpus"]], list(results(cfg.cell, run["corpus"])))
    tokenizer = Tokenizer.load(require(cell / "tokenizer.json"))
    export.export(system.objective, tokenizer, Path(cfg.folder), card)


def results(cell: str, corpus: str) -> "Iterator[Result]":
    """What the evaluate stage has measured of a cell."""
    from retable.exchange.card import Result

    for path in sorted(Path("outputs/evaluate").glob(f"{cell}-*/metrics.json")):
        for name, value in json.loads(path.read_text(encoding="utf-8")).items():
            split, _, metric = name.rpartition("/")
            yield Result(metric, value, corpus, split or None)


if __name__ == "__main__":
    export()
