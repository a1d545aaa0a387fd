"""Progress of a study or a sweep: a line for each finished stage and, in a terminal, a bar for each running stage."""

import re
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


class Shown(Protocol):
    """A stage or job: its name, its unique address, and the file to which it writes its progress (`step/steps`)."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def steps(self) -> Path: ...


class StudyProgress:
    """The display of a study's or sweep's progress: lines for finished and, in a terminal, bars for running stages."""

    def __init__(self, what: str, total: int, console: Console):
        columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}")]
        self._bars = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True,
            disable=not console.is_terminal, refresh_per_second=4,
        )  # fmt: skip
        self._total, self._ended = total, 0
        self._study = self._bars.add_task(what, total=total, figures=f"stage 0 of {total}")
        self._stages: dict[str, tuple[Path, TaskID]] = {}  # the progress file and the bar of each running stage
        self._lock = Lock()  # a sweep's jobs begin and end in separate threads

    def __enter__(self) -> "StudyProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bars.stop()

    def drops_to(self, waiting: int) -> None:
        """Reduce the displayed total to the number of finished stages plus `waiting`."""
        with self._lock:
            self._total = self._ended + waiting
            self._bars.update(self._study, total=self._total)

    def begins(self, stage: Shown) -> None:
        with self._lock:
            stage.steps.unlink(missing_ok=True)
            task = self._bars.add_task(f"  {stage.name}", total=None, figures="")
            self._stages[stage.address] = stage.steps, task

    def refresh(self) -> None:
        with self._lock:
            for steps, task in self._stages.values():
                if steps.exists() and (match := re.fullmatch(r"(\d+)/(\d+)", steps.read_text(encoding="utf-8"))):
                    at, of = map(int, match.groups())
                    self._bars.update(task, completed=at, total=of, figures=f"step {at} of {of}")

    def ends(self, stage: Shown, seconds: float, remark: str) -> None:
        with self._lock:
            self._ended += 1
            steps, task = self._stages.pop(stage.address)
            steps.unlink(missing_ok=True)
            self._bars.remove_task(task)
            self._bars.update(self._study, completed=self._ended, figures=f"stage {self._ended} of {self._total}")
            width = len(str(self._total))
            line = f"[{self._ended:>{width}}/{self._total}] {seconds:6.1f} s  {stage.name}"
            self._bars.console.print(Text(f"{line}  {remark}".rstrip()))
