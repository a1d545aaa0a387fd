"""Selection of rows from the state of a decoding model, which may be a nested tuple.

R is the number of rows.
"""

from typing import Any

import torch
from torch import Tensor


@torch.inference_mode()
def select_rows(state: Any, rows: Tensor, last: int | None) -> Any:
    """Return the state of the rows with indices `rows`, as `NextToken.select` does.

    Args:
        state: a cache, a tensor with rows in dimension 1, None, or a (nested) tuple of these; if `last` is given, this
            state must not be used afterwards.
        rows: indices of rows, (R,); a row may repeat.
        last: maximum number of tokens, at the end, in which a new row differs from the row at its place; caches copy
            only these tokens, in place. None copies all tokens.

    Returns: a state of the same structure with R rows.
    """
    if isinstance(state, tuple):
        return tuple(select_rows(part, rows, last) for part in state)
    if isinstance(state, Tensor):
        return state.index_select(1, rows)
    return None if state is None else state.select(rows, last)
