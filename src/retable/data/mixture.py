"""Batches from a mixture of data sets or corpora (Raffel et al. 2020, section 3.5.2)."""

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

BLOCK = 1024  # number of steps whose data sets are drawn at a time


def proportional(sizes: Sequence[int], limit: float = float("inf"), temperature: float = 1.0) -> np.ndarray:
    """Compute the sampling rate of each data set in a mixture from the sizes of the data sets.

    Each rate is min(size, limit) to the power of 1 / temperature, divided by the sum of these powers. With a
    temperature of 1, rates are proportional to the sizes (up to `limit`); the higher the temperature, the more equal
    the rates.

    Raises: UsageError: the temperature is below 1.
    """
    if temperature < 1:
        raise UsageError(
            f"temperature={temperature} is out of range; write 1 for rates proportional to the sizes, or a larger "
            "number for more equal rates"
        )
    rates = np.minimum(sizes, limit) ** (1 / temperature)
    return rates / rates.sum()


class Mixture:
    """Batches of several data sets (`parts`); each batch comes from one data set.

    The data set of each batch is drawn with the probabilities `rates`. The batches of each data set are used in their
    order, epoch after epoch. No recurrent state can be carried from batch to batch. (Raffel et al. mix the data sets
    within each batch.)

    Raises: UsageError: the rates do not match the parts, or a part carries state between batches.
    """

    def __init__(self, parts: Sequence[Any], rates: Sequence[float], seed: int):
        if len(parts) != len(rates) or min(rates) < 0 or sum(rates) <= 0:
            raise UsageError(
                f"a mixture of {len(parts)} parts has rates {list(rates)}; write one rate of 0 or more per part"
            )
        for part in parts:
            if isinstance(part, CarriedStreams | OppositeStreams | JitteredStreams):
                raise UsageError(
                    f"a mixture breaks the state that {type(part).__name__} carries from batch to batch; write "
                    "retable.data.streams.ShuffledWindows instead"
                )
        self.steps_per_epoch = sum(part.steps_per_epoch for part in parts)
        self._parts, self._rates, self._seed = parts, np.array(rates) / sum(rates), seed
        self.tokens_per_step = float(self._rates @ [part.tokens_per_step for part in parts])
        self._before = [np.zeros(len(parts), dtype=np.int64)]  # number of each part's batches before each block
        self._block = 0, self._drawn(0)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return the rows of process number `rank` of `world`, from the data set that is drawn for the step."""
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
    """Batches from several tokenized corpora that share one tokenizer.

        batches._target_=retable.data.mixture.MixedCorpora
        '+batches.kind={_target_: retable.data.streams.ShuffledWindows, _partial_: true}'
        '+batches.corpora={grammar/bpe: 0.7, ptb/pretrained: 0.3}'

    The same split is read from every corpus, so held-out batches are mixed like training batches. Language models are
    validated only on the text of the run's main corpus. The attribute `inputs` lists the files that are read.

    Args:
        tokens: the run's main corpus, memory-mapped from its folder of the `tokenize` stage. The folders of the other
            corpora, with one token file or shards, are next to that folder. Batches of the main corpus are included
            only if `corpora` lists it.
        kind: a class or function that builds the batches of one corpus. `kind` is called with `settings`, and with each
            of `tokens`, `units`, `line_end`, `marks`, `words`, `vocab_size` and `seed` that the signature of `kind`
            contains.
        corpora: maps `corpus/tokenizer` to its share of the batches. If `corpora` is a list, the share of a corpus is
            proportional to its size to the power of 1 / `temperature`. All batches have the same size.
        temperature: a higher temperature makes the shares more equal, see `corpora`; only allowed if `corpora` is a
            list.

    Raises: UsageError: a corpus is missing or has a different tokenizer, or the weights are invalid.
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
            raise UsageError(
                "temperature has no effect if batches.corpora has weights; write batches.corpora as a list of names"
            )
        if not all(isinstance(weight, int | float) for weight in weights.values()):
            raise UsageError(f"the weights of a mixture must be numbers, but got {weights}")
        facts = {"line_end": line_end, "marks": marks, "words": words, "vocab_size": vocab_size, "seed": seed}
        accepted = inspect.signature(kind).parameters
        self.inputs: list[Path] = []
        parts = []
        for name in corpora:
            folder = own.parent.parent / name
            if require(folder / "tokenizer.json").read_bytes() != (own / "tokenizer.json").read_bytes():
                raise UsageError(
                    f"{folder} has a different tokenizer from {own}; encode its corpus with tokenizer=pretrained "
                    f"tokenizer.train.path={own / 'tokenizer.json'}"
                )
            files = [require(path) for path in stream_files(folder, split)]
            facts["tokens"] = read_stream(files, vocab_size)
            if "units" in accepted:
                files.append(require(folder / f"{split}.units.npy"))
                facts["units"] = np.load(files[-1])
            self.inputs += files
            parts.append(kind(**{name: fact for name, fact in facts.items() if name in accepted}, **settings))
        if not parts:
            raise UsageError("batches.corpora is empty; write batches.corpora={corpus/tokenizer: weight}")
        sizes = [part.steps_per_epoch for part in parts]
        super().__init__(parts, list(weights.values()) or list(proportional(sizes, temperature=temperature)), seed)


def source(tokens: np.memmap) -> tuple[Path, str]:
    """Return the folder of a memory-mapped token file, and the split that the file contains."""
    path = Path(os.path.relpath(str(tokens.filename)))
    return path.parent, path.stem
