"""What a training leaves in its record."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from pipelines import training
from pipelines.record import Record
from retable.training.curve import Point
from retable.training.fit import Fitted

CFG = OmegaConf.create(
    {
        "seed": 1,
        "epochs": 1,
        "optimizer": None,
        "schedule": None,
        "clip_norm": None,
        "trainer": {},
        "checkpoint_every": 10,
        "validations": 1,
    }
)


class Batches:
    tokens_per_step = 1000


@pytest.mark.parametrize(("gpus", "share"), [(0, None), (1, 0.48), (8, 0.06)])
def test_utilisation_counts_every_gpu(gpus, share, monkeypatch, tmp_path):
    fitted = Fitted([Point(100, "train/loss", 1.0)], steps=100, seconds=2.0, step=100, gpus=gpus)
    monkeypatch.setattr(training, "fit", lambda *_, **__: fitted)
    monkeypatch.setattr(training, "training_cost", lambda *_: {"tokens": 1000, "flops": 0.0096 * 989e12})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    record = Record(tmp_path, tmp_path, lambda points: None)
    training.train(CFG, record, nn.Linear(2, 2), Batches(), validate=lambda objective: {})
    assert record.costs.get("flops_utilisation") == share
    assert ("peak_gpu_memory_mib" in record.costs) == bool(gpus)
    assert record.costs["tokens_per_second"] == 50_000
