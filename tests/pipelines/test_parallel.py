"""Test that several processes train as one process does on their batches together."""

import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from safetensors.torch import load_file

from pipelines.config.errors import is_main_process, one_line_errors
from pipelines.executors.local import forked
from retable.core.artifacts import read_record
from retable.training import fit  # noqa: F401, it has Lightning's line replaced
from retable.training.signals import PARTNER_LOST
from tests.pipelines.conftest import CELLS, TWO

TRANSFORMER = ["model.d_model=16", "model.n_layers=2", "model.dropout=0", "batches.batch_size=4"]
SYSTEMS = {
    "gpt": ["recipe=transformer/gpt", "tokenizer=word", *TRANSFORMER, "batches.length=16", "epochs=0.6"],
    "bert": ["recipe=bert/bert", *TRANSFORMER, "batches.length=32", "epochs=1.2"],
    "electra": ["recipe=bert/electra", *TRANSFORMER, "batches.length=32", "epochs=1.2"],
    "t5": ["recipe=t5/t5", *TRANSFORMER, "batches.length=24", "epochs=1"],  # with Adafactor
    "elmo": ["recipe=elmo/elmo", "tokenizer=word", "model.d_model=16", "model.d_cell=16",
             "model.dropout=0", "batches.batch_size=4", "batches.length=16", "epochs=0.6"],
}  # fmt: skip


def long(*case: str):
    return pytest.param(*case, marks=pytest.mark.long)


def by(trainer: str) -> list[str]:
    """Return the settings for one process or two, or for as many as the name's end tells."""
    kind, _, number = trainer.partition("_")
    return [f"trainer={kind}", *(TWO if kind != "cpu" else []), *([f"trainer.devices={number}"] if number else [])]


@pytest.fixture(scope="module")
def project(project):
    """Return a project in which stages start a second process."""
    return project.forked


@pytest.fixture(scope="module")
def train(project):
    """Train a system with a trainer, once. Return its folder."""
    project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    folders: dict[tuple[str, str], Path] = {}

    def once(system: str, trainer: str) -> Path:
        if (system, trainer) not in folders:
            name = f"{system}_{trainer}"
            settings = ["corpus=grammar_tiny", "tokenizer=word_marked", *SYSTEMS[system], *by(trainer)]
            # Hydra refuses a group that is chosen twice, so the choice of the system is kept.
            chosen = {part.partition("=")[0]: part for part in settings}
            project.succeed("pretrain", *chosen.values(), f"system={name}")
            folders[system, trainer] = project.folder / f"outputs/pretrain/grammar_tiny/{name}-1"
        return folders[system, trainer]

    return once


@pytest.mark.parametrize(
    ("system", "trainer"),
    [("gpt", "fsdp"), *(long(name, "ddp") for name in ("gpt", "bert", "electra", "elmo")), long("t5", "fsdp"),
     *(long("gpt", name) for name in ("ddp_4", "fsdp_4"))],
)  # fmt: skip
def test_several_processes_have_the_losses_of_one(train, system, trainer):
    ours, theirs = (pd.read_csv(train(system, each) / "curve.csv") for each in (trainer, "cpu"))
    assert ours[["step", "metric"]].equals(theirs[["step", "metric"]])
    losses = ours["metric"].str.startswith("train/") & ours["metric"].str.endswith("loss") & (ours["step"] <= 20)
    assert losses.sum() >= 20
    # Relative if a loss is above 1: the curve has six digits, and ELECTRA's loss is 40 nats. ELMo's losses have
    # differed by
    # 1.6e-5 on a CPU without AVX-512, because rounding errors grow over twenty steps.
    assert ((ours["value"] - theirs["value"]).abs() / theirs["value"].clip(lower=1))[losses].max() < 3e-5
    is_crowded = trainer.endswith("4") and len(os.sched_getaffinity(0)) < 4
    assert ("tokens_per_second" in read_record(train(system, trainer))) != is_crowded


