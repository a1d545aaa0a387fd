"""Encoding of prompts and decoding of written texts, for all systems that write text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from retable.core import settings
from retable.core.errors import UsageError
from retable.core.systems import System, TrainedSystem
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken, next_token
from retable.inference.objective import load_objective
from retable.inference.systems import read_config
from retable.models.base import EncoderDecoder
from retable.objectives.base import Objective, Writing
from retable.objectives.translation import Translation
from retable.tokenizers.tokenizer import Tokenizer


class Writer:
    """A system and its tokenizer, with the interface that `retable.generation` needs.

    A language model continues a prompt, which is placed after the boundary token. An encoder-decoder or a prefix LM
    reads the prompt, followed by the token that ended inputs in training, and writes a separate text. A translator
    reads the prompt with the tokenizer of the sources, as in training.

    model: the system for `retable.generation`.
    reader: the tokenizer of prompts.
    continues_prompt: whether the written text continues the prompt.
    end: the id of the token that ends a generated text; None if `stop` is false.

    stop: whether the end token ends a text; otherwise texts end at the maximum length.
    """

    def __init__(self, system: System, tokenizer: Tokenizer, stop: bool = True):
        self._tokenizer, boundary = tokenizer, tokenizer.boundary
        objective = system.objective if isinstance(system, TrainedSystem) else None
        self.continues_prompt = not isinstance(objective, Writing)
        self.reader = tokenizer.source if isinstance(objective, Translation) else tokenizer
        self._before: list[int] = []  # the start mark of sources
        self.model: NextToken
        if not isinstance(objective, Writing):
            self.model, self._mark = next_token(system), boundary
        elif isinstance(objective, Translation):
            start = objective.start_id
            self.model, self._mark = Conditioned(objective, boundary if start is None else start), boundary
            self._before = [] if start is None else [self.reader.words.index(tokenizer.words[start])]
        elif objective.start_id is None:  # without a start token, the decoder's input begins with the boundary token
            self.model, self._mark = Conditioned(objective, boundary), boundary
        else:
            self.model = Conditioned(objective, objective.start_id)
            self._mark = tokenizer.special_ids.get("</s>", [boundary, *tokenizer.encode("\n")][-1])
        self.end = self._mark if stop else None

    def encode(self, prompts: Sequence[str], special_tokens: bool = False) -> list[list[int]]:
        """Return the ids of each prompt, with a start or end token.

        If the written text continues the prompt, the prompt begins with the boundary token. If the system writes a
        separate text, the prompt ends with the token that ended inputs in training.

        special_tokens: read names of special tokens in a prompt as special tokens and not as text.
        """
        rows = self.reader.encode_batch(list(prompts), special=special_tokens)
        if self.continues_prompt:
            return [[self._mark, *row] for row in rows]
        end = self._mark if self.reader is self._tokenizer else self.reader.boundary
        return [[*self._before, *row, end] for row in rows]

    def read(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """Return the written text without the prompt and the end mark.

        Args:
            prompt: ids that `encode` returned.
            written: ids that a decoding strategy returned for the prompt.
        """
        before = list(prompt) if self.continues_prompt else []
        begun, whole = self._tokenizer.decode_batch([before, [*before, *self._unmarked(written)]])
        return whole.removeprefix(begun).strip()

    def whole(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """Return the prompt and the text written after it, or only the text of a system that does not continue prompts.

        Args:
            prompt: ids that `encode` returned.
            written: ids that a decoding strategy returned for the prompt.
        """
        return self._tokenizer.decode([*(prompt[1:] if self.continues_prompt else []), *self._unmarked(written)])

    def _unmarked(self, written: Sequence[int]) -> Sequence[int]:
        return written[:-1] if written and written[-1] == self.end else written


@dataclass
class TaskWriting:
    """The trained objective of a task, as a `TrainedSystem`."""

    objective: Objective
    protocol: str = "each text alone"


def load_writing(cell: Path) -> TaskWriting:
    """Load a system that writes texts, such as a translator, from a task's cell.

    Raises: UsageError: the system writes no texts.
    """
    if not settings.makes(settings.target_of(read_config(cell).get("model"), f"{cell}: model"), EncoderDecoder):
        raise UsageError(f"{cell} writes no texts; use a translator or, with stage=pretrain, a language model")
    *_, objective = load_objective(cell)
    return TaskWriting(objective)
