import torch

from retable.models.convolutional_encoder import ConvolutionalEncoder

V, E, N = 11, 6, 5
WIDTHS = (2, 3, 4)
LENGTHS = torch.tensor([5, 1, 7, 3])  # in no order


def encoder(seed: int = 0) -> ConvolutionalEncoder:
    torch.manual_seed(seed)
    return ConvolutionalEncoder(V, E, WIDTHS, N, dropout=0.3)


def ids() -> torch.Tensor:
    return torch.randint(V, (4, 7), generator=torch.Generator().manual_seed(1))


def test_equals_a_loop_over_windows_and_features():
    model = encoder().eval()
    row = ids()[0].tolist()
    expected = []
    for convolve, width in zip(model.filters, WIDTHS, strict=True):
        zeros = [torch.zeros(E)] * (width - 1)
        words = [*zeros, *model.embedding.weight[row], *zeros]
        for weight, bias in zip(convolve.weight, convolve.bias, strict=True):  # (E, width)
            windows = (words[i : i + width] for i in range(len(words) - width + 1))
            values = [sum(w @ word for w, word in zip(weight.T, window, strict=True)) + bias for window in windows]
            expected.append(max(0.0, *(float(value) for value in values)))
    found = model(torch.tensor([row]), torch.tensor([len(row)]))
    assert found.shape == (1, model.d_model) == (1, len(WIDTHS) * N)
    torch.testing.assert_close(found[0], torch.tensor(expected))


def test_padding_changes_nothing():
    """Not even where a window of nothing, which is the bias, would be the maximum."""
    model = encoder().eval()
    for convolve in model.filters:
        torch.nn.init.constant_(convolve.bias, 9.0)
    padded = model(ids(), LENGTHS)  # what stands behind a row's length is random here
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(padded[row], model(ids()[row : row + 1, :length], LENGTHS[row : row + 1])[0])
