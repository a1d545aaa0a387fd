"""Read and write parallel corpora: line n of one file translates line n of the other."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

from retable.core.errors import UsageError
from retable.corpora.spacy_words import spacy_words
from retable.corpora.text import SPLITS, read_lines


def write_pairs(
    folder: Path, lowercase: bool = False, spacy: Sequence[str] = (), joint: bool = True, **files: str
) -> dict[str, float]:
    """Copy parallel texts to `<split>.source.txt` and `<split>.target.txt`, with single spaces between words.

    For train, validation and test, sources and targets are also written to `<split>.txt` in alternating lines, so that
    one tokenizer can be trained on both languages.

    Args:
        lowercase: whether to convert both languages to lower case.
        spacy: the languages of source and target; if given, spaCy's tokenizers split the texts into words, before the
            conversion to lower case.
        joint: whether `<split>.txt` contains sources and targets; otherwise it contains only targets.
        files: the files `<split>_source` and `<split>_target` of train, validation, test and any additional test sets.

    Returns: the number of pairs and words of each split.
    Raises: UsageError: a file is missing or not UTF-8, two files differ in their number of lines, or a line is empty.
    """
    splits = dict.fromkeys([*SPLITS, *(name.rpartition("_")[0] for name in files)])
    for name in (f"{split}_{side}" for split in splits for side in ("source", "target")):
        if name not in files:
            raise UsageError(f"a parallel corpus needs source and target of each split; add corpus.write.{name}=FILE")
    if spacy and len(spacy) != 2:
        raise UsageError(f"corpus.write.spacy={list(spacy)} must have two languages, such as [de, en]")
    words = [spacy_words(language) for language in spacy] or [str.split] * 2
    counts: dict[str, float] = {}
    for split in splits:
        source, target = Path(files[f"{split}_source"]), Path(files[f"{split}_target"])
        written = write_split(folder, split, source, target, lowercase, words, joint)
        counts |= {f"{split}/{name}": count for name, count in written.items()}
    return counts


def write_split(
    folder: Path,
    split: str,
    source: Path,
    target: Path,
    lowercase: bool,
    words: Sequence[Callable[[str], list[str]]],
    joint: bool,
) -> dict[str, int]:
    """Write the files of one split, and return the counts of pairs and words.

    Args:
        source, target: the files to copy; line n of `target` is the translation of line n of `source`.
        lowercase: whether to convert both languages to lower case.
        words: functions that split a source and a target into words.
        joint: whether `<split>.txt` contains sources and targets; otherwise it contains only targets.

    Returns: `pairs`, `source_words` and `target_words`.
    Raises: UsageError: a line is empty, one file has fewer lines than the other file, or there is no pair.
    """
    pairs = source_words = target_words = 0
    with (
        (folder / f"{split}.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        (folder / f"{split}.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for number, pair in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
            sides = []
            for path, other, line, split_line in zip((source, target), (target, source), pair, words, strict=True):
                if line is None:
                    raise UsageError(
                        f"{path} ends after {number - 1} lines, but {other} has more; "
                        "write the translation of line n of one file in line n of the other"
                    )
                if not line.strip():
                    raise UsageError(f"{path}, line {number} is empty; remove the line from both files")
                of_line = split_line(line)
                sides.append([word.lower() for word in of_line] if lowercase else of_line)
            sources.write(" ".join(sides[0]) + "\n")
            targets.write(" ".join(sides[1]) + "\n")
            pairs, source_words, target_words = number, source_words + len(sides[0]), target_words + len(sides[1])
    if not pairs:
        raise UsageError(f"{source} has no words; the {split} split needs at least one pair")
    if split in SPLITS:
        with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as both:
            pairs_of_lines = zip(*read_pairs(folder, split), strict=True)
            both.writelines(f"{one}\n{other}\n" if joint else f"{other}\n" for one, other in pairs_of_lines)
    return {"pairs": pairs, "source_words": source_words, "target_words": target_words}


def read_pairs(folder: Path, split: str) -> tuple[list[str], list[str]]:
    """Read the source and target sentences of a split from the files that `write_pairs` wrote.

    Args:
        split: `train`, `validation`, or the name of a test set.
    """
    sources, targets = (list(read_lines(folder / f"{split}.{side}.txt")) for side in ("source", "target"))
    return sources, targets


def pair_splits(folder: Path) -> list[str]:
    """List the splits in a folder that `write_pairs` wrote: train, validation, test, then additional test sets by name.

    Raises: UsageError: the folder does not contain a parallel corpus.
    """
    splits = sorted(path.name.removesuffix(".source.txt") for path in folder.glob("*.source.txt"))
    if missing := [split for split in SPLITS if split not in splits]:
        raise UsageError(
            f"{folder} has no pairs of sentences for {missing[0]}; use a parallel corpus, such as corpus=multi30k"
        )
    return [*SPLITS, *(split for split in splits if split not in SPLITS)]
