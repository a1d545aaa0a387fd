"""Text → tokens: `python -m pipelines.tokenize corpus=grammar tokenizer=word`."""

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage
from retable.artifacts import require
from retable.corpora.text import SPLITS, read_lines, read_units
from retable.data.encode import write_tokens


@stage
def tokenize(cfg: DictConfig) -> None:
    text = Path("outputs/prepare", cfg.text)
    splits = {split: require(text / f"{split}.txt") for split in SPLITS}
    closed = text / "vocabulary.txt"
    inputs = [*splits.values(), *([closed] if closed.exists() else [])]
    with recorded(cfg, inputs, upstream=[text], system=Path(cfg.out).name, seed=0) as record:
        vocabulary = read_lines(closed) if closed.exists() else ()
        tokenizer = instantiate(cfg.tokenizer.train, read_lines(splits["train"]), vocabulary=vocabulary)
        tokenizer.save(record.folder / "tokenizer.json")
        record.metrics["vocab_size"] = tokenizer.vocab_size
        for split, path in splits.items():
            units = read_units(path, cfg.corpus.unit)
            totals = write_tokens(tokenizer, units, cfg.corpus.unit == "document", record.folder / split)
            record.metrics |= {f"{split}/{name}": total for name, total in totals.items()}
        record.extra["tokenizer_digest"] = tokenizer.digest


if __name__ == "__main__":
    tokenize()
