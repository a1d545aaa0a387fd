"""The tagging objective: predict a tag for each word, with a softmax per word or a CRF over the sentence.

Lample et al. 2016, section 2.2. If a word consists of several tokens, its tag is predicted from one of these tokens;
`TaggedBatch.words` lists the token of each word.

Sparse features of words may be connected directly to the tags (Huang, Xu and Yu 2015, section 4.2.4). A tag's score at
a word is then the score by the word's state plus the tag's weights of the word's features.

Shapes: B batch, T time, W words of the longest sentence, N words of the batch, D d_model, K tags, F features per word.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.tagged import TaggedBatch
from retable.models.base import Model
from retable.nn.crf import CRF, Scheme, allowed_transitions
from retable.nn.dropout import Dropout
from retable.objectives.base import Objective
from retable.objectives.states import require_token_states, states_of


class Tagging(Objective):
    """A model with a state per token, a linear layer that scores each of `tags`, and, if `crf` is True, a CRF.

    scheme: IOB1, IOB2 or IOBES; with a scheme, the CRF assigns probability 0 to sequences of tags that the scheme does
    not allow. The training data must already use the scheme; metrics/spans.py converts data from one scheme to another.

    n_features: number of sparse features, whose ids are 1 to n_features. Their weights start at 0.
    """

    def __init__(
        self,
        model: Model,
        tags: Sequence[str],
        dropout: float,
        crf: bool = False,
        scheme: Scheme | None = None,
        n_features: int = 0,
    ):
        super().__init__()
        require_token_states(type(model), "be tagged by")
        model.drop_pooler()
        if scheme is not None and not crf:
            raise UsageError(f"scheme={scheme} needs a CRF; write crf=true, or remove scheme")
        self.model = model
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(model.d_model, len(tags))
        self.head.apply(model.initialise)
        self.features = None
        if n_features:
            self.features = nn.EmbeddingBag(n_features + 1, len(tags), mode="sum", padding_idx=0)
            nn.init.zeros_(self.features.weight)
        self.crf = CRF(len(tags), None if scheme is None else allowed_transitions(tags, scheme)) if crf else None

    def loss(self, batch: TaggedBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean nats per word; with a CRF, the nats of all sentences, divided by the number of words.

        The loss and the metric `loss` are multiplied by `batch.weight`, which can turn the mean over words into
        a mean over sentences.
        """
        inside, logits = self._logits(batch)
        if self.crf is None:
            loss = F.cross_entropy(logits, batch.tags[inside])
        else:
            nats = -self.crf.log_likelihood(_spread(logits, inside), batch.tags, batch.n_words)
            loss = nats.sum() / len(logits)
        loss = loss * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: TaggedBatch) -> Tensor:
        """Return each word's best tag or, with a CRF, each sentence's best sequence of tags, (B, W), padded with 0."""
        inside, logits = self._logits(batch)
        if self.crf is None:
            return _spread(logits.argmax(dim=1), inside)
        return self.crf.best(_spread(logits, inside), batch.n_words)

    def _logits(self, batch: TaggedBatch) -> tuple[Tensor, Tensor]:
        """Return a mask of the words, (B, W), and the words' fp32 logits (N, K), row by row."""
        if batch.predicates is None:
            hidden = states_of(self.model, batch.input_ids, batch.lengths)
        else:
            hidden = self.model(batch.input_ids, batch.lengths, batch.predicates)
        inside = torch.arange(batch.words.shape[1], device=hidden.device) < batch.n_words[:, None]
        states = hidden.take_along_dim(batch.words[:, :, None], dim=1)[inside]  # (N, D)
        logits = self.head(self.dropout(states)).float()
        if self.features is not None:
            assert batch.features is not None
            logits = logits + self.features(batch.features[inside])  # (N, F) to (N, K)
        return inside, logits


def _spread(values: Tensor, inside: Tensor) -> Tensor:
    """Arrange the values of all words (N, …) by sentence, as (B, W, …), with 0 where `inside` (B, W) is False."""
    spread = values.new_zeros(*inside.shape, *values.shape[1:])
    spread[inside] = values
    return spread
