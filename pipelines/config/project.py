"""Where studies, configurations and code are: in the checkout, or in a study's folder of the user's own.

A study is a folder with a file `study.yaml` and a DVC project. The checkout has its studies in `studies/`; the default
study's DVC files are at the top of the checkout, so that `dvc repro` there makes it. A folder of the user's own may be
anywhere, with the checkout or with the installed package. It may have configurations of its own in `conf/`, which come
before those of the project.
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
TEMPLATE = CODE["pipelines"] / "template"  # only the wheel has it: conf, studies and DVC's files of a project
CHECKOUT = None if TEMPLATE.exists() else CODE["pipelines"].parent
CONF = (CHECKOUT or TEMPLATE) / "conf"
STUDIES = (CHECKOUT or TEMPLATE) / "studies"
DEFAULT = "history"
STUDY = "study.yaml"
CODE_LINKS = "code"  # in a study's folder: links to the code that its plans are made of


def require_own_checkout() -> None:
    """Raise UsageError in a checkout whose code is not the one that runs: a copy, or another clone's environment."""
    project_folder()  # refuses a DVC_ROOT that is not a folder
    code = {"pipelines": Path("pipelines"), "retable": Path("src/retable")}
    for folder in (Path.cwd(), *Path.cwd().parents):
        if not all((folder / path / "__init__.py").exists() for path in code.values()):
            continue
        for package, path in code.items():
            if CODE[package].resolve() != (folder / path).resolve():
                raise UsageError(
                    f"this environment runs the code in {CODE[package]}, and the folder is in the checkout {folder}; "
                    f"run `make env` in {folder}, and the commands in {folder / '.venv/bin'}"
                )


def require_project_folder() -> None:
    """Raise UsageError inside a project, but not in its folder, which all paths of cells start from."""
    here = Path.cwd()
    if here == CHECKOUT or (here / STUDY).exists() or (here / "outputs").exists():
        return
    for folder in here.parents:
        if folder == CHECKOUT or (folder / STUDY).exists():
            raise UsageError(f"{here} is inside the project {folder}; give the command in {folder}")


def study_names() -> list[str]:
    """The studies of the project."""
    return sorted(path.parent.name for path in STUDIES.glob(f"*/{STUDY}"))


def own_conf() -> Path | None:
    """The configurations of the study's folder that the working folder is."""
    folder = Path.cwd() / "conf"
    return folder if folder.is_dir() and folder != CONF and Path(STUDY).exists() else None


def files_of_study() -> str:
    """The path in front of the files of the study that the working folder is the DVC project of. UsageError if it is
    not such a folder."""
    if Path(STUDY).exists():
        return ""
    if CHECKOUT is not None and Path.cwd() == CHECKOUT:
        return f"studies/{DEFAULT}/"
    raise UsageError(f"{Path.cwd()} has no {STUDY}; give the command in a study's folder, or write its name or path")


def folder_of(study: str | None) -> Path:
    """The DVC project of a study: by default that of the working folder, one of the project's by its name, or a folder
    by its path, or by its name from any folder in it. Where the package is installed, a study of the project is copied
    into a folder of its name. UsageError for another name."""
    if study is None and not (CHECKOUT is not None and Path.cwd() == CHECKOUT):
        files_of_study()
        return Path.cwd()
    around = [each for each in (Path.cwd(), *Path.cwd().parents) if each.name == study]
    for folder in [Path(study).resolve(), *around] if study is not None else []:
        if (folder / STUDY).exists():
            return _project_of(folder)
    name = DEFAULT if study is None else study
    if name not in (known := study_names()):
        raise UsageError(f"there is no study {name!r}, nor a folder {name} with a {STUDY}; {closest(name, known)}")
    if CHECKOUT is not None:
        return _project_of(STUDIES / name)
    if (folder := Path(name).resolve()).exists():
        raise UsageError(f"{folder} exists and has no {STUDY}; give the command in another folder")
    folder.mkdir()
    shutil.copyfile(STUDIES / name / STUDY, folder / STUDY)
    print(f"{folder} is made, a copy of study {name}", file=sys.stderr)
    return folder


def _project_of(folder: Path) -> Path:
    return CHECKOUT if CHECKOUT is not None and folder == CHECKOUT / "studies" / DEFAULT else folder


def enter_project(study: str | None = None, say: bool = False) -> None:
    """Go to the folder of a study, and complete what it has beside its committed files. UsageError for no study.

    say: whether to name a folder that the working folder does not hold, for commands that write there.
    """
    require_own_checkout()
    here, folder = Path.cwd(), folder_of(study)
    if say and not folder.is_relative_to(here):
        print(f"in {folder}", file=sys.stderr)
    os.chdir(folder)
    complete(folder)


def code_of_plans(folder: Path) -> list[str]:
    """The paths, in a study's folder, of the code that its plans are made of."""
    links = [f"{CODE_LINKS}/{name}" for name, _ in _links(folder)]
    if folder == CHECKOUT:
        return ["conf", "pipelines", "src/retable", *links]
    own = ["conf"] if (folder / "conf").is_dir() else []
    return [*own, *links]


def _links(folder: Path) -> Iterator[tuple[str, Path]]:
    if CHECKOUT is not None and folder != CHECKOUT:
        yield "conf", CONF  # the wheel has it in pipelines
    if folder != CHECKOUT:
        yield from CODE.items()
    yield from _packages(folder).items()


def _packages(folder: Path) -> dict[str, Path]:
    """The packages of a study that the user trusts: those of classes that its files name, and those that they import,
    by their names."""
    if not (known := trust.sources()):
        return {}
    study = STUDIES / DEFAULT if folder == CHECKOUT else folder
    files = [study / STUDY, *(path for each in (CONF, folder / "conf") for path in each.rglob("*.yaml"))]
    found, waiting = dict[str, Path](), _named(r"_target_['\"]?:\s*['\"]?(\w+)\.", files)
    while waiting:
        if (name := waiting.pop()) in known and name not in found:
            found[name] = path = known[name]
            modules = path.rglob("*.py") if path.is_dir() else [path]
            waiting |= _named(r"^\s*(?:from|import)\s+(\w+)", modules)
    return dict(sorted(found.items()))


def _named(pattern: str, files: Iterable[Path]) -> set[str]:
    """What the group of a pattern matches in files."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
    return {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}


def complete(folder: Path) -> None:
    """Give a project's folder what is of this machine: links to the code and the data sets, and DVC's settings.

    A folder of the user's own also gets the files by which it is a DVC project. Without git DVC works without it.
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
    """Give a study's folder the data sets and the files by which it is a DVC project."""
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
    from configobj import ConfigObj  # DVC's parser of its configuration

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
        raise UsageError(f"{link} is in the way of a link to {target}; move it")
    link.symlink_to(target)
