"""Folders of studies, configurations and code, in the checkout or in a user's own study.

A study is a folder with a file `study.yaml` and a DVC project. The checkout's studies are in `studies/`. The default
study's DVC files are at the top of the checkout, so that `dvc repro` at the top runs this study. A user's study may be
in any folder, whether Retable runs from the checkout or from the installed package. Files in the study's folder `conf/`
take precedence over files of the same name in the project's `conf/`.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pipelines
import retable
from pipelines.config import environment
from retable.core import trust
from retable.core.artifacts import project_folder
from retable.core.errors import UsageError, closest

CODE = {"pipelines": Path(pipelines.__file__).parent, "retable": Path(retable.__file__).parent}
TEMPLATE = CODE["pipelines"] / "template"  # exists in the wheel only; contains conf, studies and DVC files
CHECKOUT = None if TEMPLATE.exists() else CODE["pipelines"].parent
CONF = (CHECKOUT or TEMPLATE) / "conf"
STUDIES = (CHECKOUT or TEMPLATE) / "studies"
DEFAULT = "history"
STUDY = "study.yaml"
CODE_LINKS = "code"  # folder in a study's folder, with links to the code that the study's plans depend on


def require_own_checkout() -> None:
    """Raise UsageError if the working folder is in a checkout (a copy or clone) whose code is not the running code."""
    project_folder()  # raises UsageError if DVC_ROOT is not a folder
    code = {"pipelines": Path("pipelines"), "retable": Path("src/retable")}
    for folder in (Path.cwd(), *Path.cwd().parents):
        if not all((folder / path / "__init__.py").exists() for path in code.values()):
            continue
        for package, path in code.items():
            if CODE[package].resolve() != (folder / path).resolve():
                raise UsageError(
                    f"this environment runs the code in {CODE[package]}, but this folder is in the checkout {folder}; "
                    f"run `make env` in {folder}, then use the commands in {folder / '.venv/bin'}"
                )


def require_project_folder() -> None:
    """Raise UsageError in a subfolder of a project, since paths of cells are relative to the project's folder."""
    here = Path.cwd()
    if here == CHECKOUT or (here / STUDY).exists() or (here / "outputs").exists():
        return
    for folder in here.parents:
        if folder == CHECKOUT or (folder / STUDY).exists():
            raise UsageError(f"{here} is inside the project {folder}; run the command in {folder}")


def study_names() -> list[str]:
    """Return the names of the project's studies, sorted."""
    return sorted(path.parent.name for path in STUDIES.glob(f"*/{STUDY}"))


def own_conf() -> Path | None:
    """Return the folder `conf` of the study in the working folder, or None if the study has no such folder."""
    folder = Path.cwd() / "conf"
    return folder if folder.is_dir() and folder != CONF and Path(STUDY).exists() else None


def files_of_study() -> str:
    """Return the prefix of the study's files: "" in the study's folder, `studies/history/` at the top of the checkout.

    Raises: UsageError: the working folder is not a study's DVC project.
    """
    if Path(STUDY).exists():
        return ""
    if CHECKOUT is not None and Path.cwd() == CHECKOUT:
        return f"studies/{DEFAULT}/"
    raise UsageError(
        f"{Path.cwd()} has no {STUDY}; run the command in a study's folder, or write a study's name or path"
    )


def folder_of(study: str | None) -> Path:
    """Return the folder of a study's DVC project.

    Args:
        study: name of one of the project's studies, path of a folder, or name of the working folder or of a folder
            above it; None for the working folder's study. If Retable is an installed package, a study of the project is
            copied into a new folder.

    Raises: UsageError: the study does not exist.
    """
    if study is None and not (CHECKOUT is not None and Path.cwd() == CHECKOUT):
        files_of_study()
        return Path.cwd()
    around = [each for each in (Path.cwd(), *Path.cwd().parents) if each.name == study]
    for folder in [Path(study).resolve(), *around] if study is not None else []:
        if (folder / STUDY).exists():
            return _project_of(folder)
    name = DEFAULT if study is None else study
    if name not in (known := study_names()):
        raise UsageError(f"no study {name!r} and no folder {name} with a {STUDY}; {closest(name, known)}")
    if CHECKOUT is not None:
        return _project_of(STUDIES / name)
    if (folder := Path(name).resolve()).exists():
        raise UsageError(f"{folder} exists and has no {STUDY}; run the command in another folder")
    folder.mkdir()
    shutil.copyfile(STUDIES / name / STUDY, folder / STUDY)
    print(f"created {folder}, a copy of study {name}", file=sys.stderr)
    return folder


