import numpy as np
import pytest
import torch

from retable.generation.beam_search import BeamSearch, n_apart
from retable.generation.exact_search import ExactSearch
from retable.generation.sampling import Greedy

PROMPTS = [[0], [0, 5, 3], [0, 2], [4, 9, 1], [7], [1, 2, 3, 4]]


def close(found, expected) -> bool:
    """Return whether completions are equal, within float32's rounding of their log-probabilities."""
    return [c.ids for c in found] == [c.ids for c in expected] and np.allclose(
        [c.log_prob for c in found], [c.log_prob for c in expected], atol=1e-4
    )


def test_one_beam_is_greedy(model, small):
    beams = BeamSearch(num_beams=1, max_new_tokens=8)(model, PROMPTS, small.eos)
    greedy = Greedy(max_new_tokens=8)(model, PROMPTS, small.eos)
    assert all(close(found, expected) for found, expected in zip(beams, greedy, strict=True))


@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.0, -0.5])
@pytest.mark.parametrize("seed", range(2))
def test_with_beams_enough_for_all_texts_it_is_exact(small, seed, length_penalty):
    model, prompts = small.tree(3, seed), [[1], [2, 1], [1, 1]]
    beam = BeamSearch(
        num_beams=3**4, max_new_tokens=4, length_penalty=length_penalty, early_stopping="never", num_return_sequences=5
    )
    exact = ExactSearch(max_new_tokens=4, length_penalty=length_penalty)(model, prompts, 0)
    for found, expected in zip(beam(model, prompts, 0), exact, strict=True):
        assert close(found[:1], expected)
        scores = [c.log_prob / len(c.ids) ** length_penalty for c in found]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(c.ids) for c in found}) == 5


@pytest.mark.parametrize(
    ("early_stopping", "expected"),
    [(True, [[0], [1, 0]]), (False, [[2, 2, 0], [0]]), ("never", [[1] * 8, [2, 2, 0]])],
    ids=str,
)
def test_when_a_search_ends(small, early_stopping, expected):
    """Two texts are complete after two tokens.

    Then [2, 2] has a better mean per token than the worse text, and ends well. Texts that begin with [1, 1] have a
    worse mean than both until they are long.
    """
    model = small.given(
        {(0,): [0.5, 0.3, 0.2], (0, 1): [0.6, 0.4, 0.0], (0, 2): [0.05, 0.0, 0.95], (0, 2, 2): [1.0, 0.0, 0.0]},
        other=[0.1, 0.9, 0.0],
    )  # fmt: skip
    search = BeamSearch(num_beams=2, max_new_tokens=8, early_stopping=early_stopping, num_return_sequences=2)
    (found,) = search(model, [[0]], 0)
    assert [completion.ids for completion in found] == expected


class Copying:
    """A model that copies states when rows are chosen."""

    def __init__(self, model):
        self.device, self.start, self.extend, self._select = model.device, model.start, model.extend, model.select

    def select(self, state, rows, last=None):
        return self._select(state, rows)


def test_what_beams_share_may_stay_where_it_is(model, small):
    before = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    for after, n in [([[1, 2, 3, 4], [5, 6, 7, 8]], 0), ([[1, 2, 3, 4], [5, 6, 7, 9]], 1), ([[1, 0, 3, 4]] * 2, 4)]:
        assert n_apart(before, torch.tensor(after)) == n
    # Prompts end at different steps, and texts become longer than the window.
    search = BeamSearch(num_beams=3, max_new_tokens=3 * small.max_length, num_return_sequences=3)
    for eos in (small.eos, None):
        expected = search(Copying(model), PROMPTS, eos)
        for found, copied in zip(search(model, PROMPTS, eos), expected, strict=True):
            assert close(found, copied)


def test_log_probabilities_are_the_models_own(small):
    penalised = BeamSearch(num_beams=3, max_new_tokens=6, repetition_penalty=2.0, num_return_sequences=3)
    model = small.tree(5, 0)
    for completion in penalised(model, [[1, 2]], 0)[0]:
        text, log_prob = [1, 2], 0.0
        for token in completion.ids:
            log_prob += model.model.next_log_prob(np.array(text))[token]
            text.append(token)
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-4)
