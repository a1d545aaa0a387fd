"""D3: GPT with three tokens of its own, start, delimiter and extract, which stand round and between the texts of a task
(Radford et al. 2018, section 3.3 and figure 1; `_start_`, `_delimiter_` and `_classify_` of the authors' code).

They come in at fine-tuning: the tokenizer has none of them, nor has pretraining seen them. Their embeddings are drawn
as all first weights are, and learnt with the rest. The auxiliary language model predicts them as any token.

V tokens of the tokenizer.
"""

from inspect import signature
from typing import Any

from torch import nn

from retable.models.base import DelimitedLeftToRight
from retable.models.gpt import GPT


class PretrainedGPT(nn.ModuleDict):
    """What a pretrained GPT has of one with special tokens, by the names that it has them under."""


class GPTWithSpecialTokens(GPT, DelimitedLeftToRight):
    """A GPT of V + 3 tokens, of which the last are its own; the settings are those of the GPT."""

    __signature__ = signature(GPT)  # by which settings are checked

    def __init__(self, vocab_size: int, *settings: Any, **named: Any):
        super().__init__(vocab_size + 3, *settings, **named)
        self.start_id, self.delimiter_id, self.extract_id = range(vocab_size, vocab_size + 3)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        """All, and of the embeddings the first V, which share their memory."""
        of_tokenizer = nn.Embedding.from_pretrained(self.embedding.weight.data[: self.start_id])
        return {"": PretrainedGPT({**dict(self.named_children()), "embedding": of_tokenizer})}
