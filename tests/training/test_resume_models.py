"""Trainings of every kind of system, killed and resumed.

Some keep more than weights from step to step: an average, a carried memory. Masks, corruptions and draws of others come
from the step alone.
"""

import pytest
import torch

from tests.training.resuming import PRETRAINING, D, assert_resumed

CARRYING = ["awd_lstm", "stacked_recurrent", "transformer_xl", "elmo"]


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name in CARRYING for step in (7, 17)] + [(name, 5) for name in PRETRAINING]
)
def test_killed_and_resumed_equals_uninterrupted(uninterrupted, name, step, tmp_path):
    assert_resumed(name, step, uninterrupted(name), tmp_path)


def test_what_is_kept_beside_the_weights(uninterrupted):
    """The average is what was trained, and training goes on beside it."""
    trained = uninterrupted("awd_lstm")
    steps, tensors = trained.checkpoint["average"]
    assert 5 < trained.points[-1].step - steps < 15  # after so many steps, between the checkpoints of the two kills
    for name, weight in trained.weights.items():
        assert torch.equal(weight, tensors[name])
        assert not torch.equal(weight, trained.checkpoint["state_dict"][f"objective.{name}"])
    (group,) = uninterrupted("stacked_recurrent").checkpoint["optimizer_states"][0]["param_groups"]
    assert group["lr"] < 10  # the rate has followed the losses
    assert uninterrupted("transformer_xl").checkpoint["carried_state"][0].shape == (2, 4, 12, D)
    ((forward, backward),) = uninterrupted("elmo").checkpoint["carried_state"]
    for hidden, cell in (forward, backward):
        assert hidden.shape == (2, 4, D) and cell.shape == (2, 4, 12)
    assert not torch.allclose(forward[0], backward[0])
