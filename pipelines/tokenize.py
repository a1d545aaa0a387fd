"""Text → tokens: `python -m pipelines.tokenize corpus=grammar tokenizer=word`."""

import os
from collections.abc import Iterator
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage
from retable.artifacts import require
from retable.corpora.text import SPLITS, read_lines, read_units
from retable.data.encode import write_tokens
from retable.errors import UsageError
from retable.tokenizers.report import count_unknown, rates
from retable.tokenizers.tokenizer import read_tokens


@stage
def tokenize(cfg: DictConfig) -> None:
    text = Path("outputs/prepare", cfg.text)
    splits = {split: require(text / f"{split}.txt") for split in SPLITS}
    closed = text / "vocabulary.txt"
    given = [Path(value) for value in cfg.tokenizer.train.values() if isinstance(value, str) and Path(value).is_file()]
    inputs = [*splits.values(), *([closed] if closed.exists() else []), *given]
    workers = os.cpu_count() or 1 if cfg.workers is None else cfg.workers
    if not isinstance(workers, int) or workers < 1:
        raise UsageError(f"workers={workers} can't encode; write 1 or more, or null for one a core")
    with recorded(cfg, inputs, upstream=[text], system=Path(cfg.out).name, seed=0) as record:
        vocabulary = read_lines(closed) if closed.exists() else ()
        tokenizer = instantiate(cfg.tokenizer.train, Lines(splits["train"]), vocabulary=vocabulary)
        tokenizer.save(record.folder / "tokenizer.json")
        record.metrics["vocab_size"] = tokenizer.vocab_size
        for split, path in splits.items():
            units, documents = read_units(path, cfg.corpus.unit), cfg.corpus.unit == "document"
            size = path.stat().st_size
            totals = write_tokens(tokenizer, units, documents, record.folder / split, workers, size)
            tokens = read_tokens(record.folder / f"{split}.bin", tokenizer.vocab_size)
            unknown = count_unknown(tokenizer, tokens)
            totals |= rates(totals["tokens"], totals["words"], totals["bytes"], unknown)
            record.metrics |= {f"{split}/{name}": total for name, total in totals.items()}
        record.extra["tokenizer_digest"] = tokenizer.digest


class Lines:
    """The lines of a file, from the first whenever they are asked for; WordPiece asks twice."""

    def __init__(self, path: Path):
        self.path = path

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)


if __name__ == "__main__":
    tokenize()
