"""GPT with three added special tokens around the texts of a task: start, delimiter, extract.

Radford et al. 2018, section 3.3 and figure 1. The authors' code calls the tokens `_start_`, `_delimiter_` and
`_classify_`. The special tokens are added for fine-tuning only: the tokenizer and the pretrained model do not have
these tokens. The embeddings of these tokens are initialised at random and fine-tuned together with all other weights.
The auxiliary language-model loss predicts the special tokens like any token.

V tokens of the tokenizer.

System D3 of docs/systems.yaml.
"""

from inspect import signature
from typing import Any

from torch import nn

from retable.models.base import DelimitedLeftToRight
from retable.models.gpt import GPT


class PretrainedGPT(nn.ModuleDict):
    """The modules of a GPT with special tokens that receive a pretrained GPT's weights, under the same names."""


class GPTWithSpecialTokens(GPT, DelimitedLeftToRight):
    """A GPT with V + 3 tokens; the last three are the special tokens. Its arguments are those of GPT."""

    __signature__ = signature(GPT)  # used to check settings

    def __init__(self, vocab_size: int, *settings: Any, **named: Any):
        super().__init__(vocab_size + 3, *settings, **named)
        self.start_id, self.delimiter_id, self.extract_id = range(vocab_size, vocab_size + 3)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        """Return all modules; the returned embedding has only the first V rows, and shares their memory."""
        of_tokenizer = nn.Embedding.from_pretrained(self.embedding.weight.data[: self.start_id])
        return {"": PretrainedGPT({**dict(self.named_children()), "embedding": of_tokenizer})}
