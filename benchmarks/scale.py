"""Measure how costs grow with size: python -m benchmarks.scale [--corpora MB …] [--cells N …] [--trials N …] [--writers
N …] [--folder FOLDER]

--corpora: every stage runs on texts of this many megabytes, which benchmarks/large.py writes.
--cells: studies of this many cells are planned, checked and reported. Half of the cells are counted systems; the other
half are evaluations of these systems. One cell of each kind is made, and copied to all other seeds.
--trials: searches of this many trials, then five more trials, then the page of the search. Trials are drawn and given
values without training.
--writers: this many processes record runs at the same time, in the store that MLFLOW_TRACKING_URI names, or in a
temporary one if the variable is not set.

Costs are wall-clock seconds, CPU seconds of all processes, and the peak of their anonymous memory. The exponent is the
slope of log CPU seconds over log size; 1 is linear growth. With three sizes or more, the first size is ignored.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks.large import CORPUS, HELD_OUT, LEARN_FROM, RARE, SHORT, Cost, run, watched, write_text
from benchmarks.ratio import at_least_one
from pipelines.config.patches import dvc_writes_only_what_is_new, dvc_writes_whole
from pipelines.config.project import DEFAULT, STUDY
from retable.core.artifacts import hardware
from retable.core.digests import write_digests

ROOT = Path(__file__).parent.parent
LSTM = ["pretrain", "tokenizer=word", "recipe=recurrent/lstm", *SHORT]
KN3 = ["pretrain", "tokenizer=word", "recipe=counted/kn3"]
STAGES = {
    "prepare": ["prepare"],
    "tokenize by words": ["tokenize", "tokenizer=word"],
    "tokenize by byte pairs": ["tokenize", "tokenizer=bpe", f"+tokenizer.train.learn_from={LEARN_FROM}"],
    "count trigrams": KN3,
    "40 steps of an LSTM": LSTM,
    "perplexity of the LSTM": ["evaluate", "tokenizer=word", "stage=pretrain", "cell=large/lstm-1"],
}
FIRST = ["plan", "prepare@grammar_tiny", "tokenize@word", "pretrain@unigram-1", "evaluate@unigram-1"]
LEAST_MB = 2  # megabytes of the smallest corpus; HELD_OUT bytes are a fifth of it
WORDS = "words: {train: 3000, validation: 600, test: 900}"  # sizes of the corpus of a study
POINTS, RUNS = 200, 5  # points per run, runs per writer


def corpora(megabytes: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    source, size = folder / "text.txt", megabytes * 1_000_000
    (folder / "conf/corpus").mkdir(parents=True, exist_ok=True)
    corpus = CORPUS.format(source=source, train=1 - HELD_OUT / size, test=HELD_OUT / 2 / size)
    (folder / "conf/corpus/large.yaml").write_text(corpus, encoding="utf-8")
    write_text(source, size)
    for name, stage in STAGES.items():
        rare = [f"tokenizer.train.min_count={max(size // RARE, 1)}"] * (name == "tokenize by words")
        yield name, run(*stage, *rare, folder=folder)


def studies(cells: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Measure commands on a study that is up to date."""
    environment = make_project(cells, folder)
    ours, dvc = [sys.executable, "-m"], str(Path(sys.executable).with_name("dvc"))
    yield "`retable graph`", watched([*ours, "pipelines.cli.main", "graph"], folder, environment)
    yield "plan", watched([*ours, "pipelines.plan"], folder, environment)
    watched([dvc, "repro", *FIRST], folder, environment)
    multiply(cells, folder)
    watched([*ours, "benchmarks.scale", "--lock"], folder, environment)
    watched([*ours, "pipelines.cli.main", "repro"], folder, environment)  # the report
    yield "`dvc status`", watched([dvc, "status"], folder, environment)
    yield "`retable repro` with nothing to do", watched([*ours, "pipelines.cli.main", "repro"], folder, environment)
    yield "report", watched([*ours, "pipelines.report"], folder, environment)
    yield (
        "one cell made again, as `retable repro` does",
        watched([*ours, "benchmarks.scale", "--again"], folder, environment),
    )
    command = [*ours, "pipelines.evaluate", "@outputs/plan/evaluate/grammar_tiny/unigram-1.yaml"]
    yield "only the command of this cell", watched(command, folder, environment)


