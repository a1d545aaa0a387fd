"""Run a stage and record which of the project's definitions it enters: `python tracing.py FILE MODULE ARGUMENT…`."""

import inspect
import runpy
import sys
from pathlib import Path
from types import CodeType

OURS = ("retable", "pipelines", "__main__")
seen: dict[int, CodeType] = {}  # by id, because hashing code takes long
entered: set[tuple[str, str]] = set()
file, module, *arguments = sys.argv[1:]
showing: list[CodeType] = []  # the function that shows results and in which the stage is now


def back(frame, event, argument):
    if event == "return":
        showing.pop()
    return back


def note(frame, event, argument):
    """Record a call. It returns None, so there are no other events of the frame, which keeps the stage fast."""
    code = frame.f_code
    if not showing and frame.f_globals.get("__name__", "").startswith("retable.reporting"):
        showing.append(code)
        return back
    if not showing and id(code) not in seen:
        seen[id(code)] = code
        name = frame.f_globals.get("__name__", "")
        # The code of a function is optimized, that of a class body is not; methods of dataclasses come from "<string>".
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename != "<string>" and name.startswith(OURS):
            entered.add((module if name == "__main__" else name, code.co_qualname.partition(".")[0]))
    return None


sys.argv = [module, *arguments]
sys.settrace(note)
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    sys.settrace(None)
    names = {f"{name} {definition}" for name, definition in entered if not definition.startswith("<")}
    Path(file).write_text("\n".join(sorted(names)), encoding="utf-8")
