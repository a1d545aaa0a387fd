import numpy as np
import pytest
import torch

from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM

V, D, BOUNDARY, LENGTH = 11, 8, 3, 6
TOKENS = np.random.default_rng(0).integers(0, V, 53).astype("<u2")


@pytest.fixture(scope="module")
def lstm() -> CausalLM:
    torch.manual_seed(0)
    return CausalLM(LSTM(V, D, 2, 0.1, init_range=0.8), V, tie=False, bias=True, reduction="mean").eval()


@pytest.fixture(scope="module")
def gpt() -> CausalLM:
    torch.manual_seed(0)
    objective = CausalLM(GPT(V, D, 2, 2, LENGTH, 0.1), V, tie=True, bias=False, reduction="mean").eval()
    for parameter in objective.parameters():  # far from initial weights, so that all of the context matters
        torch.nn.init.normal_(parameter, std=0.7)
    return objective


def after(objective: CausalLM, context: list[int], token: int) -> float:
    """Return the log-probability of one token after a context, computed separately."""
    logits = objective.head(objective.model(torch.tensor([context]))[0][0, -1])
    return logits.detach().double().log_softmax(dim=0)[token].item()


@pytest.mark.parametrize("segment", [1, 7, 52, 53, 256])
def test_carried_state_sees_all_that_came_before(lstm, segment):
    stream = [BOUNDARY, *TOKENS.tolist()]
    expected = [after(lstm, stream[: i + 1], stream[i + 1]) for i in range(len(TOKENS))]
    scores = Carried(rows=1, segment=segment).log_prob(lstm, TOKENS, BOUNDARY)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("rows", [3, 16])
def test_rows_are_scored_as_streams_of_their_own(lstm, rows):
    row = -(-len(TOKENS) // rows)
    stream = [BOUNDARY, *TOKENS.tolist()]
    expected = [after(lstm, stream[i // row * row : i + 1], stream[i + 1]) for i in range(len(TOKENS))]
    np.testing.assert_allclose(Carried(rows).log_prob(lstm, TOKENS, BOUNDARY), expected, atol=1e-5)


def shown_context(place: int, stride: int) -> int:
    """Return the start of the window, of all that move by `stride`, in which the token at `place` has most context."""
    starts = range(0, len(TOKENS), stride)
    return min(start for start in starts if start <= place < start + LENGTH)


@pytest.mark.parametrize("stride", [1, 2, 4, LENGTH])
@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_each_token_is_scored_in_the_window_that_shows_it_most(gpt, stride, batch_size):
    stream = [BOUNDARY, *TOKENS.tolist()]
    expected = [after(gpt, stream[shown_context(i, stride) : i + 1], stream[i + 1]) for i in range(len(TOKENS))]
    scores = SlidingWindow(LENGTH, stride, batch_size).log_prob(gpt, TOKENS, BOUNDARY)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("size", range(1, 2 * LENGTH + 2))
def test_every_token_is_scored_however_short_the_stream(gpt, lstm, size):
    window = SlidingWindow(LENGTH, 4, 2)
    scores, of_more = (window.log_prob(gpt, tokens, BOUNDARY) for tokens in (TOKENS[:size], TOKENS))
    np.testing.assert_allclose(scores, of_more[:size], atol=1e-4, strict=True)
    assert len(Carried(rows=5).log_prob(lstm, TOKENS[:size], BOUNDARY)) == size


def test_a_language_model_names_its_protocol(gpt, lstm):
    scorers = (Carried(1), Carried(20), SlidingWindow(LENGTH, 3, 2))
    protocols = [NeuralLM(lstm, scorer, BOUNDARY).protocol for scorer in scorers]
    assert protocols == ["carried", "carried, 20 rows", "window 6, stride 3"]
    expected = scorers[2].log_prob(gpt, TOKENS, BOUNDARY)
    assert np.array_equal(NeuralLM(gpt, scorers[2], BOUNDARY).log_prob(TOKENS), expected)


@pytest.mark.parametrize("stride", [0, LENGTH + 1])
def test_strides_that_skip_tokens_are_refused(stride):
    with pytest.raises(ValueError, match=f"stride={stride} must be between 1 and length=6"):
        SlidingWindow(LENGTH, stride, 1)
