"""A cell: one run of a stage, and where it stands in the graph."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from retable.core.stages import TASK_STAGES, module_of

CHECKPOINT = "hf:"  # of transformers: what `init=` begins with where it names no cell
_CHOSEN = (
    *("corpus", "tokenizer", "recipe", "task", "objective", "trainer", "decoding", "benchmark", "device"),
    *("system", "seed", "init", "embedding", "stage", "cell", "cells", "adaptation", "weights"),
)


@dataclass(frozen=True)
class Cell:
    """One run of a stage with `settings`, whose results go to the folder `outputs/<stage>/<out>`.

    Attributes:
        made_from: the cells whose systems it loads, such as `pretrain/ptb/kn5-1`: their configuration is part of its
            own.
        reads: the cells that it reads files of.
        corpus, tokenizer: of the text that it reads; empty if it reads none.
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
    def root_config(self) -> str:
        """The file of conf/ that its command begins with."""
        return "finetune" if self.stage in TASK_STAGES else self.stage

    @property
    def module(self) -> str:
        return module_of(self.stage)

    @property
    def plan(self) -> str:
        """The file with all that the cell depends on besides the data that it reads."""
        return f"outputs/plan/{self.place}.yaml"

    @property
    def short_name(self) -> str:
        """Its name in a study without its corpus: `lstm-1`, of a task `sentiment-bert-1`, of a corpus `ptb`."""
        group, _, name = self.out.partition("/")
        if not name:
            return group
        task = self.settings.get("task")
        return name if task is None or name.startswith(f"{task}-") else f"{task}-{name}"

    def choices(self, group: str) -> list[str]:
        """What it takes of a group of configurations: nothing, one, or several."""
        return self.settings[group].strip("[]").split(",") if group in self.settings else []

    @property
    def set(self) -> dict[str, str]:
        """What it sets beside its recipe and its other choices."""
        return {key: value for key, value in self.settings.items() if key not in _CHOSEN}

    @property
    def command(self) -> str:
        """The command that makes the cell by hand."""
        return " ".join([f"python -m {self.module}", *(f"{k}={_quoted(v)}" for k, v in self.settings.items())])


def _quoted(value: str) -> str:
    """For a shell, and with what is a list or a mapping to Hydra in quotes."""
    return f"'{value}'" if shlex.quote(value) == value and "," in value else shlex.quote(value)
