"""The interface for decoding from encoder-decoders and prefix LMs.

The prompt is the source, and the completion is the target.

Dimensions: B rows, T tokens, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from retable.generation.packed import prepack
from retable.generation.states import select_rows
from retable.models.base import EncoderDecoder
from retable.objectives.base import Writing


class Conditioned:
    """A trained encoder-decoder or prefix LM with the interface `NextToken`.

    The first call of `extend` reads the source. The output begins with the tokens `begun`, such as the decoder's start
    mark. Sources are not padded, because strategies group prompts by length.
    """

    def __init__(self, objective: Writing, *begun: int):
        self.objective = prepack(objective.eval())
        self.device = next(objective.parameters()).device
        self._begun = begun

    def start(self, n_rows: int) -> Any:
        return None

    @torch.inference_mode()
    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        model: Any = self.objective.model
        reads_first = isinstance(model, EncoderDecoder)
        if state is None:
            lengths = torch.full_like(ids[:, 0], ids.shape[1])
            state = model.encode(ids, lengths) if reads_first else model(ids, (), lengths)[1]
            ids = torch.tensor([self._begun], device=self.device).expand(len(ids), -1)
        hidden, state = model.decode(ids, state) if reads_first else model(ids, state)
        return self.objective.scores(hidden[:, -1]), state

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        return select_rows(state, rows, last)
