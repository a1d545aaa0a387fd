"""Test commands that are ended at random moments, by `kill -9` or another signal, and run again.

Nothing may be lost, doubled or left over. CHAOS_SEED chooses other moments. CHAOS_ENDS is the number of ends over all
commands; the nightly run has 300. CHAOS_SECONDS is the time in which a command must end, 300 by default. With few ends,
each end hits a different, randomly chosen command; commands that these do not need are not run. With -s, each end is
printed at once.
"""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from retable.core.digests import digest
from tests.chaos.project import ROOT, End, Project
from tests.pipelines.conftest import BERT, CELLS, TINY, TWO

pytestmark = pytest.mark.chaos
SEED, ENDS = int(os.environ.get("CHAOS_SEED", 1)), int(os.environ.get("CHAOS_ENDS", 12))
OF_STUDIES = 8  # one of so many ends hits a whole study
SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 99}

SAVED = ["validations=2", "checkpoint_every=2"]
SHORT = ["+max_steps=8", *SAVED]
LSTM = [TINY, "recipe=recurrent/lstm", "model.d_model=16", "model.dropout=0.2", "batches.batch_size=4",
        "batches.length=16", "epochs=0.4", "checkpoint_every=3", "validations=5"]  # fmt: skip
DDP = ["trainer=ddp", *TWO]
CLASSIFIER = CELLS["finetune/grammar_tiny/sentiment-bilstm-1"]
TRAINED = [place for place, words in CELLS.items() if words[0] in ("embed", "pretrain", "finetune")]
TRAINED = [place for place in TRAINED if place.rpartition("/")[2] not in ("kn3-1", "cache-1", "lead_3-1")]
# Settings that a user writes: small cells of every kind of system, here with more steps and checkpoints, and other
# commands.
COMMANDS = {
    **{place: [*words, *SAVED, "++max_steps=8"] if place in TRAINED else words for place, words in CELLS.items()},
    "lstm": ["pretrain", *LSTM],
    "lstm, two processes": ["pretrain", *LSTM, "seed=2", *DDP],
    "multirun": ["pretrain", "-m", *LSTM, "seed=3,4", "epochs=0.1", "hydra.sweep.dir=multirun/seeds"],
    "search": ["pretrain", "-m", *LSTM, "epochs=0.1", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2",
               "hydra.launcher.n_jobs=1", "hydra.sweeper.study_name=rates",
               "optimizer.lr=tag(log,interval(1e-3,1e-2))"],
    "fasttext": ["embed", TINY, *SHORT, "recipe=vectors/fasttext", "model.d_model=8", "model.buckets=1000"],
    "glove": ["embed", TINY, *SHORT, "recipe=vectors/glove", "model.d_model=8"],
    "adapt dynamically": ["adapt", TINY, "adaptation=dynamic_rms", "cell=grammar_tiny/elman-1", "system=elman_rms",
                          "adaptation.rates=[1e-4]"],
    "evaluate held out": ["evaluate", TINY, "tokenizer=word_marked", "cell=grammar_tiny/bert-1", "benchmark=held_out"],
    "sentiment, two processes": [*CLASSIFIER, *SAVED, "++max_steps=8", "seed=2", *DDP],
    "entailment": ["finetune", TINY, *BERT, "finetuning.batch_size=4", "++max_steps=8", *SAVED, "task=rte",
                   "init=pretrain/grammar_tiny/bert-1"],
    "scaling": ["scaling", "lengths=[8,16,32]", "widths=[8,16,32]", "length=8", "width=8", "repeats=1"],
}  # fmt: skip


SENTENCES = [f"the {noun} {verb}s" for noun in ("cat", "dog", "bird", "man") for verb in ("see", "hear")]


def write_entailment(folder: Path) -> None:
    """Write a few sentence pairs in GLUE's format."""
    folder.mkdir(parents=True)
    for name, n in (("train", 24), ("dev", 8), ("test", 4)):
        rows = [f"{i}\t{SENTENCES[i % 8]}\t{SENTENCES[i % 5]}" for i in range(n)]
        labels = [f"\t{('entailment', 'not_entailment')[i % 2]}" if name != "test" else "" for i in range(n)]
        head = "index\tsentence1\tsentence2" + ("\tlabel" if name != "test" else "")
        lines = [head, *(row + label for row, label in zip(rows, labels, strict=True))]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def needed(names: list[str]) -> list[str]:
    """Return these commands after all commands that they may need: texts, tokens, and the cells that they name."""
    known: set[str] = set()
    waiting = [*names]
    while waiting:
        if (name := waiting.pop()) not in known:
            known.add(name)
            words = " ".join(COMMANDS[name])
            waiting += [
                place
                for place in CELLS
                if place.startswith(("prepare/", "tokenize/"))
                or (place.partition("/")[2] in words and not place.startswith(("evaluate/", "generate/")))
            ]
    return [name for name in COMMANDS if name in known]


