"""Refuses modules of the working folder or of PYTHONPATH that hide packages of the environment."""

import os
import sys
import sysconfig
from pathlib import Path


def refuse_hidden_packages() -> None:
    """End with one line and exit code 2 if a module takes the place of a package.

    A folder with the metadata of packages is one that packages were installed into, and may take their place.
    """
    own = Path(__file__).resolve().parents[2]
    installed = Path(sysconfig.get_paths()["purelib"])
    given = [Path(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    here = [Path.cwd()] if sys.path[0] in ("", os.getcwd()) else []  # of `python -m`
    ours = {"retable": own / "src", "pipelines": own}  # until its folder is searched, another may hide it
    for folder in here + given:
        ours = {name: place for name, place in ours.items() if place != folder.resolve()}
        if folder.resolve() in (own, own / "src", installed.resolve()) or not folder.is_dir():
            continue
        if any(folder.glob("*.*-info")):
            continue
        for path in (*folder.glob("*.py"), *(each.parent for each in folder.glob("*/__init__.py"))):
            name = path.stem
            if name in ours or (installed / name).is_dir() or (installed / f"{name}.py").is_file():
                said = f"{path} hides the package {name}; rename it, or take {folder} out of PYTHONPATH"
                print(f"error: {said}", file=sys.stderr)
                sys.exit(2)
