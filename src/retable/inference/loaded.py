"""The base class of loaded systems, and warnings about their inputs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from retable.core.artifacts import read_json
from retable.core.errors import warn
from retable.corpora.text import with_line_feeds
from retable.inference.systems import read_config
from retable.tokenizers.report import unknown_in
from retable.tokenizers.tokenizer import Tokenizer


class Loaded:
    """A trained system loaded from its cell.

    folder: the cell's folder.
    config: the cell's resolved settings.
    metrics: the contents of the cell's `metrics.json`.
    device: the device of the weights.
    """

    def __init__(self, folder: Path, module: nn.Module | None = None):
        self.folder, self.config, self._module = folder, read_config(folder), module
        if module is not None:
            module.eval()

    @property
    def name(self) -> str:
        """The cell's name, such as `gpt-1`."""
        return self.folder.name

    @property
    def metrics(self) -> dict[str, float]:
        return read_json(self.folder / "metrics.json")

    @property
    def can(self) -> tuple[str, ...]:
        """The names of the methods that this system supports."""
        return tuple(name for name in vars(type(self)) if not name.startswith("_") and name not in _NOT_ASKED)

    @property
    def device(self) -> torch.device:
        weights = None if self._module is None else next(self._module.parameters(), None)
        return torch.device("cpu") if weights is None else weights.device

    def to(self, device: str | torch.device) -> Self:
        """Move the weights to a device, such as `cuda`. Counted models stay on the CPU."""
        if self._module is not None:
            self._module.to(device)
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {', '.join(self.can)}>"


_NOT_ASKED = ("can", "tokenizer")


def warn_of_unknown(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Warn about the words in `texts` that the tokenizer does not know, and list them."""
    if unknown := unknown_in(tokenizer, texts):
        warn(unknown)


def warn_of_cut(n_cut: int, n_texts: int, limit: str) -> None:
    """Warn that `n_cut` of `n_texts` texts were cut at the end.

    Args:
        limit: the limit as the warning shows it, such as "max_length=128".
    """
    if n_cut:
        warn(f"{n_cut:,} of {n_texts:,} texts have more tokens than {limit}, and were cut at the end")


def listed(value: Any) -> list[Any]:
    """Return one text, several texts or pairs of texts as a list, with line ends as in `with_line_feeds`."""
    return [_as_read(each) for each in ([value] if isinstance(value, str) else value)]


def _as_read(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_as_read, value))
    return with_line_feeds(value) if isinstance(value, str) else value
