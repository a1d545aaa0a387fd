"""Layers written in NumPy's float64, for loops with which models are compared."""

import numpy as np
from torch import nn


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray | float) -> np.ndarray:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation * scale + shift


def attention(query: np.ndarray, keys: list[np.ndarray], values: list[np.ndarray], scale: float = 1.0) -> np.ndarray:
    """Return the mean of values (K,), weighted by a softmax of the products of the query (K,) with the keys (K,)."""
    return softmax(np.array([query @ key for key in keys]) * scale) @ np.stack(values)


def turned(x: np.ndarray, t: int) -> np.ndarray:
    """Su et al. (2021), equation 14: multiply each pair of dimensions, as a complex number, by e^(i t θ)."""
    pairs = (x[::2] + 1j * x[1::2]) * np.exp(1j * t * 10000.0 ** (-np.arange(0, len(x), 2) / len(x)))
    return np.stack([pairs.real, pairs.imag], axis=1).ravel()


def sinusoids(length: int, width: int) -> np.ndarray:
    """Return the sinusoids (length, width) of Vaswani et al. (2017), section 3.5."""
    return np.array(
        [[(np.sin, np.cos)[i % 2](t / 10000 ** (i // 2 * 2 / width)) for i in range(width)] for t in range(length)]
    )


def cell(
    kind: str,
    p: dict[str, np.ndarray],
    x: np.ndarray,
    state: tuple[np.ndarray, ...],
    place: str = "",
    layer: str = "l0",
) -> tuple[np.ndarray, ...]:
    """Return a step of an Elman network, GRU or LSTM with torch's weights `place`weight_ih_`layer` and so on.

    x and the state (h, or h and c) have shape (·) or (B, ·). An LSTM may have a projection (Sak et al. 2014, section
    2.2).
    """
    given, recurrent = (
        inputs @ p[f"{place}weight_{ends}_{layer}"].T + p[f"{place}bias_{ends}_{layer}"]
        for inputs, ends in ((x, "ih"), (state[0], "hh"))
    )
    if kind == "elman":
        return (np.tanh(given + recurrent),)
    if kind == "gru":
        (r, z, n), (r_h, z_h, n_h) = (np.split(gates, 3, axis=-1) for gates in (given, recurrent))
        z = sigmoid(z + z_h)
        return ((1 - z) * np.tanh(n + sigmoid(r + r_h) * n_h) + z * state[0],)
    i, f, g, o = np.split(given + recurrent, 4, axis=-1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    projection = p.get(f"{place}weight_hr_{layer}")
    return h if projection is None else h @ projection.T, c
