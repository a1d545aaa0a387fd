"""What models keep of the past, row by row, in whatever nesting.

R rows.
"""

from typing import Any

import torch
from torch import Tensor


@torch.inference_mode()
def select_rows(state: Any, rows: Tensor, last: int | None) -> Any:
    """`NextToken.select` for nested tuples of tensors, which have their rows in dimension 1, and of caches."""
    if isinstance(state, tuple):
        return tuple(select_rows(part, rows, last) for part in state)
    if isinstance(state, Tensor):
        return state.index_select(1, rows)
    return None if state is None else state.select(rows, last)
