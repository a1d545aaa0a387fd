"""Train a tokenizer and encode a text: `python -m pipelines.tokenize_text corpus=grammar tokenizer=word`."""

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from pipelines.app.run_folder import RunFolder, run_folder
from pipelines.app.stage import stage
from pipelines.executors import executor
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.core.workers import SMALL
from retable.corpora.text import SPLITS, read_lines, read_units
from retable.data.encode import COUNTED, write_tokens
from retable.data.parts import write_in_parts
from retable.tokenizers.report import count_unknown, rates
from retable.tokenizers.tokenizer import Lost, Tokenizer, read_tokens


@stage
def tokenize(cfg: DictConfig) -> None:
    text = Path("outputs/prepare", cfg.text)
    if cfg.tokenizer.train is None:
        return copy_tokens(cfg, text)
    splits = {split: require(text / f"{split}.txt") for split in SPLITS}
    closed = [require(text / cfg.corpus.vocabulary)] if cfg.corpus.get("vocabulary") else []
    files = [Path(value) for value in cfg.tokenizer.train.values() if isinstance(value, str) and Path(value).is_file()]
    inputs = [*splits.values(), *closed, *files]
    workers = os.cpu_count() or 1 if cfg.workers is None else cfg.workers
    with (
        run_folder(cfg, inputs, upstream=[text], system=Path(cfg.out).name, seed=0, corpus=cfg.text) as record,
        executor.workers(record.scratch) as spread,
    ):
        vocabulary = read_lines(closed[0]) if closed else ()
        given: dict[str, Any] = {"lines": Lines(splits["train"]), "vocabulary": vocabulary}
        tokenizer = build(cfg.tokenizer.train, "tokenizer.train", **given)
        give_back_memory()
        tokenizer.save(record.folder / "tokenizer.json")
        record.metrics["vocab_size"] = tokenizer.vocab_size
        for path in splits.values():
            tokenizer.require_text(read_lines(path), path)
        for split, path in splits.items():
            unit, size = cfg.corpus.unit, path.stat().st_size
            if spread is not None and size > SMALL:
                totals = write_in_parts(record.folder / "tokenizer.json", path, unit, record.folder / split, spread)
            else:
                units, documents = read_units(path, unit), unit == "document"
                totals = write_tokens(tokenizer, units, documents, record.folder / split, workers, size)
            measure(record, split, tokenizer, totals)
        record.extra["tokenizer_digest"] = tokenizer.digest


def copy_tokens(cfg: DictConfig, text: Path) -> None:
    """Copy the tokens and the tokenizer of a corpus that is distributed as token ids."""
    names = ["tokenizer.json", *(f"{split}{end}" for split in SPLITS for end in (".bin", ".units.npy"))]
    files = [require(require(text) / "train.txt").with_name(name) for name in names]
    if not files[0].exists():
        raise UsageError(f"{text} has text but no token ids; write tokenizer=bpe or the name of another tokenizer")
    with run_folder(cfg, files, upstream=[text], system=Path(cfg.out).name, seed=0, corpus=cfg.text) as record:
        for file in files:
            shutil.copyfile(file, record.folder / file.name)
        tokenizer = Tokenizer.load(files[0])
        record.metrics["vocab_size"] = tokenizer.vocab_size
        for split in SPLITS:
            units = np.load(record.folder / f"{split}.units.npy")
            totals: dict[str, float] = dict(zip(COUNTED, units.sum(axis=0).tolist(), strict=True))
            measure(record, split, tokenizer, totals | {"units": len(units)})
        record.extra["tokenizer_digest"] = tokenizer.digest


def measure(record: RunFolder, split: str, tokenizer: Tokenizer, totals: dict[str, float]) -> None:
    """Record a split's counts and rates; print a line if the test text cannot be restored from its tokens.

    Args:
        record: the open cell with the split's tokens.
        split: name of the split.
        tokenizer: the tokenizer.
        totals: counts of the split by name. The counts `lost` (bytes that no token contains) and `marks` (<unk> in the
            text) are removed from `totals`.
    """
    tokens = read_tokens(record.folder / f"{split}.bin", tokenizer.vocab_size)
    lost, unknown = Lost(int(totals.pop("lost")), int(totals.pop("marks"))), count_unknown(tokenizer, tokens)
    totals |= rates(totals["tokens"], totals["words"], totals["bytes"], unknown, lost)
    record.metrics |= {f"{split}/{name}": total for name, total in totals.items()}
    if split == "test" and lost.bytes:
        print(
            f"test: {unknown - lost.marks} of {totals['tokens']:.0f} tokens are unknown to the vocabulary, "
            f"{lost.marks} are <unk> in the text; {totals['lost']:.2%} of the bytes are not in the tokens, "
            "so there are no bits per byte",
            file=sys.stderr,
        )


def give_back_memory() -> None:
    """Return to the operating system the memory that a tokenizer's trainer has freed.

    Without this call, the C library keeps 300 MB after training on 10 million characters.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Lines:
    """The lines of a file, which can be iterated several times, since WordPiece reads the lines twice."""

    def __init__(self, path: Path):
        self.path = path

    def __iter__(self) -> Iterator[str]:
        return read_lines(self.path)


if __name__ == "__main__":
    tokenize()
