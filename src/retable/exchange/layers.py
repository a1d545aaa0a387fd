"""Weights under our names and under those of transformers, by one table for both directions."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Layer(NamedTuple):
    """A layer of transformers, or several: ours then has their rows one below the other."""

    names: tuple[str, ...]
    turned: bool = False  # it multiplies from the right (their Conv1D): its matrix is ours transposed
    row: int | None = None  # ours is this row of it, without its bias, which moves all that a softmax is over alike
    n_rotated: int = 0  # so many of the names, the first, are queries and keys with rotary positions
    d_head: int = 0  # the width of their heads


# Ours to theirs. A number between dots is {} in both: `blocks.{}.expand`.
Layers = Mapping[str, Layer]


def layer(*names: str, turned: bool = False, row: int | None = None, n_rotated: int = 0, d_head: int = 0) -> Layer:
    return Layer(names, turned, row, n_rotated, d_head)


def under(prefix: str, layers: Layers, theirs: str = "") -> dict[str, Layer]:
    """The same table where ours begin with `prefix`, and theirs with `theirs`."""
    return {
        prefix + ours: each._replace(names=tuple(theirs + name for name in each.names)) for ours, each in layers.items()
    }


def to_theirs(layers: Layers, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights by transformers' names. KeyError for a layer that the table lacks."""
    found: dict[str, Tensor] = {}
    rows: dict[str, dict[int, Tensor]] = {}
    for name, weight in weights.items():
        names, its = _places(layers, name)
        if its.row is not None:
            rows.setdefault(names[0], {})[its.row] = weight.detach()
            continue
        for k, (place, part) in enumerate(zip(names, weight.detach().chunk(len(names)), strict=True)):
            part = _in_halves(part, its.d_head) if k < its.n_rotated else part
            found[place] = (part.T if its.turned and part.ndim == 2 else part).contiguous()
    for name, each in rows.items():
        whole = torch.cat([each[row] for row in sorted(each)])
        found |= {name: whole, f"{name.removesuffix('weight')}bias": whole.new_zeros(len(whole))}
    return found


def to_ours(layers: Layers, names: Iterable[str], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of transformers' weights those that we call `names`, and have a layer in the table and all of whose parts are
    there."""
    found = {}
    for name in names:
        if _pattern(name) not in layers:
            continue
        places, its = _places(layers, name)
        if all(place in weights for place in places):
            parts = [weights[place] for place in places]
            parts = [_in_pairs(part, its.d_head) if k < its.n_rotated else part for k, part in enumerate(parts)]
            whole = torch.cat(parts) if len(parts) > 1 else parts[0]
            if its.row is not None:
                if not name.endswith(".bias"):
                    found[name] = whole[its.row : its.row + 1]
                continue
            found[name] = whole.T.contiguous() if its.turned and whole.ndim == 2 else whole
    return found


def _in_halves(rows: Tensor, d_head: int) -> Tensor:
    """Reorder the rows of each head from ours, whose rotated pairs are neighbours (Su et al. 2021, section 3.2), to
    theirs, where the second of a pair is half a head behind the first. Products of queries and keys are the same."""
    return rows.unflatten(0, (-1, d_head // 2, 2)).transpose(1, 2).flatten(0, 2)


def _in_pairs(rows: Tensor, d_head: int) -> Tensor:
    """Undo `_in_halves`."""
    return rows.unflatten(0, (-1, 2, d_head // 2)).transpose(1, 2).flatten(0, 2)


def _places(layers: Layers, name: str) -> tuple[list[str], Layer]:
    """Their names of our parameter `name`, and the layer that it is of."""
    kind, number = name.rpartition(".")[2], re.search(r"\.(\d+)\.", name)
    its = layers[_pattern(name)]
    return [f"{each.format(number[1] if number else None)}.{kind}" for each in its.names], its


def _pattern(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{}.", name.rpartition(".")[0], count=1)
