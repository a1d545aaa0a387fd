"""Run all comparisons with peer libraries and write one page: `python -m benchmarks`.

Takes half an hour on two idle cores. The benchmarks run one after the other, each in a separate process; `python -m
benchmarks.<name> --help` describes it. The page is benchmarks/ratios.md.
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
    """Describe the machine: CPU, instruction sets for bf16 products, and number of threads."""
    known = torch.cpu.get_capabilities()
    kinds = [kind for name, kind in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 BF16"), ("avx512_f", "AVX-512"))
             if known.get(name)]  # fmt: skip
    return f"{known.get('cpu_name', 'a processor')}, {', '.join(kinds) or 'no AVX-512'}, {threads} threads"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(BENCHMARKS)}")
    parser.add_argument("--threads", type=at_least_one, default=2)
    parser.add_argument("--rounds", type=at_least_one, default=3)
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*BENCHMARKS}:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose among {', '.join(BENCHMARKS)}")
    rows: list[str] = []
    for name in arguments.names or BENCHMARKS:
        command_of = [sys.executable, "-m", f"benchmarks.{name}"]
        command_of += ["--threads", str(arguments.threads), "--rounds", str(arguments.rounds)]
        with subprocess.Popen(command_of, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("| ") and line.rstrip() not in HEAD.splitlines():
                    rows.append(line.rstrip())
                    print(rows[-1], flush=True)
        if running.returncode:
            sys.exit(f"benchmarks.{name} failed; {PAGE.name} was not written")
    versions = ", ".join(f"{name} {version(name)}" for name in PEERS)
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    origin = [f"`{command}`, {datetime.date.today()}, on", f"{machine(arguments.threads)}; {versions}."]
    page = ["# Speed compared with peer libraries", "\n".join(origin), "\n".join([HEAD, *rows])]
    PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
