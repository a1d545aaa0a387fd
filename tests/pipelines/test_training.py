"""Test what a training writes into its record."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from pipelines.app import training
from pipelines.app.run_folder import RunFolder
from retable.core.errors import UsageError
from retable.training.curve import Point
from retable.training.fit import Fitted

CFG = OmegaConf.create(
    {
        "seed": 1, "epochs": 1,
        "optimizer": {"_target_": "retable.training.optimizers.sgd", "_partial_": True, "lr": 1.0},
        "schedule": {"_target_": "retable.training.schedules.constant", "_partial_": True}, "clip_norm": None,
        "trainer": {"precision": "32-true", "devices": 1}, "checkpoint_every": 10, "validations": 1,
    }
)  # fmt: skip


class Batches:
    tokens_per_step = 1000


@pytest.mark.parametrize(("device", "n_devices", "precision", "flops", "share"), [
    ("cuda", 1, "32-true", 0.0096 * 989e12, 0.48),
    ("cuda", 8, "32-true", 0.0096 * 989e12, 0.06),
    ("cpu", 1, "32-true", 1e9, 0.5),
    ("cpu", 1, "bf16-mixed", 1e9, 0.5),
])  # fmt: skip
def test_utilisation_is_of_all_gpus_or_of_measured_products(
    device, n_devices, precision, flops, share, monkeypatch, tmp_path
):
    fitted = Fitted([Point(100, "train/loss", 1.0)], 100, 2.0, 100, torch.device(device), devices=n_devices)
    monkeypatch.setattr(training, "fit", lambda *_, **__: fitted)
    monkeypatch.setattr(training, "training_cost", lambda *_: {"tokens": 1000, "flops": flops})
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    monkeypatch.setattr(training, "product_rate", {dtype: 1e11}.__getitem__)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    record = RunFolder(tmp_path, tmp_path, lambda points: None)
    cfg = OmegaConf.merge(CFG, {"trainer": {"precision": precision}})
    training.train(cfg, record, nn.Linear(2, 2), Batches(), validation=None)
    assert (record.costs["flops_utilisation"], record.costs["tokens_per_second"]) == (share, 50_000)
    assert ("peak_gpu_memory_mib" in record.costs) == (device == "cuda")
    assert record.costs.get("product_flops_per_second") == {"cpu": 1e11}.get(device)


@pytest.mark.parametrize("cores", [3, 4])
def test_processes_that_share_cores_have_no_speed(cores, monkeypatch, tmp_path):
    fitted = Fitted([Point(100, "train/loss", 1.0)], 100, 2.0, 100, torch.device("cpu"), devices=4)
    monkeypatch.setattr(training, "fit", lambda *_, **__: fitted)
    monkeypatch.setattr(training.os, "sched_getaffinity", lambda _: set(range(cores)))
    record = RunFolder(tmp_path, tmp_path, lambda points: None)
    cfg = OmegaConf.merge(CFG, {"trainer": {"devices": 4}})
    training.train(cfg, record, nn.Linear(2, 2), Batches(), validation=None)
    assert ("tokens_per_second" in record.costs) == (cores == 4)


@pytest.mark.parametrize(("budget", "steps"), [("5e3tokens", 5), ("2e4tokens", 8), ("3e9flops", 3), ("10min", 8)])
def test_the_fewest_steps_that_are_said_are_those_of_a_training(budget, steps, monkeypatch, tmp_path):
    given = {}

    def fit(*_, **settings):
        given.update(settings)
        return Fitted([Point(1, "train/loss", 1.0)], 1, 2.0, 1, torch.device("cpu"), devices=2)

    monkeypatch.setattr(training, "fit", fit)
    monkeypatch.setattr(training, "training_cost", lambda *_: {"tokens": 1000, "flops": 1e9})
    cfg = OmegaConf.merge(CFG, {"budget": budget, "max_steps": 8})
    training.train(cfg, RunFolder(tmp_path, tmp_path, lambda points: None), nn.Linear(2, 2), Batches(), validation=None)
    assert given["max_steps"] == steps


@pytest.mark.parametrize("cost", [{}, {"tokens": 1000, "flops": 0}])
def test_a_budget_of_what_is_not_counted_is_refused(cost, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "training_cost", lambda *_: cost)
    cfg = OmegaConf.merge(CFG, {"budget": "1e9flops"})
    record = RunFolder(tmp_path, tmp_path, lambda points: None)
    with pytest.raises(UsageError, match=r"^budget=1e9flops: flops are not counted in this training; write"):
        training.train(cfg, record, nn.Linear(2, 2), Batches(), validation=None)
