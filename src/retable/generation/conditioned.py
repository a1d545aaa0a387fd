"""Encoder-decoders behind the interface that decoding knows: the prompt is the source, the completion its translation.

B rows, T tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from retable.generation.packed import packed
from retable.generation.states import select_rows
from retable.objectives.base import Writing


class Conditioned:
    """A trained encoder-decoder and the state of its decoder, which holds what it looks at of the source.

    The first tokens that it is given are the source; the decoder then begins with the mark `start`. Strategies put
    prompts of one length together, so sources are not padded.
    """

    def __init__(self, objective: Writing, start: int):
        self.objective = packed(objective.eval())
        self.device = next(objective.parameters()).device
        self._start = start

    def start(self, n_rows: int) -> Any:
        return None

    @torch.inference_mode()
    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        if state is None:
            state = self.objective.model.encode(ids, torch.full_like(ids[:, 0], ids.shape[1]))
            ids = torch.full_like(ids[:, :1], self._start)
        hidden, state = self.objective.model.decode(ids, state)
        return self.objective.scores(hidden[:, -1]), state

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        return select_rows(state, rows, last)
