"""Test weights that are sharded over a single process, which needs no other process: nothing differs from a plain one.

tests/pipelines/test_resume.py tests two processes every night.
"""

from functools import partial

import pytest
import torch

from retable.training.optimizers import adafactor, sgd
from tests.training.resuming import CPU, assert_same, gpt, kill, run, weights

OPTIMIZERS = {"adafactor": partial(adafactor, lr=0.1), "plain SGD": partial(sgd, lr=0.5)}
FSDP = CPU | {"strategy": "fsdp"}


@pytest.fixture
def group():
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_killed_and_resumed_in_shards_it_equals_a_whole_one(name, tmp_path, group):
    plain, sharded = gpt(), gpt()
    expected = run(plain, tmp_path / "plain", optimizer=OPTIMIZERS[name])
    kill(gpt(), 5, tmp_path / "sharded", optimizer=OPTIMIZERS[name], trainer=FSDP)
    assert run(sharded, tmp_path / "sharded", optimizer=OPTIMIZERS[name], trainer=FSDP) == expected
    assert_same(weights(sharded), weights(plain))
