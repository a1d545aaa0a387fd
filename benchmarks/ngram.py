"""Compare Kneser-Ney models of order 5 with KenLM: `python -m benchmarks.ngram`.

On the Penn Treebank, both sides estimate a model and score the test text. On longer, generated text, they estimate a
model and write it as an ARPA file. Our side reads memory-mapped ids and keeps the model in memory. KenLM's `lmplz`
reads text and writes an ARPA file; on the Penn Treebank KenLM's `query` then reads this file and scores. If `lmplz` is
not installed, its recorded speed on the Penn Treebank is used. Both sides run in turns, each run in a separate process.
Our times include the loading of compiled loops.

Longer text is generated from the Penn Treebank. The next word is copied from a random place of the Treebank: a place
after the same two words, after the same word, or any place. `<unk>` is replaced by one of 290,000 rare words with
Zipf's frequencies.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.ratio import Ratio, at_least_one, command_line, show

ORDER, PTB = 5, "Penn Treebank"
MEGABYTE = 200_000  # tokens: an English word and its space are about 5 bytes
RARE = 290_000  # rare words
SHARES = 0.05, 0.4, 0.55  # of words copied after 0, 1, 2 equal words; 20 million tokens have 0.8 5-grams per token
# KenLM lmplz -o 5, PTB: 1.1 s to estimate, 0.7 s to load the ARPA, 137 MB (another machine)
RECORDED = "KenLM on PTB, another machine"
RECORDED_SECONDS = {"estimate": 1.1, "estimate, score": 1.1 + 0.7}


class Text(NamedTuple):
    """A text: the file of its token ids, the ids of the test text, and the word of each id. `</s>` ends a sentence."""

    tokens: Path
    test: np.ndarray
    spelling: list[str]


class Cost(NamedTuple):
    seconds: dict[str, float]
    peak: float  # increase of resident memory, in MiB, including mapped files
    own: float  # the same increase without mapped files, in MiB
    model: float  # MiB of the model's tables


def read_words(path: Path) -> list[str]:
    return [word for line in path.read_text(encoding="utf-8").splitlines() for word in [*line.split(), "</s>"]]


def longer(words: np.ndarray, unknown: int, n_types: int, n_tokens: int) -> np.ndarray:
    """Generate ids (n_tokens,) from the ids `words` of a text; both end with `</s>`.

    Rare words have the ids from n_types upwards.
    """
    rng = np.random.default_rng(1)
    rows = -(-n_tokens // 1_000)
    before, two_before = np.roll(words, 1), np.roll(words, 2)
    places, first, n = [], [], []
    for context in (np.zeros_like(words), before, two_before * n_types + before):
        by_context = np.argsort(context, kind="stable")
        inverse, counts = np.unique(context, return_inverse=True, return_counts=True)[1:]
        places.append(by_context)
        first.append((np.cumsum(counts) - counts)[inverse])
        n.append(counts[inverse])
    made = np.empty((rows, -(-n_tokens // rows)), np.uint32)
    place = rng.integers(len(words), size=rows)
    for step in range(made.shape[1]):
        place = (place + 1) % len(words)
        length = np.searchsorted(np.cumsum(SHARES[:-1]), rng.random(rows))
        for k in range(3):
            on = np.flatnonzero(length == k)
            here = place[on]
            place[on] = places[k][first[k][here] + (rng.random(len(on)) * n[k][here]).astype(int)]
        made[:, step] = words[place]
    tokens = made.ravel()[:n_tokens]
    rare = np.flatnonzero(tokens == unknown)
    share = np.cumsum(1 / (np.arange(RARE) + 50))
    tokens[rare] = n_types + np.searchsorted(share, rng.random(len(rare)) * share[-1])
    tokens[-1] = words[-1]
    return tokens


def make(folder: Path, data: Path, n_tokens: int | None) -> Text:
    """Load the Penn Treebank, or generate `n_tokens` tokens from it."""
    train, test = (read_words(data / f"ptb.{split}.txt") for split in ("train", "test"))
    spelling = list(dict.fromkeys(train))
    ids = {word: index for index, word in enumerate(spelling)}
    tokens = np.array([ids[word] for word in train])
    if n_tokens:
        tokens = longer(tokens, ids["<unk>"], len(ids), n_tokens)
        spelling += [f"rare{k}" for k in range(RARE)]
    np.save(folder / "tokens.npy", tokens.astype(np.uint32))
    return Text(folder / "tokens.npy", np.array([ids[word] for word in test]), spelling)


def spell(text: Text, path: Path) -> None:
    """Write the words of the text to a file, one sentence per line."""
    tokens = np.load(text.tokens, mmap_mode="r")
    words = np.array(["\n" if word == "</s>" else word for word in text.spelling], object)
    with open(path, "w", encoding="utf-8") as file:
        for begin in range(0, len(tokens), 1 << 20):
            file.write(" ".join(words[tokens[begin : begin + (1 << 20)]]) + " ")


def status(entry: str) -> float:
    """Return an entry of this process in Linux's /proc/self/status, such as VmRSS, in MiB."""
    match = re.search(rf"{entry}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) / 1024 if match else float("nan")


def ours(text: Text, arpa: Path | None) -> Cost:
    """Estimate a model, then score the test ids, or write the model to `arpa`."""
    from retable.models.arpa import write_arpa
    from retable.models.ngram import KneserNey

    tokens = np.load(text.tokens, mmap_mode="r")
    model = KneserNey(len(text.spelling), ORDER, text.spelling.index("</s>"))
    start, done = {entry: status(entry) for entry in ("VmRSS", "RssAnon")}, threading.Event()
    most = dict(start)

    def watch() -> None:
        while not done.wait(0.02):
            most.update({entry: max(most[entry], status(entry)) for entry in most})

    watching = threading.Thread(target=watch)
    watching.start()
    before = time.perf_counter()
    model.estimate(tokens)
    seconds = {"estimate": time.perf_counter() - before}
    done.set()
    watching.join()
    before = time.perf_counter()
    if arpa:
        write_arpa(model, text.spelling, arpa)
    else:
        model.log_prob(text.test)
    seconds["estimate, ARPA" if arpa else "estimate, score"] = seconds["estimate"] + time.perf_counter() - before
    size = sum(column.nbytes for table in model.tables for column in table) / 2**20
    return Cost(seconds, most["VmRSS"] - start["VmRSS"], most["RssAnon"] - start["RssAnon"], size)


def timed(command: list[str | Path], source: Path) -> tuple[float, float]:
    """Run a program of KenLM on a file. Return its seconds, and the peak of resident memory that it reports, in MiB."""
    with open(source, encoding="utf-8") as file:
        before = time.perf_counter()
        ran = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    match = re.search(r"RSSMax:(\d+) kB", ran.stdout + ran.stderr)
    return time.perf_counter() - before, int(match[1]) / 1024 if match else float("nan")


def kenlm(lmplz: Path, folder: Path, test: Path | None) -> Cost:
    """Estimate a model of `text.txt` in the folder and write it as an ARPA file; then read it and score `test`."""
    command: list[str | Path] = [
        lmplz,
        "-o",
        str(ORDER),
        "-S",
        "2G",
        "-T",
        folder,
        "--skip_symbols",
        "--discount_fallback",
    ]
    arpa = folder / "kenlm.arpa"
    estimating, peak = timed([*command, "--arpa", arpa], folder / "text.txt")
    seconds = {"estimate": estimating, "estimate, ARPA": estimating}
    if test:
        seconds["estimate, score"] = estimating + timed([lmplz.with_name("query"), "-v", "summary", arpa], test)[0]
    return Cost(seconds, peak, peak, 0)


def ratios(arguments: argparse.Namespace) -> Iterator[Ratio]:
    for name in arguments.systems:
        for megabytes in [0] if name == PTB else arguments.megabytes:
            with TemporaryDirectory() as temporary:
                folder = Path(temporary)
                text = make(folder, arguments.data, megabytes * MEGABYTE)
                n_tokens = len(np.load(text.tokens, mmap_mode="r"))
                test = None if megabytes else arguments.data / "ptb.test.txt"
                if arguments.lmplz:
                    spell(text, folder / "text.txt")
                our_costs, theirs = [], []
                for _ in range(arguments.rounds):
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        our_costs.append(process.submit(ours, text, None if test else folder / "ours.arpa").result())
                    if arguments.lmplz:
                        theirs.append(kenlm(arguments.lmplz, folder, test))
                for work in our_costs[0].seconds:
                    speed = n_tokens / statistics.median(cost.seconds[work] for cost in our_costs)
                    if theirs:
                        peers = n_tokens / statistics.median(cost.seconds[work] for cost in theirs)
                    else:
                        peers = 929_589 / RECORDED_SECONDS.get(work, RECORDED_SECONDS["estimate"])
                    first = our_costs[0]
                    memory = f"memory {first.peak:,.0f} MiB, {first.own:,.0f} not in files, {first.model:,.0f} model"
                    memory += f"; KenLM {theirs[0].peak:,.0f}" if theirs else ""
                    title = f"{ORDER}-grams, {f'{megabytes} MB' if megabytes else PTB}: {work}"
                    yield Ratio(title, "KenLM" if theirs else RECORDED, "tokens/s", speed, peers, memory)


def main() -> None:
    parser = command_line(__doc__, [PTB, "longer"], rounds=3)
    parser.add_argument("--megabytes", type=at_least_one, nargs="+", default=[10, 100], help="sizes of longer text")
    parser.add_argument("--data", type=Path, default=Path("data/ptb"), help="folder of the Penn Treebank")
    parser.add_argument("--lmplz", type=Path, default=shutil.which("lmplz"), help="KenLM's lmplz, next to query")
    show(parser, ratios)


if __name__ == "__main__":
    main()
