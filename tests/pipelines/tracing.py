"""Runs a stage and notes which of the project's definitions it enters: `python tracing.py FILE MODULE ARGUMENT…`."""

import inspect
import runpy
import sys
from pathlib import Path

entered: set[tuple[str, str]] = set()
file, module, *arguments = sys.argv[1:]


def note(frame, event, argument):
    function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # not the body of a class
    if event == "call" and function and frame.f_code.co_filename != "<string>":  # as a dataclass's methods are made
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("retable", "pipelines", "__main__"):
            entered.add((module if name == "__main__" else name, frame.f_code.co_qualname.partition(".")[0]))


sys.argv = [module, *arguments]
sys.setprofile(note)
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    sys.setprofile(None)
    names = {f"{name} {definition}" for name, definition in entered if not definition.startswith("<")}
    Path(file).write_text("\n".join(sorted(names)), encoding="utf-8")