def _project_of(folder: Path) -> Path:
    return CHECKOUT if CHECKOUT is not None and folder == CHECKOUT / "studies" / DEFAULT else folder


def enter_project(study: str | None = None, show_folder: bool = False) -> None:
    """Make a study's folder the working folder, and add missing links and DVC settings there.

    Args:
        study: name or folder of the study; None for the working folder's study.
        show_folder: print the study's folder if it is outside the working folder; for commands that write files there.

    Raises: UsageError: the study does not exist.
    """
    require_own_checkout()
    here, folder = Path.cwd(), folder_of(study)
    if show_folder and not folder.is_relative_to(here):
        print(f"in {folder}", file=sys.stderr)
    os.chdir(folder)
    complete(folder)


def code_of_plans(folder: Path) -> list[str]:
    """Return the paths, relative to a study's folder, of the code that its plans depend on."""
    links = [f"{CODE_LINKS}/{name}" for name, _ in _links(folder)]
    if folder == CHECKOUT:
        return ["conf", "pipelines", "src/retable", *links]
    own = ["conf"] if (folder / "conf").is_dir() else []
    return [*own, *links]


def _links(folder: Path) -> Iterator[tuple[str, Path]]:
    if CHECKOUT is not None and folder != CHECKOUT:
        yield "conf", CONF  # in the wheel, the folder conf is inside pipelines
    if folder != CHECKOUT:
        yield from CODE.items()
    yield from _packages(folder).items()


def _packages(folder: Path) -> dict[str, Path]:
    """Return the folders of the trusted packages that a study uses, by name.

    A study uses the packages that its files name in `_target_`, and the trusted packages that those packages import.
    """
    if not (known := trust.sources()):
        return {}
    study = STUDIES / DEFAULT if folder == CHECKOUT else folder
    files = [study / STUDY, *(path for each in (CONF, folder / "conf") for path in each.rglob("*.yaml"))]
    packages, waiting = dict[str, Path](), _named(r"_target_['\"]?:\s*['\"]?(\w+)\.", files)
    while waiting:
        if (name := waiting.pop()) in known and name not in packages:
            packages[name] = path = known[name]
            modules = path.rglob("*.py") if path.is_dir() else [path]
            waiting |= _named(r"^\s*(?:from|import)\s+(\w+)", modules)
    return dict(sorted(packages.items()))


def _named(pattern: str, files: Iterable[Path]) -> set[str]:
    """Return all texts in `files` that match the group of the regular expression `pattern`."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
    return {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}


def complete(folder: Path) -> None:
    """Add the machine-dependent parts of a project's folder: links to code and data sets, and DVC's settings.

    A user's study also gets the files of a DVC project. Outside a git repository, DVC is configured to work without
    git.
    """
    for name, target in _links(folder):
        (folder / CODE_LINKS).mkdir(exist_ok=True)
        _link(folder / CODE_LINKS / name, target)
    if folder != CHECKOUT:
        _complete_study(folder)
    in_git = any((each / ".git").exists() for each in (folder, *folder.parents))
    local = folder / ".dvc/config.local"
    if not in_git and not local.exists():
        _edit_config(folder, local.name, {"core": {"no_scm": "true"}})
    elif in_git and local.exists() and "no_scm = true" in local.read_text(encoding="utf-8"):
        _edit_config(folder, local.name, {"core": {"no_scm": "false"}})


def _complete_study(folder: Path) -> None:
    """Add the files of a DVC project, and a link to the data sets, to a study's folder."""
    data = CHECKOUT / "data" if CHECKOUT is not None else environment.data().absolute()
    if not (folder / "data").exists() and data.is_dir():
        _link(folder / "data", data.resolve())
    source = CHECKOUT or TEMPLATE
    ours = CHECKOUT is not None and folder.parent == STUDIES
    for path in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"):
        target = folder / path
        if not target.exists() and not (ours and path.endswith(".gitignore")):
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(source / path, target)
            if ours and path == ".dvc/config":
                _edit_config(folder, target.name, {"cache": {"dir": "../../../.dvc/cache"}})


def _edit_config(folder: Path, name: str, settings: dict[str, dict[str, str]]) -> None:
    from configobj import ConfigObj  # the parser that DVC uses for its configuration

    config = ConfigObj(str(folder / ".dvc" / name), encoding="utf-8")
    for section, values in settings.items():
        config.setdefault(section, {}).update(values)
    config.write()


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        raise UsageError(f"{link} must be a link to {target}; move the existing file or folder away")
    link.symlink_to(target)
