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


# Ours to theirs. A number between dots is {} in both: `blocks.{}.expand`.
Layers = Mapping[str, Layer]


def layer(*names: str, turned: bool = False, row: int | None = None) -> Layer:
    return Layer(names, turned, row)


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
        names, turned, row = _places(layers, name)
        if row is not None:
            rows.setdefault(names[0], {})[row] = weight.detach()
            continue
        parts = weight.detach().chunk(len(names))
        found |= {
            name: (part.T if turned and part.ndim == 2 else part).contiguous()
            for name, part in zip(names, parts, strict=True)
        }
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
        places, turned, row = _places(layers, name)
        if all(place in weights for place in places):
            parts = [weights[place] for place in places]
            whole = torch.cat(parts) if len(parts) > 1 else parts[0]
            if row is not None:
                if not name.endswith(".bias"):
                    found[name] = whole[row : row + 1]
                continue
            found[name] = whole.T.contiguous() if turned and whole.ndim == 2 else whole
    return found


def _places(layers: Layers, name: str) -> tuple[list[str], bool, int | None]:
    """Their names of our parameter `name`, whether a matrix is transposed, and which row of theirs it is."""
    kind, number = name.rpartition(".")[2], re.search(r"\.(\d+)\.", name)
    names, turned, row = layers[_pattern(name)]
    return [f"{each.format(number[1] if number else None)}.{kind}" for each in names], turned, row


def _pattern(name: str) -> str:
    return re.sub(r"\.\d+\.", ".{}.", name.rpartition(".")[0], count=1)
