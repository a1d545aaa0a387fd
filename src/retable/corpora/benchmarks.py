"""The word-level benchmarks that come in files of their own: WikiText and One Billion Word."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.corpora.hub import HUB, hub_texts
from retable.corpora.text import SPLITS, read_lines


def write_wikitext(folder: Path, source: str) -> dict[str, float]:
    """Write `<split>.txt` from WikiText-2 or WikiText-103 (Merity et al. 2017): all lines, words parted by one space.

    Headings stay, and so do blank lines: the published counts of tokens, for WikiText-2 2,088,628, 217,646 and 245,569,
    have an <eos> for each line, and the published perplexities are over those tokens.

    source: the folder of wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, or hub:Salesforce/wikitext/<name>,
        where the name is wikitext-2-v1 or wikitext-103-v1; that needs the extra `hub`.

    Returns the counts of lines and words of each split. Raises UsageError where a file is missing or holds no words.
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
    """Write `<split>.txt` from the One Billion Word benchmark (Chelba et al. 2014): a shuffled sentence a line.

    Test is the first of the fifty held-out shards, as in the published results; validation the second.

    source: the folder 1-billion-word-language-modeling-benchmark-r13output of the distribution.
    shards: how many of the 99 training shards to read, from the first on; published numbers are of all.

    Returns the counts of lines and words of each split. Raises UsageError where a shard is missing or holds no words.
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
        raise UsageError(f"{source} holds no words; the {split} split needs at least one line of text")
    return {f"{split}/lines": lines, f"{split}/words": words}
