"""The one exception for mistakes of use."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from os import PathLike
from types import FrameType
from typing import Any

_LONGEST = 800  # letters of a message; a file's own words, which it may quote, can be megabytes


class UsageError(Exception):
    """A mistake in what was asked or given: one line that says what was wrong, where, and what to write instead.

    The stages under `pipelines/` print the message alone, without a traceback, and end with exit code 2. Whatever the
    message quotes, it is one line of printable letters, of a long one beginning and end.
    """

    def __str__(self) -> str:
        said = " ".join(super().__str__().split())
        said = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in said)
        return said if len(said) <= _LONGEST else f"{said[: _LONGEST // 2]} … {said[-_LONGEST // 2 :]}"


class TextError(UsageError):
    """A text that can't be read. Its file is not known here; `retable.tasks.table.placed` finds its line.

    text: the whole text.
    part: what is wrong in it, as a file may contain it.
    """

    def __init__(self, message: str, text: str, part: str):
        super().__init__(message)
        self.text, self.part = text, part


class UsageWarning(UserWarning):
    """A fact about the input that changes a result, such as a word that a tokenizer does not know."""


def warn(message: str) -> None:
    """Warn once for each line of a user's code, whatever of this package and of torch is called in between."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("retable", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UsageWarning, stacklevel=level)


def show_warnings_in_one_line() -> None:
    """Have a UsageWarning printed whenever it comes, as one line without the place in the code."""
    show = warnings.showwarning

    def in_one_line(message: Warning | str, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
        if issubclass(category, UsageWarning):
            print(message, file=sys.stderr)
        else:
            show(message, category, filename, lineno, *more)

    warnings.simplefilter("always", UsageWarning)
    warnings.showwarning = in_one_line  # type: ignore[assignment]


@contextlib.contextmanager
def reading(path: str | PathLike[str], *kinds: type[Exception]) -> Iterator[None]:
    """Have what is raised in the block name the file that is read: errors of these kinds, which a library raises for a
    damaged one, and a UsageError that does not yet."""
    try:
        yield
    except UsageError as error:
        if str(path) in str(error):
            raise
        raise UsageError(f"{path}: {error}") from None
    except kinds as error:
        raise UsageError(f"{path} can't be read: {str(error) or type(error).__name__}") from None


def require_file(path: str | PathLike[str], missing: str = "") -> None:
    """Raise UsageError for what is not a file with contents: a folder, a pipe, a device, or nothing.

    missing: what to do about a file that does not exist; by default how data sets are found.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; write the path of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is a pipe or a device; write the path of a file")
    if not os.path.exists(path):
        missing = missing or "set RETABLE_DATA to the folder of data sets, or put the file there"
        raise UsageError(f"{path} does not exist; {missing}")


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names like this one, whatever the case: those that begin with it, the most similar one, or those
    that one is a part of."""
    folded, asked = {each.casefold(): each for each in known}, str(name).casefold()
    if len(asked) > 2 and (begun := [each for key, each in folded.items() if key.startswith(asked)]):
        return begun
    if similar := get_close_matches(asked, folded, n=1, cutoff=0.5):
        return [folded[similar[0]]]
    return [each for key, each in folded.items() if min(len(key), len(asked)) > 2 and (asked in key or key in asked)]


def closest(name: str, known: Iterable[str]) -> str:
    """What to write in place of a name that is not known."""
    known = list(known)
    if found := near(name, known):
        return f"write {' or '.join(found[:3])}"
    return f"write one of {', '.join(known)}"
