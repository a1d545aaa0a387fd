"""A tokenizer, to read: `python -m pipelines.describe corpus=grammar tokenizer=bpe words=[unhappiness] other=ptb`."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from pipelines.entry import CONF, stage
from retable.artifacts import require
from retable.corpora.text import SPLITS, read_units
from retable.errors import UsageError
from retable.tokenizers.derivation import derivation
from retable.tokenizers.report import coverage, longest_tokens
from retable.tokenizers.tokenizer import Tokenizer

COLUMNS = {"words": ",.0f", "types": ",.0f", "fertility": ".3f", "compression": ".3f", "unknown": ".2%", "whole": ".1%"}


@stage
def describe(cfg: DictConfig) -> None:
    path, corpora = require(Path("outputs/encode", cfg.tokens, "tokenizer.json")), texts(cfg)
    tokenizer = Tokenizer.load(path)
    marks = [f"{mark} {i}" for mark, i in tokenizer.special_ids.items()]
    shown = marks if len(marks) <= 10 else [*marks[:5], "…", *marks[-2:]]
    print(f"{path}: {tokenizer.vocab_size:,} tokens")
    print(f"special: {', '.join(shown) or 'none'}")
    print(f"longest: {' '.join(longest_tokens(tokenizer, 10))}")

    print(f"\n{'text':24}" + "".join(f"{name:>13}" for name in COLUMNS))
    for text, unit in corpora:
        for split in SPLITS:
            units = sample(require(Path("outputs/prepare", text, f"{split}.txt")), unit, cfg.sample)
            found = coverage(tokenizer, units, unit == "document")
            print(f"{f'{text} {split}':24}" + "".join(f"{found[name]:>13{form}}" for name, form in COLUMNS.items()))
    print("fertility: tokens a word, a line's end being one; compression: bytes a token; unknown: of the tokens;")
    print("whole: of the types, those that are one known token")

    for word in cfg.words:
        print(f"\n{word}", *derivation(tokenizer, str(word)), sep="\n")


def texts(cfg: DictConfig) -> list[tuple[str, str]]:
    """The prepared texts to look at, with the unit of each."""
    own = (cfg.text, cfg.corpus.unit)
    if cfg.other is None:
        return [own]
    file = CONF / "corpus" / f"{cfg.other}.yaml"
    if not file.exists():
        choices = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml")))
        raise UsageError(f"other={cfg.other} is no corpus; write one of {choices}")
    return [own, (cfg.other, OmegaConf.load(file).unit)]


def sample(path: Path, unit: str, size: int) -> list[list[str]]:
    """The first units of a text, as many as begin within its first `size` characters."""
    units = []
    for lines in read_units(path, unit):
        units.append(lines)
        size -= sum(map(len, lines))
        if size <= 0:
            break
    return units


if __name__ == "__main__":
    describe()
