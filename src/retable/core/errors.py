"""The exception for mistakes of users, the class of warnings, and helpers for messages."""

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from os import PathLike
from types import FrameType
from typing import Any

_LONGEST = 800  # largest number of characters of a message, since a message may quote megabytes of text from a file


class UsageError(Exception):
    """A mistake of the user.

    The message is one line with the mistake, its place, and the correction to write. The stages in `pipelines/` print
    the message without a traceback and exit with code 2. Characters that are not printable are escaped. The middle of a
    message with more than 800 characters is cut out.
    """

    def __str__(self) -> str:
        line = " ".join(super().__str__().split())
        line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"


class TextError(UsageError):
    """An error in a text whose file and line are unknown.

    `retable.tasks.table.placed` adds the file and line to the message.

    text: the whole text.
    part: the faulty part of the text, as it is written in the file.
    """

    def __init__(self, message: str, text: str, part: str):
        super().__init__(message)
        self.text, self.part = text, part


class UsageWarning(UserWarning):
    """A fact about the input that changes a result, such as a word unknown to the tokenizer."""


def warn(message: str) -> None:
    """Issue a UsageWarning at the line of the user's code that called this package.

    Python shows the same warning only once for each line of code.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("retable", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UsageWarning, stacklevel=level)


def show_warnings_in_one_line() -> None:
    """Print every UsageWarning to stderr in one line, without its location in the code."""
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
    """Add the path of a file to the errors that are raised inside the block.

    Exceptions of `kinds`, which a library raises for a damaged file, are converted to UsageErrors. The path is added to
    the beginning of a UsageError's message, unless the message already contains the path.
    """
    try:
        yield
    except UsageError as error:
        if str(path) in str(error):
            raise
        raise UsageError(f"{path}: {error}") from None
    except kinds as error:
        raise UsageError(f"{path} cannot be read: {str(error) or type(error).__name__}") from None


def require_file(path: str | PathLike[str], missing: str = "") -> None:
    """Raise UsageError if a path does not exist, or is a folder, pipe or device.

    missing: advice for a file that does not exist; the default advice is to set the folder of data sets.
    """
    if os.path.isdir(path):
        raise UsageError(f"{path} is a folder; write the path of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is a pipe or a device; write the path of a file")
    if not os.path.exists(path):
        missing = missing or "set RETABLE_DATA to the folder of data sets, run `retable fetch`, or put the file there"
        raise UsageError(f"{path} does not exist; {missing}")


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that resemble `name`, ignoring case.

    The result is all known names that begin with `name`. If there are no such names, the result is the most similar
    name. If no name is similar enough, the result is all names that contain `name` or are contained in `name`.

    Args:
        known: names to compare with.
    """
    folded, query = {each.casefold(): each for each in known}, str(name).casefold()
    if len(query) > 2 and (starting := [each for key, each in folded.items() if key.startswith(query)]):
        return starting
    if similar := get_close_matches(query, folded, n=1, cutoff=0.5):
        return [folded[similar[0]]]
    return [each for key, each in folded.items() if min(len(key), len(query)) > 2 and (query in key or key in query)]


def closest(name: str, known: Iterable[str]) -> str:
    """Return advice for an unknown name: to write one of at most three similar names, or any known name.

    Args:
        known: names to compare with.
    """
    known = list(known)
    if similar := near(name, known):
        return f"write {' or '.join(similar[:3])}"
    return f"write one of {', '.join(known)}"
