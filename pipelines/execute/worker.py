"""Run a part of a stage's work in a separate process: `python -m pipelines.execute.worker FUNCTION ARGUMENT…`."""

import importlib
import sys

from pipelines.config.errors import one_line_errors
from retable.training.signals import listen


def main() -> None:
    name, *arguments = sys.argv[1:]
    module, _, function = name.rpartition(".")
    listen()
    with one_line_errors():
        getattr(importlib.import_module(module), function)(*arguments)


if __name__ == "__main__":
    main()
