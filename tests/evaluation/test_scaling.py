from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from retable.evaluation.scaling import CausalConvolution, cost, exponents, layers, measure
from retable.reporting.diagnostics import THEORY

LAYERS = layers(kernel=3)


def weights_of(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.ndim > 1)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("d", [8, 128])
def test_operations_are_a_multiplication_a_weight_and_position_and_those_of_attention(name, d):
    """The LSTM's two matrices per gate, the convolution's k matrices and the attention's four are used once per
    position.
    """
    layer, n = LAYERS[name], 50
    between = 2 * n * n * d if name.startswith("self") else 0  # n² products of queries and keys, n² weighted values
    assert layer.operations(n, d) == n * weights_of(layer.build(d)) + between


def test_what_is_kept_and_its_growth():
    assert [*THEORY] == [*LAYERS]

    class Squares(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5))

        def forward(self, hidden):
            product = hidden * self.weight  # keeps the input and the weight for the gradient
            return product * product  # keeps the product for the gradient, twice

    seconds, n_bytes = cost(Squares(), torch.ones(1, 3, 5), repeats=2)
    assert n_bytes == 15 * 4 and seconds > 0


def test_the_convolution_sees_what_came_before_and_no_more():
    torch.manual_seed(0)
    layer, hidden = CausalConvolution(4, 3), torch.randn(2, 7, 4)
    output = layer(hidden)
    padded = torch.cat([torch.zeros(2, 2, 4), hidden], 1)
    for t in range(7):
        expected = torch.einsum("btd,edt->be", padded[:, t : t + 3], layer.weight) + layer.bias
        torch.testing.assert_close(output[:, t], expected)


@pytest.mark.parametrize("name", LAYERS)
def test_memory_grows_as_the_theory_says(name):
    """Bytes are counted: n·d for each layer, and n² for the scores of a head if they are kept."""
    layer, lengths = LAYERS[name], [256, 512, 1024, 2048]
    with sdpa_kernel(SDPBackend.MATH) if layer.keeps_scores else nullcontext():
        kept = [cost(layer.build(32), torch.randn(1, n, 32), repeats=1)[1] for n in lengths]
    growth = np.diff(np.log2(kept))
    if layer.keeps_scores:
        assert growth[-1] > 1.6 and kept[-1] > 4 * lengths[-1] ** 2
    else:
        assert growth == pytest.approx(1, abs=0.06)


def test_exponents_of_made_up_measurements():
    rows = [
        ("a", varied, n, d, n * d**2, 2e-9 * n**0.9 * d**1.8, 4 * n**2)
        for varied, n, d in [*(("length", n, 8) for n in (2, 4, 8)), *(("width", 16, d) for d in (2, 4, 8))]
    ]
    columns = ["layer", "varied", "length", "width", "operations", "seconds", "bytes"]
    fitted = exponents(pd.DataFrame(rows, columns=columns))
    expected = {
        "a/length/operations": 1, "a/length/seconds": 0.9, "a/length/bytes": 2,
        "a/width/operations": 2, "a/width/seconds": 1.8, "a/width/bytes": 0,
    }  # fmt: skip
    ends = {f"{name}{end}" for name in expected if "operations" not in name for end in ("_low", "_high")}
    assert fitted.keys() == expected.keys() | ends
    assert {name: fitted[name] for name in expected} == pytest.approx(expected, abs=1e-9)


def test_every_layer_is_measured_at_every_size():
    rows = measure(3, [8, 16, 32], 8, [4, 8, 16], 8, batch_size=2, repeats=1, device="cpu")
    assert rows.groupby("layer", sort=False).size().to_dict() == dict.fromkeys(LAYERS, 6)
    for _, part in rows.groupby("layer"):
        assert [*zip(part["length"], part["width"], strict=True)] == [(8, 8), (16, 8), (32, 8), (8, 4), (8, 8), (8, 16)]
    assert (rows[["seconds", "bytes", "operations"]] > 0).all(axis=None)
    assert set(exponents(rows)) >= {f"{name}/length/seconds" for name in LAYERS}
