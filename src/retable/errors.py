"""The one exception for mistakes of use."""


class UsageError(Exception):
    """A mistake in what was asked or given: one line that says what was wrong, where, and what to write instead.

    The stages under `pipelines/` print the message alone, without a traceback, and end with exit code 2.
    """
