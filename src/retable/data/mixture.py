"""Training on several data sets at once (Raffel et al. 2020, section 3.5.2)."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.data.shards import read_stream, stream_files
from retable.data.streams import CarriedStreams, JitteredStreams, OppositeStreams

BLOCK = 1024  # steps whose parts are drawn together


def proportional(sizes: Sequence[int], limit: float = float("inf"), temperature: float = 1.0) -> np.ndarray:
    """Each data set's rate of examples: as their numbers `sizes`, of which at most `limit` count, to the power of
    1 / temperature. At 1 they are examples-proportional, in the limit equal."""
    if temperature < 1:
        raise UsageError(f"temperature={temperature} can't be; write 1 for rates as sizes, or more for more even ones")
    rates = np.minimum(sizes, limit) ** (1 / temperature)
    return rates / rates.sum()


class Mixture:
    """Batches of several `parts`, each batch of one of them, drawn with `rates`. (The authors mix within batches.)

    A part goes through its own batches in their order, epoch after epoch of its own. No state can be carried from one
    batch to the next.
    """

    def __init__(self, parts: Sequence[Any], rates: Sequence[float], seed: int):
        if len(parts) != len(rates) or min(rates) < 0 or sum(rates) <= 0:
            raise UsageError(f"a mixture of {len(parts)} parts has rates {list(rates)}; give one of 0 or more to each")
        for part in parts:
            if isinstance(part, CarriedStreams | OppositeStreams | JitteredStreams):
                raise UsageError(
                    f"a mixture breaks the state that {type(part).__name__} carries from batch to batch; write "
                    "retable.data.streams.ShuffledWindows in its place"
                )
        self.steps_per_epoch = sum(part.steps_per_epoch for part in parts)
        self._parts, self._rates, self._seed = parts, np.array(rates) / sum(rates), seed
        self.tokens_per_step = float(self._rates @ [part.tokens_per_step for part in parts])
        self._before = [np.zeros(len(parts), dtype=np.int64)]  # how many batches each part gave before each block
        self._block = 0, self._drawn(0)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """The batch of the part whose turn it is, for process `rank` of `world`."""
        block, place = divmod(step, BLOCK)
        while len(self._before) <= block:
            drawn = self._drawn(len(self._before) - 1)
            self._before.append(self._before[-1] + np.bincount(drawn, minlength=len(self._parts)))
        if self._block[0] != block:
            self._block = block, self._drawn(block)
        drawn = self._block[1]
        part = drawn[place]
        its_step = self._before[block][part] + np.count_nonzero(drawn[:place] == part)
        return self._parts[part].batch(int(its_step), rank, world)

    def _drawn(self, block: int) -> np.ndarray:
        rng = np.random.default_rng((self._seed, block))
        return rng.choice(len(self._parts), size=BLOCK, p=self._rates)


class MixedCorpora(Mixture):
    """Batches of one kind from several tokenized corpora, all with one tokenizer:

        batches._target_=retable.data.mixture.MixedCorpora
        '+batches.kind={_target_: retable.data.streams.ShuffledWindows, _partial_: true}'
        '+batches.corpora={grammar/bpe: 0.7, ptb/pretrained: 0.3}'

    `tokens` are those of the run's own corpus, memory-mapped in its folder of the stage tokenize; the others' lie in
    folders beside that one, in one file or in shards, and it is among the mixed where `corpora` names it. Of each the
    same split is read, so that held-out batches are mixed as the training's; language models are validated on the text
    of the run's own corpus alone. `corpora` are weights by corpus/tokenizer; or else a list, whose weights are the
    corpora's sizes to the power of 1 / `temperature`. A weight is a share of the batches, which are of one size.

    `kind` makes the batches of each from what it asks for, as a recipe's own batches do, and from `settings`. `inputs`
    are the files that are read.
    """

    def __init__(
        self,
        tokens: np.memmap,
        line_end: int,
        marks: Mapping[str, int],
        words: Sequence[str],
        vocab_size: PositiveInt,
        seed: Seed,
        kind: Callable[..., Any],
        corpora: Mapping[str, Positive] | Sequence[str],
        temperature: Positive = 1.0,
        **settings: Any,
    ):
        own, split = source(tokens)
        weights = dict(corpora) if isinstance(corpora, Mapping) else {}
        if weights and temperature != 1:
            raise UsageError("a mixture takes its weights as they are; write a list of corpora with a temperature")
        if not all(isinstance(weight, int | float) for weight in weights.values()):
            raise UsageError(f"a mixture's weights are numbers, which {weights} are not")
        facts = {"line_end": line_end, "marks": marks, "words": words, "vocab_size": vocab_size, "seed": seed}
        asked = inspect.signature(kind).parameters
        self.inputs: list[Path] = []
        parts = []
        for name in corpora:
            folder = own.parent.parent / name
            if require(folder / "tokenizer.json").read_bytes() != (own / "tokenizer.json").read_bytes():
                raise UsageError(
                    f"{folder} has another tokenizer than {own}; encode its corpus with tokenizer=pretrained "
                    f"tokenizer.train.path={own / 'tokenizer.json'}"
                )
            files = [require(path) for path in stream_files(folder, split)]
            facts["tokens"] = read_stream(files, vocab_size)
            if "units" in asked:
                files.append(require(folder / f"{split}.units.npy"))
                facts["units"] = np.load(files[-1])
            self.inputs += files
            parts.append(kind(**{name: fact for name, fact in facts.items() if name in asked}, **settings))
        if not parts:
            raise UsageError("a mixture of no corpora has no batches; write batches.corpora={corpus/tokenizer: weight}")
        sizes = [part.steps_per_epoch for part in parts]
        super().__init__(parts, list(weights.values()) or list(proportional(sizes, temperature=temperature)), seed)


def source(tokens: np.memmap) -> tuple[Path, str]:
    """The folder of the stage tokenize that `tokens` are memory-mapped in, and the split that they are of."""
    path = Path(os.path.relpath(str(tokens.filename)))
    return path.parent, path.stem
