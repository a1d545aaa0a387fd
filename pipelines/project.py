"""A project: the folder that studies are made in, with the configurations and what DVC needs.

That is the checkout. Of an installed package it is a folder of the user's, made from the package's template; code stays
where it is installed, and a file of the project stands for it, so that DVC sees when it changes.
"""

import shutil
import sys
from pathlib import Path

import retable
from retable.digests import digest, digest_of
from retable.errors import UsageError
from retable.plan.conf import Conf
from retable.plan.graph import CHECKOUT, Sources

CODE = {"pipelines": Path(__file__).parent, "retable": Path(retable.__file__).parent}
TEMPLATE = Path(__file__).with_name("template")  # the wheel has it; in the checkout its parts are the folder's own
INSTALLED = Path("installed.yaml")
SOURCES = Sources(("conf", str(INSTALLED)), (str(INSTALLED),), "retable graph") if TEMPLATE.exists() else CHECKOUT


def make(study: str | None = None) -> None:
    """Make a project in the working folder, for a study or one to come, if the package is installed and none is there.

    To be called before the configurations are looked for, which are then the project's. UsageError where there is no
    such study, or where the folder has something that the project would take the place of.
    """
    if not TEMPLATE.exists() or Path("conf/study").is_dir():
        return
    if study is not None:
        Conf(TEMPLATE / "conf").require("study", study, "retable repro")
    if project := next((folder for folder in Path.cwd().parents if (folder / INSTALLED).exists()), None):
        raise UsageError(f"{Path.cwd()} is in the project {project}; give the command there")
    brought = sorted(path.name for path in TEMPLATE.iterdir())
    if taken := [name for name in [*brought, "dvc.yaml", "graph"] if Path(name).exists()]:
        raise UsageError(
            f"{Path.cwd()} is no project of ours, and its {', '.join(taken)} would be in the way of one; "
            "give the command in an empty folder"
        )
    for path in sorted(TEMPLATE.iterdir()):
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, path.name)
    if not any((folder / ".git").exists() for folder in (Path.cwd(), *Path.cwd().parents)):
        from dvc.config import Config

        with Config(".dvc").edit() as config:
            config["core"]["no_scm"] = True
    print(f"{Path.cwd()} is a project now: conf/ is yours to edit, the rest is DVC's", file=sys.stderr)


def renew() -> None:
    """Have the project's file say which code is installed; in the checkout there is none."""
    if not TEMPLATE.exists():
        return
    files = {
        f"{package}/{path.relative_to(folder)}": digest(path)
        for package, folder in CODE.items()
        for path in folder.rglob("*")
        if path.is_file() and not _of_the_machine(path) and TEMPLATE not in path.parents
    }
    text = f"# The installed code, for DVC: `retable repro` writes it.\nversion: {retable.__version__}\n"
    text += f"digest: {digest_of(files)}\n"
    if not INSTALLED.exists() or INSTALLED.read_text(encoding="utf-8") != text:
        INSTALLED.write_text(text, encoding="utf-8")


def _of_the_machine(path: Path) -> bool:
    """Whether it is compiled, by setuptools or by who imports it."""
    return path.suffix == ".so" or path.parent.name == "__pycache__"