@pytest.mark.parametrize(("system", "trainer"), [("gpt", "fsdp"), long("bert", "fsdp"), long("t5", "fsdp")])
def test_two_processes_have_the_weights_of_one(train, system, trainer):
    ours, theirs = (load_file(train(system, each) / "model.safetensors") for each in (trainer, "cpu"))
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["lstm", long("electra"), long("sentiment")])
def test_two_processes_validate_half_each_and_find_what_one_finds(project, name):
    stage = "finetune" if name == "sentiment" else "pretrain"
    settings = {
        "lstm": ["model.d_model=8", "validation_scorer.rows=4"],
        "electra": ["tokenizer=word_marked", *SYSTEMS["electra"]],
        "sentiment": ["task=sentiment", "batch_size=4"],
    }[name]
    if name == "electra":
        project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    curves, rows = [], []
    for trainer in ("cpu", "ddp"):
        project.succeed(
            stage, "corpus=grammar_tiny", *settings, "optimizer.lr=0", "++max_steps=2", "logger=none",
            "+callbacks.counted._target_=counted.Counted", *by(trainer),
            f"system=still_{name}_{trainer}",
        )  # fmt: skip
        (path,) = project.folder.glob(f"outputs/*/*/*still_{name}_{trainer}-1/curve.csv")
        curve = pd.read_csv(path)
        validated = curve[curve["metric"].str.startswith("validation/") & ~curve["metric"].str.endswith("recall")]
        curves.append(validated.set_index("metric")["value"])
        rows.append([int(file.read_text()) for file in project.folder.glob("validated.*")])
    assert len(curves[0]) > 0 and curves[1].to_dict() == pytest.approx(curves[0].to_dict(), rel=1e-5)
    (whole, *_), halves = rows
    assert len(halves) == 2 and sum(halves) == whole
    assert max(halves) < 0.8 * whole or name == "sentiment"  # its twenty examples are one batch, for one process


