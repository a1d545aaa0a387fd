"""Sentence pairs with a score of similarity, in one file per data set: semantic textual similarity (STS).

A data set consists of parts, such as the headlines and the image captions of STS14. A file `<set>.tsv` has the columns
`part`, `score`, `sentence1` and `sentence2`, separated by tabs.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.text import read_lines

COLUMNS = ["part", "score", "sentence1", "sentence2"]
STS_BENCHMARK = "STSB"  # name of the test set of the STS benchmark
# Number of pairs with a score in each test set; MTEB (Muennighoff et al. 2023) has the same numbers.
PAIRS = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, STS_BENCHMARK: 1379}
_GOLD = "gs"  # the gold scores of STS.input.<part>.txt are in STS.gs.<part>.txt


class ScoredPair(NamedTuple):
    part: str
    score: float
    sentence1: str
    sentence2: str


def write_sts(folder: Path, source: str, benchmark: str) -> dict[str, float]:
    """Write the test sets of STS12 to STS16 and of the STS benchmark to `<set>.tsv`, without pairs that have no score.

    Args:
        source: a folder with a folder `<set>-en-test` per year, which contains the published files
            `STS.input.<part>.txt` and `STS.gs.<part>.txt`; in the files of STS16, `STS` is `STS2016` (Agirre et al.
            2012 to 2016).
        benchmark: the file `sts-test.csv` of the STS benchmark (Cer et al. 2017), whose parts are genres.

    Returns: the number of pairs of each set.
    Raises: UsageError: a file is missing, a line does not have the published format, or a set does not have the
        published number of pairs.
    """
    for name, number in PAIRS.items():
        if name == STS_BENCHMARK:
            place, pairs = Path(benchmark), [*_read_benchmark(Path(benchmark))]
        else:
            place = Path(source, f"{name}-en-test")
            if not place.is_dir():
                raise UsageError(
                    f"{source} has no folder {place.name}; set RETABLE_DATA to the folder of data sets, or put the "
                    "files there"
                )
            pairs = [pair for path in sorted(place.glob("STS*.input.*.txt")) for pair in _read_part(path)]
        if len(pairs) != number:
            raise UsageError(f"{place} has {len(pairs)} pairs with a score instead of {number}; copy the files again")
        _write(folder, name, pairs)
    return {f"{name}/pairs": number for name, number in PAIRS.items()}


def _read_part(path: Path) -> Iterator[ScoredPair]:
    version, _, rest = path.name.partition(".input.")
    gold = path.with_name(f"{version}.{_GOLD}.{rest}")
    # In the names of STS12, the parts that were not announced to the participants begin with `surprise.`.
    part = rest.removesuffix(".txt").removeprefix("surprise.")
    for number, (line, score) in enumerate(zip_longest(read_lines(path), read_lines(gold)), start=1):
        if line is None or score is None:
            short = path if line is None else gold
            raise UsageError(f"{short} ends before line {number}, but has one line per pair of {path}; copy both again")
        if not score.strip():
            continue
        sentences = line.split("\t")[:2]  # the further columns of STS16 name the sources of the sentences
        if len(sentences) < 2:
            raise UsageError(f"{path}, line {number}: {line!r} is not a pair; write two sentences with a tab between")
        yield ScoredPair(part, _number(score, gold, number), *map(str.strip, sentences))


def _read_benchmark(path: Path) -> Iterator[ScoredPair]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 7:
            raise UsageError(
                f"{path}, line {number}: {len(columns)} columns instead of genre, file, year, id, score and two "
                "sentences; copy the file of the STS benchmark again"
            )
        yield ScoredPair(columns[0], _number(columns[4], path, number), *map(str.strip, columns[5:7]))


def _write(folder: Path, name: str, pairs: Iterable[ScoredPair]) -> None:
    rows = ["\t".join((part, repr(score), *sentences)) for part, score, *sentences in pairs]
    text = "".join(f"{row}\n" for row in ["\t".join(COLUMNS), *rows])
    (folder / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")


class ScoredPairs:
    """All data sets in a folder of files `<set>.tsv`."""

    def __init__(self, folder: str):
        self.inputs = sorted(Path(folder).glob("*.tsv"))
        if not self.inputs:
            raise UsageError(
                f"{folder} has no sentence pairs (<set>.tsv); run python -m pipelines.prepare corpus=sts, or write "
                "benchmark.sentence_similarity.pairs.folder=FOLDER"
            )

    def read(self) -> dict[str, list[ScoredPair]]:
        """Read the pairs of each set.

        Raises: UsageError: a file has other columns, or a line has another number of columns or no score.
        """
        return {path.stem: _read_set(path) for path in self.inputs}


def _read_set(path: Path) -> list[ScoredPair]:
    lines = read_lines(path)
    if (header := next(lines, "").split("\t")) != COLUMNS:
        raise UsageError(f"{path} has the columns {header}; rename them to {COLUMNS}")
    pairs = []
    for number, line in enumerate(lines, start=2):
        columns = line.split("\t")
        if len(columns) != len(COLUMNS):
            raise UsageError(f"{path}, line {number}: {len(columns)} columns; write {', '.join(COLUMNS)}")
        part, score, *sentences = columns
        if not part or "/" in part:
            raise UsageError(f"{path}, line {number}: {part!r} is not the name of a part; write a name without /")
        pairs.append(ScoredPair(part, _number(score, path, number), *sentences))
    if not pairs:
        raise UsageError(f"{path} has no pairs; write one pair per line below the header")
    return pairs


def _number(text: str, path: Path, line: int) -> float:
    try:
        if isfinite(score := float(text)):
            return score
    except ValueError:
        pass
    raise UsageError(f"{path}, line {line}: {text!r} is not a score; write a number")
