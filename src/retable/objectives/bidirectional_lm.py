"""ELMo's objective: predict each token from the tokens before it and, separately, from the tokens after it.

Peters et al. 2018, section 3.1. Both directions share one softmax layer. Each direction reads a separate stream of
tokens and predicts the next token of this stream; the backward stream starts at the text's end. Both directions carry
their state from window to window, as in the authors' code (bilm-tf).

Shapes: B batch, T time, D d_model, V vocabulary.
"""

from typing import Any

from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.data.streams import OppositeBatch, TokenBatch
from retable.models.base import BothDirections, Encoder
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob
from retable.objectives.base import TwoWayLikelihood


class BidirectionalLM(TwoWayLikelihood):
    """Two language models with a shared input layer and softmax layer; the loss is the mean of the two models' losses.

    Raises: UsageError: the model does not read in both directions.
    """

    def __init__(self, model: BothDirections, vocab_size: PositiveInt):
        super().__init__()
        if not isinstance(model, BothDirections):
            name = type(model).__name__
            reason = (
                f"{name} sees both sides at every position, so it sees the word that objective=bidirectional_lm "
                "predicts; take recipe=elmo/elmo, whose directions are separate, or objective=masked_lm"
                if isinstance(model, Encoder)
                else f"{name} does not read backwards, as objective=bidirectional_lm requires; take recipe=elmo/elmo, "
                "or for a left-to-right model objective=causal_lm"
            )
            raise UsageError(reason)
        self.model = model
        self.head = nn.Linear(model.d_model, vocab_size)
        self.head.apply(model.initialise)

    def loss(self, batch: OppositeBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """Compute the mean nats per token over both directions, and each direction's metrics and next state."""
        before = (None, None) if batch.forward.fresh else state
        forward, forward_state = self._nats(batch.forward, before[0], backward=False)
        backward, backward_state = self._nats(batch.backward, before[1], backward=True)
        loss = (forward + backward) / 2
        metrics = {"loss": loss, "forward/loss": forward, "backward/loss": backward}
        return loss, {name: nats.detach() for name, nats in metrics.items()}, (forward_state, backward_state)

    def log_prob(
        self, input_ids: Tensor, labels: Tensor, state: Any = None, backward: bool = False
    ) -> tuple[Tensor, Any]:
        hidden, state = self.model(input_ids, state, backward)
        log_probs = linear_log_prob(hidden.flatten(0, 1), self.head.weight, self.head.bias, labels.flatten())
        return log_probs.view_as(labels), state

    def _nats(self, window: TokenBatch, state: Any, backward: bool) -> tuple[Tensor, Any]:
        """Compute one direction's mean cross-entropy over a window, in nats, and the direction's next state."""
        hidden, state = self.model(window.input_ids, state, backward)
        hidden, labels = hidden.flatten(0, 1), window.labels.flatten()
        return linear_cross_entropy(hidden, self.head.weight, self.head.bias, labels), state
