"""Hidden states of a sequence for any class of model, and checks that a class of model has hidden states.

Shapes: B batch, T time, D d_model.
"""

from torch import Tensor

from retable.core.errors import UsageError
from retable.models.base import BothDirections, Encoder, EncoderDecoder, LeftToRight, MarkedEncoder, Model, PairEncoder


def states_of(model: Model, input_ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
    """Return a model's hidden states for ids (B, T) that are padded after `lengths`.

    The shape is (B, T, D), or (B, D) for a model with one vector per sequence. `segments` (B, T) are used only if the
    model is a MarkedEncoder.
    """
    if isinstance(model, LeftToRight):
        hidden: Tensor = model(input_ids)[0]
        return hidden
    if isinstance(model, MarkedEncoder) and segments is not None:
        return model(input_ids, lengths, segments)
    return model(input_ids, lengths)


def require_token_states(model: type[Model], use: str) -> None:
    """Raise UsageError unless models of this class compute a hidden state for each token.

    use: a verb phrase that completes "has no state for each token to …" in the error message.
    """
    require_states(model, use)
    if not issubclass(model, Encoder | LeftToRight):
        raise UsageError(
            f"{model.__name__} has no state for each token to {use}; take recipe=encoders/bilstm or bert/bert"
        )
    if issubclass(model, PairEncoder):
        raise UsageError(f"{model.__name__} reads only sentence pairs; take recipe=encoders/bilstm")


def require_states(model: type[Model], use: str) -> None:
    """Raise UsageError unless models of this class compute hidden states of a sequence.

    use: a verb phrase that completes "has no state to …" in the error message.
    """
    if issubclass(model, EncoderDecoder):
        raise UsageError(
            f"{model.__name__} writes text, and has no state to {use}; take recipe=t5/t5_toy_encoder, or an encoder "
            "such as bert/bert"
        )
    if issubclass(model, BothDirections):
        raise UsageError(
            f"{model.__name__} only computes features for another model; take recipe=encoders/bilstm_elmo with "
            "init=FOLDER of the trained cell"
        )
