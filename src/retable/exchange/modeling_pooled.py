"""A text classifier on the pooled states of a backbone: their maximum, their mean, the first or the last state.

This file is copied into an exported model whose head has no class in transformers. The file imports only transformers
and torch. Load the model with:

    AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)

Shapes: B batch, T time, D width, L labels.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, arange, float32, nn, ones_like
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class PooledConfig(PretrainedConfig):
    """Settings of the backbone (a model of transformers) and of the classification head.

    pooling: `max` or `mean` over the tokens that are not padding, or the state of the `first` or `last` of these
        tokens.
    """

    model_type = "retable_pooled"

    def __init__(
        self, backbone: dict[str, Any] | None = None, pooling: str = "mean", dropout: float = 0.0, **more: Any
    ):
        self.backbone, self.pooling, self.dropout = backbone or {"model_type": "gpt2"}, pooling, dropout
        super().__init__(**more)


class PooledForSequenceClassification(PreTrainedModel):
    """A backbone, pooling to one vector per text, and a linear layer with a bias."""

    config_class = PooledConfig
    base_model_prefix = "model"

    def __init__(self, config: PooledConfig):
        super().__init__(config)
        self.model = AutoModel.from_config(AutoConfig.for_model(**config.backbone))
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.model.config.hidden_size, config.num_labels or 2)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None, **more: Any
    ) -> SequenceClassifierOutput:
        """Compute the logits, (B, L), of token ids, (B, T), and the loss for `labels`, (B,).

        Args:
            attention_mask: 1 for tokens and 0 for padding, (B, T); by default there is no padding.
            labels: class indices; if `problem_type` is `regression`, scores.
        """
        mask = ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.model(input_ids, attention_mask=mask, **more)[0]
        logits = self.head(self.dropout(self.pool(hidden, mask.bool())))
        loss = None
        if labels is not None:
            regression = self.config.problem_type == "regression"
            loss = F.mse_loss(logits[:, 0], labels.to(float32)) if regression else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool states, (B, T, D), to one vector per text, (B, D), as `config.pooling` sets.

        mask: True for tokens and False for padding, (B, T).
        """
        match self.config.pooling:
            case "max":
                return hidden.masked_fill(~mask[:, :, None], float("-inf")).amax(1)
            case "mean":
                return hidden.masked_fill(~mask[:, :, None], 0.0).sum(1) / mask.sum(1, keepdim=True)
        places = mask * arange(1, mask.shape[1] + 1, device=mask.device)  # correct for padding on the left or right
        first, last = mask.int().argmax(1), places.argmax(1)
        which = first if self.config.pooling == "first" else last
        return hidden[arange(len(hidden), device=hidden.device), which]
