"""Test a training on two nodes, started by torchrun: it makes one cell and one MLflow run."""

import os
import subprocess
import sys

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from tests.chaos.elsewhere import OWN, run
from tests.chaos.servers import free_port

pytestmark = pytest.mark.chaos
GPT = ["corpus=grammar_tiny", "recipe=transformer/gpt", "model.d_model=16", "model.n_layers=1", "model.dropout=0",
       "batches.batch_size=4", "+max_steps=5", "epochs=1"]  # fmt: skip
NODES = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=1", "trainer.num_nodes=2"]


def test_one_cell_and_one_run(tiny):
    port = free_port()
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank",
             str(rank), "--master-addr", "127.0.0.1", "--master-port", str(port), "-m", "pipelines.pretrain", *GPT,
             *NODES, "system=two"],
            cwd=tiny, env=os.environ | OWN, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [node.communicate()[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert "step 5/5" in said[0] and "step 5/5" not in said[1]
    run(tiny, "pretrain", *GPT, "system=one")
    runs = MlflowClient(f"sqlite:///{tiny / 'mlflow.db'}").search_runs(["1"])
    assert [each.info.run_name for each in runs if each.info.status == "FINISHED"].count("two-1") == 1
    assert len([each for each in runs if "two" in each.info.run_name]) == 1
    two, one = (pd.read_csv(tiny / f"outputs/pretrain/grammar_tiny/{name}-1/curve.csv") for name in ("two", "one"))
    assert two["value"].to_numpy() == pytest.approx(one["value"].to_numpy(), rel=1e-4)
    assert not list((tiny / "work").rglob("lock"))
