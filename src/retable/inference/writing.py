"""How texts are given to a system that writes, and how what it wrote is read: of language models of any kind, T5s and
prefix LMs, and translators."""

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
from retable.tokenizers.tokenizer import Tokenizer


class Writer:
    """A system behind the interface of decoding, with its tokenizer.

    A language model goes on from a prompt, which stands behind the mark that begins a stream. An encoder-decoder or a
    prefix LM reads it, with the mark that ended the inputs in training, and writes a text of its own.

    model: as decoding knows it. goes_on: whether what it writes continues the prompt. end: the token that ends that,
    None where with `stop` false nothing does.
    """

    def __init__(self, system: System, tokenizer: Tokenizer, stop: bool = True):
        self._tokenizer, boundary = tokenizer, tokenizer.boundary
        objective = system.objective if isinstance(system, TrainedSystem) else None
        self.goes_on = not isinstance(objective, Writing)
        self.model: NextToken
        if not isinstance(objective, Writing):
            self.model, self._mark = next_token(system), boundary
        elif objective.start_id is None:  # a decoder that begins with the mark that it ends with
            self.model, self._mark = Conditioned(objective, boundary), boundary
        else:
            self.model = Conditioned(objective, objective.start_id)
            self._mark = tokenizer.special_ids.get("</s>", [boundary, *tokenizer.encode("\n")][-1])
        self.end = self._mark if stop else None

    def encode(self, prompts: Sequence[str], special_tokens: bool = False) -> list[list[int]]:
        """The ids of each prompt, with its mark. With `special_tokens` the names of such in it are not read as text."""
        rows = self._tokenizer.encode_batch(list(prompts), special=special_tokens)
        return [[self._mark, *row] if self.goes_on else [*row, self._mark] for row in rows]

    def read(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """What was written after a prompt, without the mark of its end."""
        before = list(prompt) if self.goes_on else []
        begun, whole = self._tokenizer.decode_batch([before, [*before, *self._unmarked(written)]])
        return whole.removeprefix(begun).strip()

    def whole(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """The same with the prompt, where it goes on from that."""
        return self._tokenizer.decode([*(prompt[1:] if self.goes_on else []), *self._unmarked(written)])

    def _unmarked(self, written: Sequence[int]) -> Sequence[int]:
        return written[:-1] if written and written[-1] == self.end else written


@dataclass
class TaskWriting:
    """A task's trained objective as a system."""

    objective: Objective
    protocol: str = "each text alone"


def load_writing(cell: Path) -> TaskWriting:
    """The system of a task's cell that writes texts, such as a translator. UsageError for another."""
    if not settings.makes(settings.target_of(read_config(cell).get("model"), f"{cell}: model"), EncoderDecoder):
        raise UsageError(f"{cell} writes no texts; take a translator or, of stage=pretrain, a language model")
    *_, objective = load_objective(cell)
    return TaskWriting(objective)
