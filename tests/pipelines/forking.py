"""Runs modules as `python -m` would, and files as `python` would, each in a fork of a process that has the libraries
imported: their import, seconds of each stage's start, is done once.

A job is a line of JSON on stdin; the exit code comes back as a line, below 0 for a signal, as `subprocess` has it.
"""

import gc
import importlib
import json
import os
import runpy
import sys

# What the stages import of others, and the parts that come in late; none of the project's own code.
LIBRARIES = [
    "hydra",
    "lightning",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.tracking",
    "pandas",
    "scipy.stats",
    "tokenizers",
    "torch",
]


def become(module: str, arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Run `module`, a name or a file's path, with `arguments` in `folder`; what it prints goes into the files `out` and
    `err`."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, flags)
        os.dup2(opened, stream)
        os.close(opened)
    sys.argv = [module, *arguments]  # the first is replaced by the module's file
    if module.endswith(".py"):
        sys.path[0] = os.path.dirname(module)
        runpy.run_path(module, run_name="__main__")
    else:
        sys.path[0] = folder
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def serve() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # or every fork goes through all of it, and copies it, when it ends: two seconds
    for line in sys.stdin:
        if pid := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        else:
            return become(**json.loads(line))


if __name__ == "__main__":
    serve()
