"""An n-gram model → an ARPA file for other tools: `python -m pipelines.arpa cell=ptb/kn5-1 file=kn5.arpa`."""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.entry import stage
from retable.artifacts import require
from retable.cells.systems import load_system
from retable.errors import UsageError
from retable.models.arpa import write_arpa
from retable.models.ngram import BackoffModel
from retable.tokenizers.tokenizer import Tokenizer


@stage
def arpa(cfg: DictConfig) -> None:
    cell = Path("outputs/pretrain", cfg.cell)
    model = load_system(cell)
    if not isinstance(model, BackoffModel):
        raise UsageError(f"{cell} is no n-gram model; only those have ARPA files: write cell=ptb/kn5-1, for example")
    write_arpa(model, Tokenizer.load(require(cell / "tokenizer.json")).words, Path(cfg.file))


if __name__ == "__main__":
    arpa()
