"""Translations ("… =") and summaries ("… TL;DR:") that a language model writes after a prompt.

The method follows Radford et al. 2019, sections 3.6 and 3.7.

System H1 of docs/systems.yaml.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, PositiveInt, Seed
from retable.core.systems import System
from retable.evaluation.scoring import Scorer
from retable.metrics.translation import STATISTICS
from retable.metrics.units import Measured
from retable.tokenizers.tokenizer import Tokenizer

Written = Sequence[tuple[str, str]]  # pairs of an input text and its reference


class Texts(Protocol):
    """A source of input texts with references, such as translations or summaries.

    Attributes:
        kind: name of the task, which is part of the names of its metrics.
        inputs: the files that the texts depend on.
        metrics: names of the metrics.
    """

    kind: str
    inputs: list[Path]
    metrics: Sequence[str]

    def read(self, split: str) -> Written: ...

    def scores(self, written: Sequence[str], right: Sequence[str]) -> Mapping[str, NDArray]:
        """Return columns for `units.csv`: each text's contributions to the metrics, such as n-gram counts."""
        ...


class PromptedWriting(Measured):
    """A benchmark of texts that a language model writes after a prompt. A unit is a text.

    Args:
        tokens: the folder with the tokenizer that the system was trained with.
        template: the prompt, in which {text} stands for the input text. After the prompt and a space, the model writes
            greedily up to the end of the line.
        shots: number of training examples before each input, one per line, each with its reference. A random generator
            with the seed (`seed`, number of the text) draws the examples.
        max_new_tokens: maximum number of tokens that the model writes.
        convention: see `Scorer`; it is applied to the whole prompt.

    `inputs` lists the files that the scores depend on.
    """

    requires = System  # `Scorer` rejects systems that are not language models
    statistics: ClassVar = STATISTICS

    def __init__(
        self,
        tokens: str,
        texts: Texts,
        template: str,
        split: Literal["validation", "test"] = "test",
        shots: NonNegativeInt = 0,
        seed: Seed = 1,
        max_new_tokens: PositiveInt = 100,
        convention: Callable[[str], str] | None = None,
    ):
        if "{text}" not in template:
            raise UsageError(f"template={template!r} does not contain the input; write {{text}} in it")
        self.inputs = [Path(tokens, "tokenizer.json"), *texts.inputs]
        self._texts, self._template, self._split, self._shots, self._seed = texts, template, split, shots, seed
        self._max_new_tokens, self._convention = max_new_tokens, convention

    def __call__(self, system: System, folder: Path) -> dict[str, float]:
        """Write `units.csv` with one row per text, and return the metrics.

        Columns: split, unit, the written text, and the text's contributions to the metrics.

        Returns: `written_<kind>_<shots>/<split>/<metric>` for each metric of the texts.
        """
        texts = self._texts.read(self._split)
        tokenizer = Tokenizer.load(self.inputs[0])
        scorer = Scorer(system, tokenizer, self._convention)
        shown, asked = zip(*self.prompts(texts), strict=True)
        examples = [chain(*scorer.encode_lines(lines, end=True)) for lines in shown]
        contexts = [[*some, *ids] for some, ids in zip(examples, scorer.encode_lines(asked, end=False), strict=True)]
        continuations = scorer.continue_greedily(contexts, self._max_new_tokens)
        end = [tokenizer.boundary, *tokenizer.encode("\n")][-1]
        lines = tokenizer.decode_batch([ids[: ids.index(end)] if end in ids else ids for ids in continuations])
        # a generated token may contain a line end and further text; this further text is removed
        written = [" ".join(line.partition("\n")[0].split()) for line in lines]
        scores = self._texts.scores(written, [right for _, right in texts])
        units = pd.DataFrame({"split": self._split, "unit": range(len(texts)), "written": written, **scores})
        units.to_csv(folder / "units.csv", index=False, lineterminator="\n")
        task = f"written_{self._texts.kind}_{self._shots}"
        return {
            f"{task}/{self._split}/{name}": value for name, value in self.values(units, self._texts.metrics).items()
        }

    def prompts(self, texts: Written) -> list[tuple[list[str], str]]:
        """Return, for each text, the lines of its examples, and the prompt that contains the text."""
        pool = self._texts.read("train") if self._shots else []
        if len(pool) < self._shots:
            raise UsageError(
                f"shots={self._shots}, but there are {len(pool)} training texts; write shots={len(pool)} or fewer"
            )
        prompts = []
        for number, (text, _) in enumerate(texts):
            drawn = np.random.default_rng((self._seed, number)).choice(len(pool), self._shots, replace=False)
            prompts.append(
                ([f"{self._filled(pool[place][0])} {pool[place][1]}" for place in drawn], self._filled(text))
            )
        return prompts

    def _filled(self, text: str) -> str:
        return self._template.replace("{text}", text)

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        """Return values that identify the texts; for translations, the references' lengths."""
        return tuple(units["bleu_reference"]) if "bleu_reference" in units else super().text(units)
