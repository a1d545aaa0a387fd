import torch

from tests.contracts.model_cases import IDS, LENGTHS, E, build


def test_equals_a_loop_over_windows_and_features():
    """Also where a window of nothing, which is the bias, would be the maximum if it were one of padding."""
    model = build("convolutions")
    for high in (0.0, 9.0):
        for convolve in model.filters:
            convolve.bias.data += high
        found = model(IDS, LENGTHS)
        for row, length, features in zip(IDS.tolist(), LENGTHS.tolist(), found, strict=True):
            expected = []
            for convolve in model.filters:
                width = convolve.weight.shape[2]
                zeros = [torch.zeros(E)] * (width - 1)
                words = [*zeros, *model.embedding.weight[row[:length]], *zeros]
                for weight, bias in zip(convolve.weight, convolve.bias, strict=True):  # (E, width)
                    windows = (words[i : i + width] for i in range(len(words) - width + 1))
                    values = [sum(w @ x for w, x in zip(weight.T, window, strict=True)) + bias for window in windows]
                    expected.append(torch.stack(values).max().clamp(min=0))
            torch.testing.assert_close(features, torch.stack(expected))
