"""A cell: one run of a stage, with its settings and the cells that it depends on."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from retable.core.stages import TASK_STAGES, module_of

_CHOSEN = (
    *("corpus", "tokenizer", "recipe", "task", "objective", "trainer", "decoding", "benchmark", "scaling", "device"),
    *("system", "seed", "init", "embedding", "stage", "cell", "cells", "adaptation", "weights"),
)


@dataclass(frozen=True)
class Cell:
    """One run of a stage with `settings`, whose results are written to the folder `outputs/<stage>/<out>`.

    Attributes:
        made_from: the cells whose systems this cell loads, such as `pretrain/ptb/kn5-1`. This cell also depends on the
            configurations of the loaded cells.
        reads: the cells whose files this cell reads.
        corpus, tokenizer: the corpus and the tokenizer of the text that this cell reads, or "" if this cell reads no
            text.
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
        """Return the name of the stage's root config, a file in conf/."""
        return "finetune" if self.stage in TASK_STAGES else self.stage

    @property
    def module(self) -> str:
        return module_of(self.stage)

    @property
    def plan(self) -> str:
        """Return the path of the cell's plan, which contains everything that the cell depends on except input data."""
        return f"outputs/plan/{self.place}.yaml"

    @property
    def short_name(self) -> str:
        """Return the cell's name without the corpus, as in `lstm-1`, and with the task, as in `sentiment-bert-1`.

        The name of a cell of the stage `prepare` is the corpus, as in `ptb`.
        """
        group, _, name = self.out.partition("/")
        if not name:
            return group
        task = self.settings.get("task")
        return name if task is None or name.startswith(f"{task}-") else f"{task}-{name}"

    def choices(self, group: str) -> list[str]:
        """Return the list of the cell's choices for a config group; the list may be empty."""
        return self.settings[group].strip("[]").split(",") if group in self.settings else []

    @property
    def set(self) -> dict[str, str]:
        """Return the cell's settings, except choices of config groups and the settings for systems, seeds and cells."""
        return {key: value for key, value in self.settings.items() if key not in _CHOSEN}

    @property
    def command(self) -> str:
        """Return the shell command with which a user makes the cell."""
        return " ".join([f"python -m {self.module}", *(f"{k}={_quoted(v)}" for k, v in self.settings.items())])


def _quoted(value: str) -> str:
    """Quote a value for a shell; lists and mappings in Hydra's syntax are always quoted."""
    return f"'{value}'" if shlex.quote(value) == value and "," in value else shlex.quote(value)
