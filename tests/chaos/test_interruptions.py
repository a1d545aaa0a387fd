"""Commands ended at any moment, by `kill -9` or asked to, and run again: nothing is lost, doubled or left behind.

CHAOS_SEED and CHAOS_ENDS (how many, of all commands together) make it another or a longer try: the nightly one has 300.
Of few ends, each is of another command, which is drawn; what these don't need is not run. With -s each is said at once.
"""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from retable.core.digests import digest
from tests.chaos.project import ROOT, End, Project
from tests.pipelines.conftest import TWO

pytestmark = pytest.mark.chaos
SEED, ENDS = int(os.environ.get("CHAOS_SEED", 1)), int(os.environ.get("CHAOS_ENDS", 12))
OF_STUDIES = 8  # of so many ends one is a study's
SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 99}

TINY = ["corpus=grammar_tiny"]
SHORT = [*TINY, "+max_steps=8", "validations=2", "checkpoint_every=2"]
LSTM = [*TINY, "recipe=recurrent/lstm", "model.d_model=16", "model.dropout=0.2", "batches.batch_size=4",
        "batches.length=16", "epochs=0.4", "checkpoint_every=3", "validations=5"]  # fmt: skip
GPT = ["recipe=transformer/gpt", "model.d_model=16", "model.n_layers=1"]
BERT = ["tokenizer=word_marked", "recipe=bert/bert", "model.d_model=16", "model.n_layers=1"]
TASK = [*TINY, "finetuning.batch_size=4", "++max_steps=8", "validations=2", "checkpoint_every=2"]
BILSTM = ["recipe=encoders/bilstm", "model.d_embedding=8", "model.d_model=8"]
DDP = ["trainer=ddp", *TWO]
PAIRS = ["corpus=grammar_pairs_tiny"]


class Command(NamedTuple):
    """What a user gives, and which of those before it must have run."""

    words: list[str]
    needs: tuple[str, ...] = ()


