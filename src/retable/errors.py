"""The one exception for mistakes of use."""

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(Exception):
    """A mistake in what was asked or given: one line that says what was wrong, where, and what to write instead.

    The stages under `pipelines/` print the message alone, without a traceback, and end with exit code 2.
    """


def closest(name: str, known: Iterable[str]) -> str:
    """What to write in place of a name that is not known."""
    known = list(known)
    near = get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"write {near[0]}" if near else f"write one of {', '.join(known)}"
