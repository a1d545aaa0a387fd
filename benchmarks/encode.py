"""Compare tokenizing with the bare tokenizers library: python -m benchmarks.encode MEGABYTES [--tokenizer byte_bpe]

Writes text of the built-in grammar, then encodes it with both sides in turns, on 1 core and on 2 cores. The bare
library runs encode_batch_fast over the lines and returns their ids; its reading of the text is not timed. Our side is
write_tokens, from text file to token files, including the start of its processes. The CPU time of all processes is more
reliable than wall time if other programs run. Memory is the largest sum over all processes; a page that several
processes share is counted in each of them.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from operator import truediv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from retable.corpora.text import read_lines, read_units
from retable.data.encode import THREADS, write_tokens
from retable.grammar.language import Grammar
from retable.tokenizers import byte_bpe, character, unigram, word, wordpiece
from retable.tokenizers.tokenizer import Tokenizer

TRAIN: dict[str, Callable[..., Tokenizer]] = {
    "byte_bpe": lambda lines: byte_bpe.train(lines, vocab_size=8192),
    "wordpiece": lambda lines: wordpiece.train(lines, vocab_size=8192, lowercase=True),
    "unigram": lambda lines: unigram.train(lines, vocab_size=4096),
    "word": word.train,
    "character": character.train,
}
GENERATED = 100_000_000  # bytes; longer text repeats them with other vowels, which makes other words
VOWELS = "aeiou"
BATCH = 8192  # lines per call of the bare library
CORES = (1, 2)


def generate(seed: int, size: int) -> str:
    documents, parts = Grammar().documents(seed, "train"), []
    while size > 0:
        parts.append("\n".join([*next(documents), "", ""]))
        size -= len(parts[-1])
    return "".join(parts)


def write_text(path: Path, size: int) -> None:
    first = min(size, GENERATED)
    with ProcessPoolExecutor(2) as pool, path.open("w", encoding="utf-8", newline="\n") as file:
        texts = list(pool.map(generate, (1, 2), (first // 2, first - first // 2)))
        for turn in range(-(-size // GENERATED)):
            k = turn % len(VOWELS)
            for text in texts:
                file.write(text.translate(str.maketrans(VOWELS, VOWELS[k:] + VOWELS[:k])))


def processor_time() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def bare(folder: Path) -> tuple[float, float]:
    """Encode with the bare library. Return wall and CPU seconds."""
    tokenizer = Tokenizer.load(folder / "tokenizer.json")._tokenizer
    lines, seconds, processor = read_lines(folder / "train.txt"), 0.0, 0.0
    while batch := list(islice(lines, BATCH)):
        start, start_processor = time.perf_counter(), processor_time()
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            encoding.ids  # noqa: B018
        seconds += time.perf_counter() - start
        processor += processor_time() - start_processor
    return seconds, processor


def ours(folder: Path, cores: int) -> tuple[float, float]:
    """Encode with write_tokens. Return wall and CPU seconds."""
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    start, start_processor = time.perf_counter(), processor_time()
    write_tokens(tokenizer, read_units(folder / "train.txt", "document"), True, folder / f"train-{cores}", cores)
    return time.perf_counter() - start, processor_time() - start_processor


def run(kind: str, cores: int, folder: Path) -> tuple[float, float, float]:
    """Run one side in a separate process. Return wall seconds, CPU seconds and the peak memory in MB."""
    environment = os.environ | {THREADS: str(cores > 1).lower(), "RAYON_NUM_THREADS": str(cores)}
    command = [sys.executable, "-m", "benchmarks.encode", "0", "--run", kind, str(cores), str(folder)]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    peak, parent = 0, psutil.Process(child.pid)
    while child.poll() is None:
        peak = max(peak, sum(memory(parent)))
        time.sleep(0.05)
    assert child.returncode == 0 and child.stdout is not None
    seconds, processor = json.loads(child.stdout.read())
    return seconds, processor, peak / 1e6


def memory(parent: psutil.Process) -> Iterator[int]:
    try:
        for process in [parent, *parent.children(recursive=True)]:
            yield process.memory_info().rss
    except psutil.NoSuchProcess:  # a process ended after it was listed
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megabytes", type=int)
    parser.add_argument("--tokenizer", choices=TRAIN, default="byte_bpe")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        kind, cores, folder = arguments.run
        print(json.dumps(bare(Path(folder)) if kind == "bare" else ours(Path(folder), int(cores))))
        return

    with TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "train.txt", arguments.megabytes * 1_000_000)
        megabytes = (folder / "train.txt").stat().st_size / 1e6
        before = time.perf_counter()
        tokenizer = TRAIN[arguments.tokenizer](list(islice(read_lines(folder / "train.txt"), 100_000)))
        tokenizer.save(folder / "tokenizer.json")
        print(f"{megabytes:.0f} MB; {arguments.tokenizer}, {tokenizer.vocab_size} tokens,", end=" ")
        print(f"trained on 100,000 lines in {time.perf_counter() - before:.1f} s", flush=True)
        kinds = [(kind, cores) for cores in CORES for kind in ("bare", "ours")]
        runs: dict[tuple[str, int], list[tuple[float, float, float]]] = {key: [] for key in kinds}
        for _ in range(arguments.rounds):
            for key in kinds:
                runs[key].append(run(*key, folder))
        for cores in CORES:
            (bare_s, bare_cpu, _), (ours_s, ours_cpu, peaks) = (
                zip(*runs[kind, cores], strict=True) for kind in ("bare", "ours")
            )
            print(f"{cores} core(s): bare {megabytes / median(bare_s):.2f} MB/s,", end=" ")
            print(
                f"ours {megabytes / median(ours_s):.2f} MB/s, ratio {median(map(truediv, bare_s, ours_s)):.2f},",
                end=" ",
            )
            print(f"ratio of CPU times {median(map(truediv, bare_cpu, ours_cpu)):.2f}; peak {max(peaks):.0f} MB")
        for suffix in (".bin", ".units.npy"):
            digests = {digest(folder / f"train-{cores}{suffix}") for cores in CORES}
            print(f"train{suffix}: {'the same bytes' if len(digests) == 1 else 'DIFFERENT BYTES'}, {digests.pop()}")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
