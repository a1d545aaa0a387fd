"""Write corpora from the word-level benchmarks WikiText and One Billion Word."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.corpora.hub import HUB, hub_texts
from retable.corpora.text import SPLITS, read_lines


def write_wikitext(folder: Path, source: str) -> dict[str, float]:
    """Write `<split>.txt` from WikiText-2 or WikiText-103 (Merity et al. 2017), with single spaces between words.

    Headings and blank lines are included, because published token counts (WikiText-2: 2,088,628, 217,646 and 245,569)
    and perplexities include one <eos> per line.

    Args:
        source: folder of wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens; or a data set of the hub,
            hub:Salesforce/wikitext/wikitext-2-v1 or hub:Salesforce/wikitext/wikitext-103-v1, which needs the extra
            `hub`.

    Returns: the number of lines and words of each split.
    Raises: UsageError: a file is missing or has no words.
    """
    counts: dict[str, float] = {}
    for split, hub, name in zip(SPLITS, ("train", "validation", "test"), ("train", "valid", "test"), strict=True):
        lines: Iterable[str]
        if source.startswith(HUB):
            lines = hub_texts(source.removeprefix(HUB), hub)
        else:
            lines = read_lines(Path(source) / f"wiki.{name}.tokens")
        counts |= _write(folder, split, lines, source)
    return counts


def write_lm1b(folder: Path, source: str, shards: PositiveInt = 99) -> dict[str, float]:
    """Write `<split>.txt` from the One Billion Word benchmark (Chelba et al. 2014): one shuffled sentence per line.

    The test split is the first of the fifty held-out shards, as in published results. The validation split is the
    second held-out shard.

    Args:
        source: the folder 1-billion-word-language-modeling-benchmark-r13output of the published archive.
        shards: number of training shards to read, counted from the first; published results use all 99 shards.

    Returns: the number of lines and words of each split.
    Raises: UsageError: a shard is missing or has no words.
    """
    if not 1 <= shards <= 99:
        raise UsageError(f"shards={shards}: the benchmark has 99 training shards; write 1 to 99")
    training = Path(source, "training-monolingual.tokenized.shuffled")
    held_out = Path(source, "heldout-monolingual.tokenized.shuffled")
    files = {
        "train": [training / f"news.en-{number:05d}-of-00100" for number in range(1, shards + 1)],
        "validation": [held_out / "news.en.heldout-00001-of-00050"],
        "test": [held_out / "news.en.heldout-00000-of-00050"],
    }
    counts: dict[str, float] = {}
    for split, paths in files.items():
        counts |= _write(folder, split, chain.from_iterable(map(read_lines, paths)), source)
    return counts


def _write(folder: Path, split: str, texts: Iterable[str], source: str) -> dict[str, float]:
    lines = words = 0
    with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
        for text in texts:
            tokens = text.split()
            file.write(" ".join(tokens) + "\n")
            lines, words = lines + 1, words + len(tokens)
    if not words:
        raise UsageError(f"{source} has no words; the {split} split needs at least one line of text")
    return {f"{split}/lines": lines, f"{split}/words": words}
