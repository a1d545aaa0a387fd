"""Select rows of decoding states, which may be nested.

R rows.
"""

from typing import Any

import torch
from torch import Tensor


@torch.inference_mode()
def select_rows(state: Any, rows: Tensor, last: int | None) -> Any:
    """Apply `NextToken.select` to nested tuples of caches and of tensors with rows in dimension 1.

    Args:
        rows: indices, (R,).
        last: as in `NextToken.select`.
    """
    if isinstance(state, tuple):
        return tuple(select_rows(part, rows, last) for part in state)
    if isinstance(state, Tensor):
        return state.index_select(1, rows)
    return None if state is None else state.select(rows, last)
