import pytest
import torch

from retable.models.window_tagger import WindowTagger
from tests.contracts.model_cases import IDS, LENGTHS, SPELT, D


@pytest.mark.parametrize("window", [1, 3, 5, 7])
def test_equals_a_loop_over_words_and_their_windows(window):
    """Collobert et al. 2011, equations 5 to 7: HardTanh(M [w_{t−d} … w_{t+d}] + b), PADDING beyond either end. Behind
    the lengths are random words."""
    torch.manual_seed(0)
    given = WindowTagger(4, **SPELT, window=window, d_model=D, dropout=0.0)
    with torch.no_grad():
        given.convolution.weight.mul_(5)  # so that HardTanh cuts some off
    words, states = given.input(IDS), given(IDS, LENGTHS)
    matrix = given.convolution.weight.transpose(1, 2).flatten(1)  # (D, window · I): the window's first word first
    reach, cut = window // 2, 0
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            places = range(t - reach, t + reach + 1)
            read = torch.cat([words[row, i] if 0 <= i < length else given.padding for i in places])
            linear = matrix @ read + given.convolution.bias
            expected = torch.tensor([max(-1.0, min(1.0, x)) for x in linear.tolist()])
            torch.testing.assert_close(states[row, t], expected)
            cut += int((expected.abs() == 1).sum())
    assert cut
