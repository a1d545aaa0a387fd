"""Runs a stage and notes which of the project's definitions it enters: `python tracing.py FILE MODULE ARGUMENT…`."""

import inspect
import runpy
import sys
from pathlib import Path
from types import CodeType

OURS = ("retable", "pipelines", "__main__")
seen: dict[int, CodeType] = {}  # by id: the hash of code takes long
entered: set[tuple[str, str]] = set()
file, module, *arguments = sys.argv[1:]
showing: list[CodeType] = []  # the function of a report, which shows what has been made, that the stage is in


def back(frame, event, argument):
    if event == "return":
        showing.pop()
    return back


def note(frame, event, argument):
    """Note a call; returning None asks for no other event of the frame, which keeps the stage fast."""
    code = frame.f_code
    if not showing and frame.f_globals.get("__name__", "").startswith("retable.reporting"):
        showing.append(code)
        return back
    if not showing and id(code) not in seen:
        seen[id(code)] = code
        name = frame.f_globals.get("__name__", "")
        # A function's code is optimized, a class body's is not; a dataclass's methods are made from "<string>".
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
