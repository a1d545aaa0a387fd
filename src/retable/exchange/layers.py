"""Convert weights between Retable's and transformers' names, with one table for both directions.

In this module, "ours" refers to Retable and "theirs" to transformers.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Layer(NamedTuple):
    """The layers of transformers that correspond to one layer of Retable.

    The matrix in Retable is the concatenation of the rows of the matrices in transformers.
    """

    names: tuple[str, ...]  # names of the layers in transformers
    turned: bool = False  # whether the matrix in transformers is transposed (Conv1D)
    row: int | None = None  # if set, Retable's matrix is this row; the row's bias, which changes no softmax, is omitted
    n_rotated: int = 0  # number of names, from the first, that project queries or keys with rotary positions
    d_head: int = 0  # width of the attention heads with rotary positions


# Maps Retable's layer names to layers of transformers. {} stands for the number of a block, as in `blocks.{}.expand`.
Layers = Mapping[str, Layer]


def layer(*names: str, turned: bool = False, row: int | None = None, n_rotated: int = 0, d_head: int = 0) -> Layer:
    return Layer(names, turned, row, n_rotated, d_head)


def under(prefix: str, layers: Layers, theirs: str = "") -> dict[str, Layer]:
    """Return a table of layers with a prefix added to all names.

    Args:
        prefix: prefix of Retable's names, such as `encoder.`.
        theirs: prefix of transformers' names.
    """
    return {
        prefix + ours: each._replace(names=tuple(theirs + name for name in each.names)) for ours, each in layers.items()
    }


def to_theirs(layers: Layers, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert Retable's weights to transformers' names and layouts.

    Args:
        layers: the table of layers of an architecture.
        weights: Retable's tensors by name.

    Raises: KeyError: a layer is not in the table.
    """
    theirs: dict[str, Tensor] = {}
    rows: dict[str, dict[int, Tensor]] = {}
    for name, weight in weights.items():
        names, target = _places(layers, name)
        if target.row is not None:
            rows.setdefault(names[0], {})[target.row] = weight.detach()
            continue
        for k, (place, part) in enumerate(zip(names, weight.detach().chunk(len(names)), strict=True)):
            part = _in_halves(part, target.d_head) if k < target.n_rotated else part
            theirs[place] = (part.T if target.turned and part.ndim == 2 else part).contiguous()
    for name, each in rows.items():
        whole = torch.cat([each[row] for row in sorted(each)])
        theirs |= {name: whole, f"{name.removesuffix('weight')}bias": whole.new_zeros(len(whole))}
    return theirs


def to_ours(layers: Layers, names: Iterable[str], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert transformers' weights to Retable's names and layouts.

    Args:
        layers: the table of layers of an architecture.
        names: Retable's names of the tensors to return. A tensor that the table or `weights` does not contain is
            omitted.
        weights: transformers' tensors by name.
    """
    ours = {}
    for name in names:
        if _pattern(name) not in layers:
            continue
        places, target = _places(layers, name)
        if all(place in weights for place in places):
            parts = [weights[place] for place in places]
            parts = [_in_pairs(part, target.d_head) if k < target.n_rotated else part for k, part in enumerate(parts)]
            whole = torch.cat(parts) if len(parts) > 1 else parts[0]
            if target.row is not None:
                if not name.endswith(".bias"):
                    ours[name] = whole[target.row : target.row + 1]
                continue
            ours[name] = whole.T.contiguous() if target.turned and whole.ndim == 2 else whole
    return ours


def _in_halves(rows: Tensor, d_head: int) -> Tensor:
    """Reorder the rows of each attention head from Retable's rotary layout to transformers' rotary layout.

    In Retable, the two dimensions that are rotated together are adjacent (Su et al. 2021, section 3.2). In
    transformers, the distance between these two dimensions is half the width of the head. Products of queries and keys
    are the same in both layouts.
    """
    return rows.unflatten(0, (-1, d_head // 2, 2)).transpose(1, 2).flatten(0, 2)


def _in_pairs(rows: Tensor, d_head: int) -> Tensor:
    """Reorder the rows of each attention head from transformers' rotary layout to Retable's rotary layout."""
    return rows.unflatten(0, (-1, 2, d_head // 2)).transpose(1, 2).flatten(0, 2)


def _places(layers: Layers, name: str) -> tuple[list[str], Layer]:
    """Return transformers' names for Retable's parameter `name`, and the parameter's entry in the table."""
    kind, number = name.rpartition(".")[2], re.search(r"\.(\d+)\.", name)
    target = layers[_pattern(name)]
    return [f"{each.format(number[1] if number else None)}.{kind}" for each in target.names], target


def _pattern(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{}.", name.rpartition(".")[0], count=1)
