"""All comparisons with peers, side by side, onto one page: `python -m benchmarks`, half an hour on two quiet cores.

Each benchmark runs in a process of its own, one after the other; `python -m benchmarks.<name> --help` says what it
measures and what it takes alone. The page is benchmarks/ratios.md.
"""

import argparse
import datetime
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.ratio import HEAD, at_least_one

BENCHMARKS = ("language_models", "contextual", "finetuning", "tagging", "generate", "word_vectors", "ngram")
PAGE = Path(__file__).with_name("ratios.md")
PEERS = ("torch", "transformers", "gensim", "numba")


def machine(threads: int) -> str:
    """What it is measured on: the chip, what it multiplies bf16 with, and how many threads."""
    known = torch.cpu.get_capabilities()
    kinds = [kind for name, kind in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 BF16"), ("avx512_f", "AVX-512"))
             if known.get(name)]  # fmt: skip
    return f"{known.get('cpu_name', 'a processor')}, {', '.join(kinds) or 'no AVX-512'}, {threads} threads"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; by default all")
    parser.add_argument("--threads", type=at_least_one, default=2)
    parser.add_argument("--rounds", type=at_least_one, default=3)
    given = parser.parse_args()
    if unknown := {*given.names} - {*BENCHMARKS}:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; write {', '.join(BENCHMARKS)}")
    rows: list[str] = []
    for name in given.names or BENCHMARKS:
        own = [sys.executable, "-m", f"benchmarks.{name}"]
        own += ["--threads", str(given.threads), "--rounds", str(given.rounds)]
        with subprocess.Popen(own, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("| ") and line.rstrip() not in HEAD.splitlines():
                    rows.append(line.rstrip())
                    print(rows[-1], flush=True)
        if running.returncode:
            sys.exit(f"benchmarks.{name} failed; nothing is written")
    versions = ", ".join(f"{name} {version(name)}" for name in PEERS)
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    said = [f"`{command}`, {datetime.date.today()}, on", f"{machine(given.threads)}; {versions}."]
    page = ["# Speed beside peers", "\n".join(said), "\n".join([HEAD, *rows])]
    PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