TRAINED = (
    "pretrain/grammar_tiny/elman-1", "from_scratch/grammar_pos/bilstm_crf-1",
    "from_scratch/english_endings_tiny/bilstm-1", "from_scratch/grammar_pairs_tiny/rnn_translation_grammar-1",
    "from_scratch/grammar_questions_tiny/bidaf-1", "from_scratch/grammar_documents_tiny/mention_ranker-1",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("place", TRAINED)
def test_shares_of_weights_learn_and_predict_as_whole_ones(own, place):
    curves, predictions = [], []
    for trainer in ("ddp", "fsdp"):
        system = f"shared_{trainer}"
        own.forked.succeed(
            *CELLS[place], "++max_steps=8", "validations=2", *by(trainer), "logger=none", f"system={system}"
        )
        (cell,) = own.folder.glob(f"outputs/{place.rpartition('/')[0]}/*{system}-1")
        curves.append(pd.read_csv(cell / "curve.csv"))
        predictions.append({file.name: file.read_text() for file in cell.glob("*predictions*")})
    one, two = curves
    assert one[["step", "metric"]].equals(two[["step", "metric"]])
    assert two["value"].to_numpy() == pytest.approx(one["value"].to_numpy(), rel=1e-4, abs=1e-6)
    assert predictions[0] == predictions[1]


def in_a_sum(rank: int, ends: bool, folder: Path) -> None:
    store = torch.distributed.FileStore(str(folder / "store"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.distributed.all_reduce(torch.ones(1))
    if not ends:
        torch.distributed.all_reduce(torch.ones(1))


def in_asking_the_first(rank: int, ends: bool, folder: Path) -> None:
    """Wait for the store of the first process, which holds the addresses of all processes."""
    if rank == 0:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        (folder / "port").write_text(str(store.port), encoding="utf-8")
        store.get("the second is there")
    else:
        port = int((folder / "port").read_text(encoding="utf-8"))
        store = torch.distributed.TCPStore("127.0.0.1", port, is_master=False)
        store.set("the second is there", "")
        store.get("what never comes")


@pytest.mark.parametrize("by_signal", [False, True])
@pytest.mark.parametrize(("waits", "left"), [(in_a_sum, 0), (in_a_sum, 1), (in_asking_the_first, 1)])
def test_a_process_whose_partner_ends_has_one_line(tmp_path, capfd, waits, left, by_signal):
    os.mkfifo(tmp_path / "port")

    def work(rank: int) -> None:
        os.environ["LOCAL_RANK"] = str(rank)
        with one_line_errors():
            waits(rank, rank != left, tmp_path)
            os.kill(os.getpid(), signal.SIGKILL) if by_signal else os._exit(1)

    pids = [forked(partial(work, rank)) for rank in (0, 1)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    of_torch = r"\[[WI]\d+ |Exception raised from recvBytes|frame #\d+|<omitting|$"  # warnings of torch's C++ code
    lines = [line for line in capfd.readouterr().err.splitlines() if not re.match(of_torch, line)]
    assert codes[left] == 2 and codes[1 - left] != 0
    assert lines == [f"{'error: ' * (left == 0)}{PARTNER_LOST}"]


def test_lightning_tells_it_in_the_same_line(capfd):
    """If Lightning's thread sees the error before the process does; Lightning then kills the process."""
    with subprocess.Popen(["sleep", "60"]) as main, subprocess.Popen(["false"]) as child:
        child.wait()
        assert _ChildProcessObserver(main.pid, [child])._run()
        assert main.wait() == -signal.SIGKILL
    assert capfd.readouterr().err == f"error: {PARTNER_LOST}\n"


@pytest.mark.long
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_training_of_which_a_process_is_killed_has_one_line(project, rank):
    project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    settings = ["corpus=grammar_tiny", "tokenizer=word_marked", *SYSTEMS["gpt"], *by("ddp"), f"system=left_{rank}"]
    ended = project.run("pretrain", *settings, "+callbacks.mortal._target_=dying.Mortal", DIE_AT="5", DIE_RANK=rank)
    assert ended.returncode != 0 and "Traceback" not in ended.stderr
    assert ended.stderr.count(PARTNER_LOST) == 1


@pytest.mark.parametrize(("environment", "first"), [
    ({}, True),
    ({"LOCAL_RANK": "1"}, False),
    ({"NODE_RANK": "1"}, False),  # a process that a user starts on this node, before Lightning starts others
    ({"NODE_RANK": "0", "LOCAL_RANK": "0"}, True),
    ({"RANK": "0", "LOCAL_RANK": "0"}, True),
    ({"RANK": "8", "LOCAL_RANK": "0"}, False),
    ({"SLURM_PROCID": "3"}, False),
    ({"SLURM_PROCID": "0", "LOCAL_RANK": "1"}, False),  # a process that Lightning starts next to a job's only task
])  # fmt: skip
def test_one_process_of_all_nodes_is_the_first(environment, first, monkeypatch):
    for name in ("RANK", "SLURM_PROCID", "NODE_RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_main_process() == first


@pytest.mark.long
def test_two_processes_end_with_the_best_weights(project):
    done = project.succeed(
        "finetune", "corpus=grammar_tiny", "task=sentiment", "batch_size=4", "patience=1", "++max_steps=6",
        "logger=none", *by("ddp"), "system=best",
    )  # fmt: skip
    assert "Traceback" not in done.stderr and not list((project.folder / "work/train").glob("**/*best*"))


@pytest.mark.long
def test_lightning_starts_the_second_process(project):
    project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    settings = ["corpus=grammar_tiny", "tokenizer=word_marked", *SYSTEMS["t5"], *by("fsdp")]
    done = project.start("pretrain", *settings, "++max_steps=2", "system=started")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "outputs/pretrain/grammar_tiny/started-1/model.safetensors").exists()
