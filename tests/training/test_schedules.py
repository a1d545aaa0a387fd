from functools import partial

import numpy as np
import pytest

from retable.training.observers import full_rate
from retable.training.schedules import (
    constant,
    decay_from_stall,
    drop,
    epoch_decay,
    inverse_sqrt,
    linear_decay,
    perplexity_decay,
    stall_decay,
    warmup_cosine,
    warmup_linear,
)


def test_zaremba_small_halves_each_epoch_from_the_sixth():
    factors = [epoch_decay(step, 10, 130, [], flat_epochs=5, factor=0.5) for step in range(0, 130, 10)]
    assert factors == [1, 1, 1, 1, 1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert [epoch_decay(step, 10, 130, [], 5, 0.5) for step in (9, 49, 50, 59, 60)] == [1, 1, 0.5, 0.5, 0.25]


def test_one_drop_is_that_of_makemore():
    factors = [drop(step, 5707, 200_000, [], at=0.75, factor=0.1) for step in range(0, 200_000, 9_999)]
    assert factors == [1 if step < 150_000 else 0.1 for step in range(0, 200_000, 9_999)]


def test_stall_decay_is_the_rule_of_the_published_code():
    generator = np.random.default_rng(0)
    for _ in range(50):
        losses = (generator.normal(size=20).cumsum() - 0.5 * np.arange(20)).round(1).tolist()  # some are equal
        rate, best = 20.0, None
        for number, loss in enumerate(losses, 1):
            if not best or loss < best:  # as in main.py of word_language_model in pytorch/examples
                best = loss
            else:
                rate /= 4
            assert 20 * stall_decay(0, 10, 100, losses[:number], factor=0.25) == pytest.approx(rate)


def test_decay_from_stall_is_the_rule_of_mikolovs_toolkit():
    generator = np.random.default_rng(0)
    for _ in range(50):
        # Log-likelihoods of a validation text in the toolkit's form; their increases become smaller.
        logs = (-7000 + 600 * (1 - 0.6 ** np.arange(12)) + generator.normal(size=12)).tolist()
        rate, divide, before = 0.1, False, -1e8
        for number, log in enumerate(logs, 1):
            if log * 1.003 < before:
                divide = True
            if divide:
                rate /= 2
            before = log
            losses = [-log / 1000 for log in logs[:number]]
            factor = decay_from_stall(0, 10, 100, losses, factor=0.5, improvement=1.003)
            assert 0.1 * factor == pytest.approx(rate)
        assert divide


def test_perplexity_decay_is_the_rule_of_kims_code():
    generator = np.random.default_rng(0)
    for _ in range(50):
        perplexities = (80 + 40 * 0.7 ** np.arange(15) + generator.normal(size=15)).tolist()
        rate, halved = 1.0, 0
        for number in range(1, 16):
            if number > 1 and perplexities[number - 2] - perplexities[number - 1] < 1:  # as in lstm-char-cnn's main.lua
                rate, halved = rate / 2, halved + 1
            losses = np.log(perplexities[:number]).tolist()
            assert perplexity_decay(0, 10, 100, losses, factor=0.5, improvement=1.0) == pytest.approx(rate)
        assert 0 < halved < 14


@pytest.mark.parametrize("losses", [[], [5.0], [5.0, 4.0], [5.0, 4.0, 3.0]])
def test_the_full_rate_as_long_as_validation_improves(losses):
    assert stall_decay(7, 10, 100, losses, factor=0.25) == 1
    assert decay_from_stall(7, 10, 100, losses, factor=0.5, improvement=1.003) == 1


CURVES = {
    "constant": (constant, 100, {0: 1, 50: 1, 99: 1}),
    "of the rate finder": (partial(full_rate, warmup=0.1), 100, {0: 1, 99: 1}),
    "linear": (linear_decay, 100, {0: 1, 25: 0.75, 50: 0.5, 100: 0, 120: 0}),
    "linear to a fifth": (partial(linear_decay, final=0.2), 100, {0: 1, 50: 0.6, 100: 0.2, 101: 0.2}),
    # Linear increase to the tenth step, half the rate after four times as many steps, a quarter after sixteen times.
    "inverse root": (partial(inverse_sqrt, warmup=0.01), 1000, {0: 0.1, 4: 0.5, 9: 1, 39: 0.5, 159: 0.25}),
    "warmup": (partial(warmup_linear, warmup=0.1), 100, {0: 0.1, 4: 0.5, 9: 1, 10: 1, 55: 0.5, 100: 0, 101: 0}),
    "warmup to a fifth": (
        partial(warmup_linear, warmup=0.1, final=0.2),
        100,
        {4: 0.5, 9: 1, 55: 0.6, 100: 0.2, 101: 0.2},
    ),
    # Ten steps of linear increase to 1; then half a period of the cosine over the other ninety.
    "cosine": (
        partial(warmup_cosine, warmup=0.1, final=0.1),
        100,
        {0: 0.1, 4: 0.5, 9: 1, 10: 1, 40: 0.775, 55: 0.55, 70: 0.325, 100: 0.1, 110: 0.1},
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_factors_by_hand(name):
    schedule, max_steps, expected = CURVES[name]
    assert {step: schedule(step, 10, max_steps, []) for step in expected} == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [inverse_sqrt, warmup_linear, partial(warmup_cosine, final=0.0)])
def test_the_first_step_of_any_schedule_trains(schedule):
    for max_steps in (1, 2, 50):
        assert schedule(0, 1, max_steps, [], warmup=0.05) > 0
