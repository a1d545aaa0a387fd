"""Run a text larger than memory from file to model: python -m benchmarks.large MEGABYTES [--folder FOLDER]

Writes a text of about a million different words with Zipf's frequencies, and the configuration of a corpus that splits
it, as in docs/howto/own-text.md. Then runs the stages prepare, tokenize and a short pretrain, with words and with
byte-pair encoding. Peaks count the anonymous memory of all processes of a stage. Pages of files are not counted,
because the system frees them on demand. To limit the memory, run the benchmark in a memory cgroup.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.ratio import at_least_one
from retable.core.stages import module_of

TYPES, LINE, AT_A_TIME = 2_000_000, 25, 1_000_000  # distinct words; words per line; words drawn at a time
PARTS, TURNS = 5, 8  # a text is PARTS draws, repeated in TURNS spellings
HELD_OUT = 400_000  # bytes of held-out text: half validation, half test
CONSONANTS = b"bdfghklmnprstvz"
SYLLABLES = [f"{consonant}{vowel}" for consonant in CONSONANTS.decode() for vowel in "aeio"]
CORPUS = """\
unit: line
write: {{_target_: retable.corpora.cut.write_cut, source: {source}, train: {train}, test: {test}}}
"""
SHORT = ["trainer=cpu", "++max_steps=40", "validations=1", "batches.batch_size=16", "model.d_model=64"]
LEARN_FROM = 10_000_000  # characters; their 300,000 different words take a kilobyte each in a trainer
GPT = ["recipe=transformer/gpt", "model.n_layers=2", "model.n_heads=2", *SHORT]
STAGES = [
    ["prepare"],
    ["tokenize", "tokenizer=word"],
    ["pretrain", "tokenizer=word", "recipe=recurrent/lstm", *SHORT],
    ["pretrain", "tokenizer=word", *GPT],
    ["evaluate", "tokenizer=word", "stage=pretrain", "cell=large/gpt-1", "benchmark=perplexity"],
    ["tokenize", "tokenizer=bpe", f"+tokenizer.train.learn_from={LEARN_FROM}"],
    ["pretrain", "tokenizer=bpe", "system=gpt_bpe", *GPT],
]
RARE = 2_000_000  # a known word occurs at least once per so many bytes; about 20,000 words do


def spelling(rank: int) -> str:
    rest, last = divmod(rank, len(SYLLABLES))
    return (spelling(rest - 1) if rest else "") + SYLLABLES[last]


def text() -> Iterator[bytes]:
    """Yield blocks of lines, some megabytes each, without end."""
    words = [spelling(rank).encode() for rank in range(TYPES)]
    shares = np.cumsum(1 / (np.arange(TYPES) + 2.7))
    generator = np.random.default_rng(1)
    while True:
        ranks = np.searchsorted(shares, generator.random((AT_A_TIME // LINE, LINE)) * shares[-1])
        yield b"".join(b" ".join(map(words.__getitem__, line)) + b"\n" for line in ranks.tolist())


def write_text(path: Path, size: int) -> None:
    """Write PARTS blocks, then repeat them with other consonants, which makes other words, until `size` bytes."""
    begun = b"".join(islice(text(), PARTS))
    with path.open("wb") as file:
        for k in cycle(range(TURNS)):
            turned = CONSONANTS[k:] + CONSONANTS[:k]
            if not file.write(begun.translate(bytes.maketrans(CONSONANTS, turned))[: size - file.tell()]):
                break


class Cost(NamedTuple):
    seconds: float
    cpu: float  # CPU seconds
    peak: float  # of anonymous memory, MiB


def run(stage: str, *settings: str, folder: Path) -> Cost:
    command = [sys.executable, "-m", module_of(stage), f"--config-dir={folder / 'conf'}", "corpus=large", *settings]
    root = Path(__file__).parent.parent
    return watched(command, folder, {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"})


def watched(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Cost:
    """Run a command and return its cost, including all processes that it starts."""
    started, before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
    child = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    while child.poll() is None:
        peak = max(peak, sum(anonymous(psutil.Process(child.pid))))
        time.sleep(0.25)
    assert child.stderr is not None
    if child.returncode:
        sys.exit(f"{command} ended with {child.returncode}: {child.stderr.read()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - started, used, peak / 2**20)


def anonymous(parent: psutil.Process) -> Iterator[int]:
    try:
        for process in [parent, *parent.children(recursive=True)]:
            memory = process.memory_info()
            yield memory.rss - memory.shared
    except psutil.NoSuchProcess:  # a process ended after it was listed
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megabytes", type=at_least_one)
    parser.add_argument("--folder", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name)).resolve()
        source, size = folder / "text.txt", arguments.megabytes * 1_000_000
        (folder / "conf/corpus").mkdir(parents=True, exist_ok=True)
        corpus = CORPUS.format(source=source, train=1 - HELD_OUT / size, test=HELD_OUT / 2 / size)
        (folder / "conf/corpus/large.yaml").write_text(corpus, encoding="utf-8")
        if not source.exists():
            write_text(source, size)
        print("| stage | s | MB/s | peak of anonymous memory, MiB |\n|---|---:|---:|---:|", flush=True)
        for stage in STAGES:
            rare = [f"tokenizer.train.min_count={max(size // RARE, 1)}"] * (stage == ["tokenize", "tokenizer=word"])
            seconds, _, peak = run(*stage, *rare, folder=folder)
            speed = f"{source.stat().st_size / 1e6 / seconds:.1f}" if stage[0] in ("prepare", "tokenize") else ""
            print(f"| `{' '.join(stage)}` | {seconds:.0f} | {speed} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
