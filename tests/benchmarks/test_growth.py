"""Test the measurement of memory growth, and that training over some steps leaves no file or thread open."""

from functools import partial

import numpy as np
import torch

from benchmarks.growth import Sample, Sampler, read, slope, table
from retable.data.streams import CarriedStreams
from retable.evaluation.likelihood import Carried, StreamLoss
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.training.fit import fit
from retable.training.optimizers import adamw
from retable.training.schedules import constant

TOKENS = np.arange(1000) % 11


def test_handles_and_threads_do_not_grow_with_validations_and_checkpoints(tmp_path):
    torch.manual_seed(0)
    sampler = Sampler(str(tmp_path / "samples.csv"), every=4, minutes=60)
    fit(
        CausalLM(LSTM(11, 8, 1, 0.0, init_range=0.1), 11, tie=True, bias=True, reduction="mean"),
        CarriedStreams(TOKENS, batch_size=4, length=5), seed=1, epochs=100,
        optimizer=partial(adamw, lr=1e-3, weight_decay=0.0), schedule=constant, clip_norm=None,
        trainer={"accelerator": "cpu", "devices": 1, "precision": "32-true"}, scratch=tmp_path, checkpoint_every=2,
        validations=25, validation=StreamLoss(Carried(rows=3), TOKENS[:40], 0), log=lambda points: None, max_steps=80,
        callbacks=[sampler],
    )  # fmt: skip
    samples = read(tmp_path / "samples.csv")
    assert [sample.step for sample in samples] == list(range(4, 84, 4))
    assert len({(sample.handles, sample.threads) for sample in samples[5:]}) == 1
    assert all(sample.anonymous_mib > 0 for sample in samples)


def test_the_training_ends_when_its_time_is_over(tmp_path):
    class Trainer:
        global_step, should_stop = 1, False

    sampler, trainer = Sampler(str(tmp_path / "samples.csv"), every=10, minutes=0), Trainer()
    sampler.on_train_start(trainer, None)
    sampler.on_train_batch_end(trainer)
    assert trainer.should_stop and read(tmp_path / "samples.csv") == []


def test_the_table_has_the_slope_of_the_second_half():
    steady = [Sample(i / 10, 100 * i, 400.0 + min(i, 10), 9 + i // 20, 3) for i in range(1, 41)]
    assert slope(steady[20:], "anonymous_mib") == 0 and slope(steady, "anonymous_mib") > 0
    *rows, last = table(steady).splitlines()[2:]
    assert len(rows) == 6 and rows[0].startswith("| 0.1 | 100 | 401.0 | 9 | 3 |") and "| 4.0 | 4,000 |" in rows[-1]
    assert last.startswith("| change per 100,000 steps, second half | | +0.00 | +") and last.endswith("| +0.00 |")