COMMANDS = {
    "prepare": Command(["prepare", *TINY, "corpus.write.words={train: 3000, validation: 600, test: 900}",
                        "corpus.write.task_examples={train: 60, validation: 20, test: 40}"]),
    "tokenize": Command(["tokenize", *TINY], ("prepare",)),
    "bpe": Command(["tokenize", *TINY, "tokenizer=bpe", "tokenizer.train.vocab_size=300"], ("prepare",)),
    "marked": Command(["tokenize", *TINY, "tokenizer=word_marked"], ("prepare",)),
    "kn5": Command(["pretrain", *TINY, "recipe=counted/kn5"], ("tokenize",)),
    "lstm": Command(["pretrain", *LSTM], ("tokenize",)),
    "lstm, two processes": Command(["pretrain", *LSTM, "seed=2", *DDP], ("tokenize",)),
    "multirun": Command(["pretrain", "-m", *LSTM, "seed=3,4", "epochs=0.1", "hydra.sweep.dir=multirun/seeds"],
                        ("tokenize",)),
    "search": Command(["pretrain", "-m", *LSTM, "epochs=0.1", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2",
                       "hydra.launcher.n_jobs=1", "hydra.sweeper.study_name=rates",
                       "optimizer.lr=tag(log,interval(1e-3,1e-2))"], ("tokenize",)),
    "gpt": Command(["pretrain", *SHORT, *GPT, "tokenizer=bpe", "batches.batch_size=4"], ("bpe",)),
    "bert": Command(["pretrain", *SHORT, *BERT, "batches.batch_size=4"], ("marked",)),
    "skipgram": Command(["embed", *TINY, "recipe=vectors/skipgram", "epochs=1"], ("tokenize",)),
    "fasttext": Command(["embed", *SHORT, "recipe=vectors/fasttext", "model.d_model=8", "model.buckets=1000"],
                        ("tokenize",)),
    "glove": Command(["embed", *SHORT, "recipe=vectors/glove", "model.d_model=8"], ("tokenize",)),
    "adapt": Command(["adapt", *TINY, "adaptation=dynamic_rms", "cell=grammar_tiny/lstm-1", "system=lstm_dynamic_rms",
                      "adaptation.rates=[1e-4]"], ("lstm",)),
    "mix": Command(["mix", *TINY, "cells=[pretrain/grammar_tiny/kn5-1,pretrain/grammar_tiny/lstm-1]", "system=both"],
                   ("kn5", "lstm")),
    "evaluate": Command(["evaluate", *TINY, "cell=grammar_tiny/lstm-1", "benchmark=[perplexity,phenomena]"],
                        ("lstm",)),
    "evaluate vectors": Command(["evaluate", *TINY, "stage=embed", "cell=grammar_tiny/glove-1", "benchmark=neighbours"],
                                ("glove",)),
    "generate": Command(["generate", "cell=grammar_tiny/lstm-1", "n_prompts=3"], ("lstm",)),
    "sentiment": Command(
        ["finetune", *TINY, "task=sentiment", *BILSTM, "epochs=2", "checkpoint_every=2"], ("tokenize",)
    ),
    "sentiment, two processes": Command(["finetune", *TASK, *BILSTM, "task=sentiment", "seed=2", *DDP], ("tokenize",)),
    "acceptability": Command(["finetune", *TASK, *GPT, "task=acceptability", "tokenizer=bpe",
                              "init=pretrain/grammar_tiny/gpt-1"], ("gpt",)),
    "evaluate held out": Command(["evaluate", *TINY, "tokenizer=word_marked", "cell=grammar_tiny/bert-1",
                                  "benchmark=held_out"], ("bert",)),
    "entailment": Command(["finetune", *TASK, *BERT, "task=rte", "init=pretrain/grammar_tiny/bert-1"], ("bert",)),
    "tags": Command(["finetune", *TASK, "task=grammar_pos", "recipe=taggers/bilstm_crf", "model.d_embedding=8",
                     "model.d_model=8", "task.sentences.text.words={train: 600, validation: 200, test: 200}"],
                    ("tokenize",)),
    "answers": Command(["finetune", *TASK, "task=grammar_questions_tiny", "recipe=readers/bidaf", "model.d_hidden=8",
                        "task.questions.questions={train: 40, validation: 10, test: 20}"], ("tokenize",)),
    "clusters": Command(["finetune", *TASK, "task=grammar_documents_tiny", "recipe=coreference/mention_ranker",
                         "finetuning.batch_size=1", "model.d_model=8", "model.d_hidden=8", "model.max_width=1",
                         "model.max_antecedents=10", "task.documents.words={train: 800, validation: 200, test: 200}"],
                        ("tokenize",)),
    "endings": Command(["prepare", "corpus=grammar_endings_tiny",
                        "corpus.write.examples={train: 60, validation: 20, test: 20}"]),
    "choices": Command(["finetune", *TASK, *BILSTM, "task=grammar_endings_tiny"], ("tokenize", "endings")),
    "pairs": Command(["prepare", *PAIRS, "corpus.write.pairs={train: 100, validation: 10, test: 10}"]),
    "encode pairs": Command(["tokenize", *PAIRS], ("pairs",)),
    "translation": Command(["finetune", *PAIRS, "tokenizer=word", "task=translation", "model.d_model=16",
                            "recipe=translation/transformer_translation_grammar", "decoding=greedy",
                            "decoding.max_new_tokens=8", "batches.max_tokens=128", "++max_steps=8", "validations=2",
                            "checkpoint_every=2"], ("encode pairs",)),
    "scaling": Command(["scaling", "lengths=[8,16,32]", "widths=[8,16,32]", "length=8", "width=8", "repeats=1"]),
}  # fmt: skip


SENTENCES = [f"the {noun} {verb}s" for noun in ("cat", "dog", "bird", "man") for verb in ("see", "hear")]


def write_entailment(folder: Path) -> None:
    """Few pairs, as GLUE has them."""
    folder.mkdir(parents=True)
    for name, n in (("train", 24), ("dev", 8), ("test", 4)):
        rows = [f"{i}\t{SENTENCES[i % 8]}\t{SENTENCES[i % 5]}" for i in range(n)]
        labels = [f"\t{('entailment', 'not_entailment')[i % 2]}" if name != "test" else "" for i in range(n)]
        head = "index\tsentence1\tsentence2" + ("\tlabel" if name != "test" else "")
        lines = [head, *(row + label for row, label in zip(rows, labels, strict=True))]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def needed(names: list[str]) -> list[str]:
    """These commands and all that they need, in their order."""
    known: set[str] = set()
    waiting = [*names]
    while waiting:
        if (name := waiting.pop()) not in known:
            known.add(name)
            waiting += COMMANDS[name].needs
    return [name for name in COMMANDS if name in known]


