"""Test that a Ray cluster of two nodes gives the same results as one machine; if a node dies, its jobs start again."""

import contextlib
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from pipelines.executors.executor import engine
from tests.chaos.elsewhere import OWN, bytes_of, run, study_on

pytest.importorskip("ray")
from ray.cluster_utils import Cluster

pytestmark = pytest.mark.cluster

TINY = "corpus=grammar_tiny"
LSTM = ["recipe=recurrent/lstm", "model.d_model=8", "checkpoint_every=5", "epochs=80", "validations=0.2"]


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OWN.items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
        made.shutdown()


def test_a_large_text_is_prepared_and_tokenized_in_parts(cluster, tmp_path):
    """Seven files, 9 MB together: one process and two nodes write the same bytes."""
    for i in range(7):
        lines = (f"the cat {n % 977} of {n % 89} sat on mat {n * n % 7919}" for n in range(i, 40_000))
        (tmp_path / f"{i}.train").write_text("\n".join(lines), encoding="utf-8")
    corpus = ["corpus=babylm_10m", f"corpus.write.source={tmp_path}", "corpus.write.train=*.train",
              "corpus.write.validation=0.train", "corpus.write.test=1.train"]  # fmt: skip
    for name, on in {"one": "local", "two": "ray"}.items():
        (folder := tmp_path / name).mkdir()
        run(folder, "prepare", *corpus, RETABLE_ENGINE=on)
        assert (folder / "outputs/prepare/babylm_10m/train.txt").stat().st_size > 8 << 20
        run(folder, "tokenize", *corpus[:1], "tokenizer=word", RETABLE_ENGINE=on)
    one, two = (bytes_of(tmp_path / name, "outputs/*/babylm_10m/**/*") for name in ("one", "two"))
    assert one == two and "outputs/tokenize/babylm_10m/word/train.bin" in one
    assert not list((tmp_path / "two/work").rglob("parts"))


def test_a_sweep(cluster, tiny):
    sweep = ["-m", TINY, "recipe=counted/kn3", "model.order=2,3,4", "logger=none"]
    cells = "outputs/pretrain/grammar_tiny/*/*.safetensors"
    run(tiny, "pretrain", *sweep, "hydra.launcher.engine=local")
    one = bytes_of(tiny, cells)
    subprocess.run(["rm", "-r", str(tiny / "outputs/pretrain")], check=True)
    run(tiny, "pretrain", *sweep, "hydra.launcher.engine=ray")
    assert bytes_of(tiny, cells) == one and len(one) == 3


def test_a_study(cluster, tmp_path):
    """The tables are the same. DVC's locks are the same except for the order of stages, which is the order in which
    they end.
    """
    assert study_on("ray", tmp_path / "ray") == study_on("local", tmp_path / "local")


def node_of(cluster, cell: Path):
    """Return the node on which a cell is made, from the process that the cell's lock names."""
    number = int((cell / "lock").read_text(encoding="utf-8").split()[1])
    above = {process.pid for process in psutil.Process(number).parents()}
    return next(node for node in cluster.list_all_nodes() if raylet(node).pid in above)


def raylet(node) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def test_a_node_is_killed(cluster, tiny, monkeypatch):
    """A node dies during one of two trainings.

    This training resumes from its checkpoint, the other is not disturbed, and both write the bytes of an undisturbed
    training.
    """
    still = run(tiny, "pretrain", TINY, *LSTM, "system=still")
    monkeypatch.chdir(tiny)
    names = ["left", "right"]
    benches = {name: Path("work/pretrain/grammar_tiny", f"{name}-1") for name in names}
    said = {name: tiny / f"{name}.txt" for name in names}
    with engine("ray") as runner, ThreadPoolExecutor(2) as threads:
        codes = [
            threads.submit(runner.run, "pipelines.pretrain", [TINY, *LSTM, f"system={name}"], os.environ, said[name])
            for name in names
        ]
        while not all([*bench.glob("*/last.ckpt")] for bench in benches.values()):
            assert not any(code.done() for code in codes), {name: log.read_text() for name, log in said.items()}
            time.sleep(0.05)
        on = {name: node_of(cluster, bench) for name, bench in benches.items()}
        killed, other = names if on["left"] is not cluster.head_node else reversed(names)
        assert on[killed] is not on[other]
        running = raylet(on[killed]).children(recursive=True)
        cluster.remove_node(on[killed], allow_graceful=False)
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert [code.result() for code in codes] == [0, 0]
    cluster.add_node(num_cpus=1)
    cells = {name: bytes_of(tiny / f"outputs/pretrain/grammar_tiny/{name}-1", "*.safetensors", "curve.csv")
             for name in ("still", *names)}  # fmt: skip
    assert cells["left"] == cells["right"] == cells["still"]
    steps = {
        name: re.findall(r"^step (\d+)/", log.read_text(encoding="utf-8"), re.MULTILINE) for name, log in said.items()
    }
    whole = re.findall(r"^step (\d+)/", still, re.MULTILINE)
    assert steps[other] == whole and len(whole) <= len(steps[killed]) <= len(whole) + 1
    runs = MlflowClient(f"sqlite:///{tiny / 'mlflow.db'}").search_runs(["1"])
    assert sorted(run.info.run_name for run in runs if run.info.run_name.endswith("-1")) == [
        "left-1", "right-1", "still-1",
    ]  # fmt: skip
    assert {run.info.status for run in runs} == {"FINISHED"}
