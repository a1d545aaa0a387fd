"""Refuse environments without the package `retable`, and modules that hide installed packages."""

import os
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path


def require_own_package() -> None:
    """Exit with one line and code 2 if package `retable` is missing, for example because a checkout was moved."""
    found = find_spec("retable")
    if found is None or found.origin is None:  # `origin` is None for a folder `retable` without code
        own = Path(__file__).resolve().parents[2]
        message = f"this environment has no package retable; run `make env` in {own}, then use {own / '.venv/bin'}"
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def refuse_hidden_packages() -> None:
    """Exit with one line and code 2 if a module hides an installed package.

    Folders with package metadata are skipped: somebody installed packages into these folders on purpose.
    """
    own = Path(__file__).resolve().parents[2]
    installed = Path(sysconfig.get_paths()["purelib"])
    on_path = [Path(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    here = [Path.cwd()] if sys.path[0] in ("", os.getcwd()) else []  # `python -m` searches the working folder
    # A folder can hide `retable` or `pipelines` only if Python searches the folder before the package's own folder.
    ours = {"retable": own / "src", "pipelines": own}
    for folder in here + on_path:
        ours = {name: place for name, place in ours.items() if place != folder.resolve()}
        if folder.resolve() in (own, own / "src", installed.resolve()) or not folder.is_dir():
            continue
        if any(folder.glob("*.*-info")):
            continue
        for path in (*folder.glob("*.py"), *(each.parent for each in folder.glob("*/__init__.py"))):
            name = path.stem
            if name in ours or (installed / name).is_dir() or (installed / f"{name}.py").is_file():
                message = f"{path} hides the package {name}; rename it, or take {folder} out of PYTHONPATH"
                print(f"error: {message}", file=sys.stderr)
                sys.exit(2)
