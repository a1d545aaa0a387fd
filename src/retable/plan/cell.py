"""A cell: one run of a stage, and where it stands in the graph."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

CHECKPOINT = "hf:"  # of transformers: what `init=` begins with where it names no cell
STAGES = ("prepare", "encode", "embed", "pretrain", "adapt", "mix", "train", "evaluate", "generate", "scaling")

_CHOSEN = (
    *("corpus", "tokenizer", "recipe", "task", "objective", "trainer", "decoding", "benchmark", "device"),
    *("system", "seed", "init", "embedding", "stage", "cell", "cells", "adaptation", "weights"),
)


@dataclass(frozen=True)
class Cell:
    """One run of a stage: `python -m pipelines.<stage>` with `settings`, which leaves `outputs/<stage>/<out>`.

    Attributes:
        made_from: the cells whose systems it loads, as `pretrain/ptb/kn5-1`: their configuration is part of its own.
        reads: files of other cells that it starts from, below `outputs/`.
        corpus, tokenizer: of the text that it reads; empty where it reads none.
    """

    stage: str
    out: str
    settings: Mapping[str, str] = field(default_factory=dict)
    made_from: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    corpus: str = ""
    tokenizer: str = ""

    @property
    def place(self) -> str:
        return f"{self.stage}/{self.out}"

    @property
    def group(self) -> str:
        """What the cell's part of the graph is called: its corpus, or its task where that brings its own data."""
        return self.out.partition("/")[0]

    @property
    def name(self) -> str:
        """Of its stage in that part."""
        return "-".join([self.stage, *self.out.split("/")[1:]])

    def choices(self, group: str) -> list[str]:
        """What it takes of a group of configurations: nothing, one, or several."""
        return self.settings[group].strip("[]").split(",") if group in self.settings else []

    @property
    def set(self) -> dict[str, str]:
        """What it sets beside its recipe and its other choices."""
        return {key: value for key, value in self.settings.items() if key not in _CHOSEN}

    @property
    def command(self) -> str:
        return " ".join([f"python -m pipelines.{self.stage}", *(f"{k}={_quoted(v)}" for k, v in self.settings.items())])


def _quoted(value: str) -> str:
    """For the shell that DVC gives a command to, and with what is a list or a mapping to Hydra in quotes."""
    return f"'{value}'" if shlex.quote(value) == value and "," in value else shlex.quote(value)