def test_a_command_ended_anywhere_and_run_again_is_as_undisturbed(forks, tmp_path):
    draw, finds = random.Random(SEED), list[str]()
    undisturbed, project = (Project(tmp_path / name, forks) for name in ("undisturbed", "disturbed"))
    for each in (undisturbed, project):
        write_entailment(each.folder / "data/glue/RTE")
    names = draw.sample([*COMMANDS], len(COMMANDS)) * (ENDS // len(COMMANDS) + 1)
    drawn = names[: ENDS - ENDS // OF_STUDIES]
    for name in needed(drawn):
        words = COMMANDS[name]
        code, output = undisturbed.run(*words)
        assert code == 0, f"{name}\n{output}"
        touched = undisturbed.touched()
        for _ in range(drawn.count(name)):
            finds += ended(project, name, words, draw, touched)
        code, output = project.run(*words)
        if code != 0 or project.left():
            finds.append(f"{name} again: {code}, and left {project.left()}\n{output}")
    compare([project.files(), project.runs()], [undisturbed.files(), undisturbed.runs()], finds)
    finds += [f"{name} is not finished" for name in project.unfinished()]
    assert not finds, "\n".join(finds)


def ended(project: Project, name: str, words: list[str], draw: random.Random, touched: int) -> list[str]:
    """Run a command that gets a random signal at a random moment before it is ready. Return the faults."""
    struck = False
    while not struck:
        end = End(draw.randint(1, touched), draw.choice([*SIGNALS]))
        code, output = project.run(*words, end=end, RETABLE_STUDY="history")  # as `retable repro` sets it
        struck = project.touched() >= end.moment
        assert struck or code == 0, output
    summary = f"{end.number.name} at {end.moment} of {touched}: {name}: {code}"
    early = -end.number  # the default effect of the signal, before the command handles it
    right = words[0] == "dvc" or (code in (0, SIGNALS[end.number], early) and "Traceback" not in output)
    print(summary if right else f"{summary}\n{output}", flush=True)
    return [] if right else [f"{summary}\n{output}"]


def compare(runs: list[dict[str, Any]], expected: list[dict[str, Any]], finds: list[str]) -> None:
    for one, other in zip(runs, expected, strict=True):
        finds += [f"{name}: {one.get(name)} for {other.get(name)}" for name in sorted(one.keys() | other.keys())
                  if one.get(name) != other.get(name)]  # fmt: skip
    print(*finds, sep="\n", flush=True)  # printed now, because a command that hangs later ends the test


STUDY = {
    "corpus": "grammar_tiny",
    "systems": [{"of": "kn3"}, {"of": "lstm", "trainer": "ddp", "set": {
        "trainer.accelerator": "cpu", "model.d_model": 16, "batches.batch_size": 4, "batches.length": 16,
        "epochs": 0.4, "checkpoint_every": 3, "validations": 5,
    }}],
    "benchmarks": {"perplexity": "lstm"},
}  # fmt: skip
REPROS = {"retable": ["cli.main", "repro", "history", "--jobs", "2"], "dvc": ["dvc", "repro"]}
HISTORY = "studies/history"
MADE = ("outputs", "work", f"{HISTORY}/results", f"{HISTORY}/records", "mlartifacts", ".dvc/cache", ".dvc/tmp")


def make_study(project: Project) -> None:
    """Return a project with this project's code and one study, STUDY."""
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, project.folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copyfile(ROOT / ".dvcignore", project.folder / ".dvcignore")
    (project.folder / HISTORY).mkdir(parents=True)
    (project.folder / HISTORY / "study.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    corpus = project.folder / "conf/corpus/grammar_tiny.yaml"
    small = corpus.read_text(encoding="utf-8").replace("train: 50000, validation: 5000, test: 20000",
                                                       "train: 3000, validation: 600, test: 900")  # fmt: skip
    corpus.write_text(small, encoding="utf-8")
    for command in (["dvc", "init", "--quiet", "--no-scm"], ["cli.main", "graph"]):
        code, output = project.run(*command)
        assert code == 0, output


def unmake(project: Project) -> None:
    """Restore the state before the study was made for the first time."""
    for name in MADE:
        shutil.rmtree(project.folder / name, ignore_errors=True)
    for path in [project.folder / "dvc.lock", *project.folder.glob("mlflow.db*")]:
        path.unlink(missing_ok=True)


def made(project: Project) -> list[dict[str, Any]]:
    """Return digests of cells, tables and records, DVC's lock, and MLflow's runs."""
    results = {str(path): digest(path) for path in (project.folder / HISTORY).rglob("*.*")
               if path.name not in ("runs.csv", "report.html")}  # fmt: skip
    lock = yaml.safe_load((project.folder / "dvc.lock").read_text(encoding="utf-8"))
    return [project.files(), results, lock["stages"], project.runs()]


def test_a_study_ended_anywhere_and_made_again_is_as_undisturbed(forks, tmp_path):
    """The study is continued by `retable repro` or by `dvc repro`; each may continue the work of the other."""
    draw, finds = random.Random(SEED), list[str]()
    project = Project(tmp_path / "study", forks)
    make_study(project)
    code, output = project.run(*REPROS["retable"])
    assert code == 0, output
    touched, undisturbed = project.touched(), made(project)
    assert all(undisturbed)
    for n in range(ENDS // OF_STUDIES):
        name = draw.choice([*REPROS])
        finds += ended(project, name, REPROS[name], draw, touched // (1 + n % 2))
        if n % 2 == 0 and n + 1 < ENDS // OF_STUDIES:
            continue  # end it once more before it finishes
        code, output = project.run(*REPROS["retable"])
        if code != 0 or project.left():
            finds.append(f"{name} again: {code}, and left {project.left()}\n{output}")
        compare(made(project), undisturbed, finds)
        finds += [f"{name} again: {open_} is not finished" for open_ in project.unfinished()]
        unmake(project)
    assert not finds, "\n".join(finds)