def multiply(cells: int, folder: Path) -> None:
    """Copy the cells of the first seed to the other seeds."""
    for place in ("pretrain/grammar_tiny/unigram-{}", "evaluate/grammar_tiny/unigram-{}"):
        made = folder / "outputs" / place.format(1)
        for seed in range(2, cells // 2 + 1):
            copy = shutil.copytree(made, folder / "outputs" / place.format(seed))
            for file in ("config.yaml", "run.json"):
                text = (copy / file).read_text(encoding="utf-8").replace("unigram-1", f"unigram-{seed}")
                text = re.sub(r'^(seed: |  "seed": )1\b', rf"\g<1>{seed}", text, flags=re.MULTILINE)
                (copy / file).write_text(text, encoding="utf-8")
            (copy / "digests.json").unlink()
            write_digests(copy)


def lock() -> None:
    """Record all cells as made, and write dvc.lock once; `dvc commit` would rewrite the lock for each stage."""
    from dvc.repo import Repo
    from dvc.stage.serialize import to_single_stage_lockfile

    with Repo() as repo, repo.lock:
        stages = [stage for stage in repo.stage.load_file("dvc.yaml") if stage.name != "report"]
        for stage in stages:
            stage.save()
            stage.commit()
        content = {"schema": "2.0", "stages": {stage.name: to_single_stage_lockfile(stage) for stage in stages}}
    text = yaml.dump(json.loads(json.dumps(content)), sort_keys=False, Dumper=yaml.CSafeDumper)  # no types of DVC
    Path("dvc.lock").write_text(text, encoding="utf-8")


def again() -> None:
    """Run one cell again as `retable repro` does, but in this process, so Python is not started once more."""
    from dvc.cli import main

    dvc_writes_whole()
    dvc_writes_only_what_is_new()
    sys.exit(main(["repro", "--quiet", "--single-item", "--force", FIRST[-1]]))


def make_project(cells: int, folder: Path) -> dict[str, str]:
    """Copy code and configurations into a new project with one study. Return environment variables for its commands."""
    environment = {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "RETABLE_DATA": "data"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in ("benchmarks", "conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / ".dvcignore", folder / ".dvcignore")
    study = {"corpus": "grammar_tiny", "systems": [{"of": "unigram", "seeds": cells // 2}]}
    content = yaml.safe_dump(study | {"benchmarks": {"perplexity": "all"}})
    path = folder / "studies" / DEFAULT / STUDY
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    corpus = folder / "conf/corpus/grammar_tiny.yaml"
    text = corpus.read_text(encoding="utf-8").replace("words: {train: 50000, validation: 5000, test: 20000}", WORDS)
    corpus.write_text(text, encoding="utf-8")
    subprocess.run(["dvc", "init", "--quiet", "--no-scm"], cwd=folder, env=os.environ | environment, check=True)
    return environment


def writers(number: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Measure writers that record at the same time. If they wait for one another, the exponent is 1 as well."""
    command = [sys.executable, "-m", "benchmarks.scale", "--record"]
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "DVC_ROOT": str(folder)}
    watched([*command, "0"], folder, paths)  # creates the store before the measurement
    both = " & ".join(f"'{command[0]}' -m benchmarks.scale --record {n + 1}" for n in range(number))
    yield f"{RUNS} runs of {POINTS} points per writer", watched(["sh", "-c", f"{both} & wait"], folder, paths)


def trials(number: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    command = [sys.executable, "-m", "benchmarks.scale", "--trial", str(number)]
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    yield "all trials, drawn and given values", watched([*command, "all"], folder, paths)
    yield "five more trials", watched([*command, "more"], folder, paths)
    yield "table, figures and page of the search", watched([*command, "page"], folder, paths)


def trial(number: int, what: str) -> None:
    """Run one part of a search without training: draw trials (`all`, `more`) or write the `page`."""
    import optuna
    import pandas as pd

    from retable.reporting.sweeps import write_sweep

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="scale", storage="sqlite:///trials.db", load_if_exists=True)
    for _ in range({"all": number, "more": 5, "page": 0}[what]):
        study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=8)
        drawn = study.ask()
        rate, dropout = drawn.suggest_float("optimizer.lr", 1e-4, 1e-1, log=True), drawn.suggest_float("dropout", 0, 1)
        study.tell(drawn, math.log10(rate) ** 2 + dropout)
    if what == "page":
        rows = [{"trial": t.number, "state": "complete", "value": t.value, **t.params} for t in study.trials]
        frame = pd.DataFrame(rows).assign(step=None, seconds=1.0, cell="", metric="loss", direction="minimize")
        write_sweep("scale", {"scale": frame}, Path("page"))


def record(writer: int) -> None:
    from retable.tracking.run import RunSpec, start

    for n in range(RUNS if writer else 1):
        run = start(RunSpec(f"{writer}-{n}", f"{writer}-{n}-{time.time_ns()}", parameters={"n": str(n)}))
        for first in range(0, POINTS, 10):
            run.log((step, "train/loss", 1 / (step + 1)) for step in range(first, first + 10))
        run.finish({"steps": POINTS}, [])


def exponent(costs: Mapping[int, Cost]) -> float:
    """Return the least-squares slope of log CPU seconds over log size.

    With three sizes or more, the first is ignored: at this size the start of Python hides the growth.
    """
    sizes = sorted(costs)[1 if len(costs) > 2 else 0 :]
    x, y = [math.log(size) for size in sizes], [math.log(costs[size].cpu) for size in sizes]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((each - mean_x) ** 2 for each in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread else math.nan


def table(measured: Mapping[str, Mapping[int, Cost]], unit: str) -> str:
    sizes = sorted({size for costs in measured.values() for size in costs})
    lines = [
        f"| what | {' | '.join(f'{size:,} {unit}' for size in sizes)} | exponent |",
        f"|---|{'---:|' * (len(sizes) + 1)}",
    ]
    for name, costs in measured.items():
        shown = [f"{c.seconds:.1f} s, {c.cpu:.1f} CPU s, {c.peak:.0f} MiB" for c in map(costs.__getitem__, sizes)]
        lines.append(f"| {name} | {' | '.join(shown)} | {exponent(costs):.2f} |")
    return "\n".join(lines)


def measure(
    part: Callable[[int, Path], Iterator[tuple[str, Cost]]], sizes: Sequence[int], folder: Path, unit: str
) -> None:
    measured: dict[str, dict[int, Cost]] = {}
    for size in sizes:
        own = folder / f"{part.__name__}-{size}"
        own.mkdir(parents=True, exist_ok=True)
        for name, cost in part(size, own):
            measured.setdefault(name, {})[size] = cost
            print(f"{size:,} {unit}, {name}: {cost}", file=sys.stderr, flush=True)
    if sizes:
        print(f"{table(measured, unit)}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=at_least_one, nargs="+", default=[], metavar="MB")
    parser.add_argument("--cells", type=at_least_one, nargs="+", default=[], metavar="N")
    parser.add_argument("--trials", type=at_least_one, nargs="+", default=[], metavar="N")
    parser.add_argument("--writers", type=at_least_one, nargs="+", default=[], metavar="N")
    parser.add_argument("--folder", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--record", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--trial", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--lock", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.record is not None:
        return record(arguments.record)
    if arguments.trial is not None:
        return trial(int(arguments.trial[0]), arguments.trial[1])
    if arguments.lock:
        return lock()
    if arguments.again:
        return again()
    if not (arguments.corpora or arguments.cells or arguments.trials or arguments.writers):
        parser.error("nothing to measure; write --corpora 2 20 200, --cells or --trials 10 100 1000, --writers 1 2 4 8")
    if min(arguments.corpora, default=LEAST_MB) < LEAST_MB:
        parser.error(f"--corpora must be {LEAST_MB} MB or more, because {HELD_OUT:,} bytes are held out")
    if min(arguments.cells, default=2) < 2:
        parser.error("--cells must be 2 or more, a system and its benchmark")
    with TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name)).resolve()
        print(f"On {hardware()}, {date.today()}.\n", flush=True)
        measure(corpora, arguments.corpora, folder, "MB")
        measure(studies, arguments.cells, folder, "cells")
        measure(trials, arguments.trials, folder, "trials")
        measure(writers, arguments.writers, folder, "writers")


if __name__ == "__main__":
    main()