def test_a_command_ended_anywhere_and_run_again_is_as_undisturbed(forks, tmp_path):
    draw, finds = random.Random(SEED), list[str]()
    undisturbed, project = (Project(tmp_path / name, forks) for name in ("undisturbed", "disturbed"))
    for each in (undisturbed, project):
        write_entailment(each.folder / "data/glue/RTE")
    names = draw.sample([*COMMANDS], len(COMMANDS)) * (ENDS // len(COMMANDS) + 1)
    drawn = names[: ENDS - ENDS // OF_STUDIES]
    for name in needed(drawn):
        words = COMMANDS[name].words
        code, said = undisturbed.run(*words)
        assert code == 0, f"{name}\n{said}"
        touched = undisturbed.touched()
        for _ in range(drawn.count(name)):
            finds += ended(project, name, words, draw, touched)
        code, said = project.run(*words)
        if code != 0 or project.left():
            finds.append(f"{name} again: {code}, and left {project.left()}\n{said}")
    compare([project.files(), project.runs()], [undisturbed.files(), undisturbed.runs()], finds)
    project.check_finished()
    assert not finds, "\n".join(finds)


def ended(project: Project, name: str, words: list[str], draw: random.Random, touched: int) -> list[str]:
    """What is wrong with how a command ends that gets a drawn signal at a drawn moment, of those before it is ready."""
    struck = False
    while not struck:
        end = End(draw.randint(1, touched), draw.choice([*SIGNALS]))
        code, said = project.run(*words, end=end, RETABLE_STUDY="history")  # which `retable repro` says by itself
        struck = project.touched() >= end.moment
        assert struck or code == 0, said
    told = f"{end.number.name} at {end.moment} of {touched}: {name}: {code}"
    early = -end.number  # what the system makes of it, where the command doesn't listen yet
    right = words[0] == "dvc" or (code in (0, SIGNALS[end.number], early) and "Traceback" not in said)
    print(told if right else f"{told}\n{said}", flush=True)
    return [] if right else [f"{told}\n{said}"]


def compare(found: list[dict[str, Any]], expected: list[dict[str, Any]], finds: list[str]) -> None:
    for one, other in zip(found, expected, strict=True):
        finds += [f"{name}: {one.get(name)} for {other.get(name)}" for name in sorted(one.keys() | other.keys())
                  if one.get(name) != other.get(name)]  # fmt: skip


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
    """A project with the code of this one, whose one study is STUDY."""
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
        code, said = project.run(*command)
        assert code == 0, said


def unmake(project: Project) -> None:
    """As before the study was first made."""
    for name in MADE:
        shutil.rmtree(project.folder / name, ignore_errors=True)
    for path in [project.folder / "dvc.lock", *project.folder.glob("mlflow.db*")]:
        path.unlink(missing_ok=True)


def made(project: Project) -> list[dict[str, Any]]:
    """Cells, tables and records, the lock, runs."""
    results = {str(path): digest(path) for path in (project.folder / HISTORY).rglob("*.*")
               if path.name not in ("runs.csv", "report.html")}  # fmt: skip
    lock = yaml.safe_load((project.folder / "dvc.lock").read_text(encoding="utf-8"))
    return [project.files(), results, lock["stages"], project.runs()]


def test_a_study_ended_anywhere_and_made_again_is_as_undisturbed(forks, tmp_path):
    """By `retable repro`, or by DVC alone, which may take over from one another."""
    draw, finds = random.Random(SEED), list[str]()
    project = Project(tmp_path / "study", forks)
    make_study(project)
    code, said = project.run(*REPROS["retable"])
    assert code == 0, said
    touched, undisturbed = project.touched(), made(project)
    assert all(undisturbed)
    for n in range(ENDS // OF_STUDIES):
        name = draw.choice([*REPROS])
        finds += ended(project, name, REPROS[name], draw, touched // (1 + n % 2))
        if n % 2 == 0 and n + 1 < ENDS // OF_STUDIES:
            continue  # once more, before it is made to its end
        code, said = project.run(*REPROS["retable"])
        if code != 0 or project.left():
            finds.append(f"{name} again: {code}, and left {project.left()}\n{said}")
        compare(made(project), undisturbed, finds)
        project.check_finished()
        unmake(project)
    assert not finds, "\n".join(finds)
