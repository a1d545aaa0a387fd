"""Explain why the cells of a study would or would not run: list what changed since dvc.lock recorded them."""

import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.repo import Repo

from pipelines.config.project import CHECKOUT, enter_project, study_names
from pipelines.study.code_reached import code
from pipelines.study.compose import composing, conf, entry_points, mistakes_of, plan_of, set_study
from pipelines.study.dvc_lock import noted_stages
from pipelines.study.dvc_project import refresh_graph
from retable.core import trust
from retable.core.errors import UsageError, closest
from retable.core.escaping import in_one_line
from retable.planning.cell import Cell
from retable.planning.conf import flat
from retable.planning.fingerprint import Code, Place, UnknownName
from retable.planning.graph import keys_of
from retable.planning.study import Study

_NOTHING = "nothing"
_SHOWN = 8  # largest number of changed definitions listed


def why(name: str | None, study: str | None) -> None:
    """Print why a cell would run, or which cells of a study would run again with the present code and settings.

    Args:
        name: a cell, or a study; None for all cells of `study`.
        study: the study; None for the working folder's study.
    """
    if name is not None and study is None and (name in study_names() or Path(name, "study.yaml").exists()):
        name, study = None, name
    enter_project(study)
    refresh_graph()
    current = set_study()
    with Repo() as repo, repo.lock, composing():
        reasons = Reasons(repo, current)
        lines = _of_cell(name, current, reasons) if name is not None else _of_study(current, reasons)
        for line in lines:
            print(f"{'  ' * line.startswith('  ')}{in_one_line(line)}")


def _of_cell(name: str, study: Study, reasons: "Reasons") -> Iterator[str]:
    cell = study.cells[find(name, study)]
    lines = reasons.of(cell)
    yield f"{cell.place} would run:" if lines else f"{cell.place} is up to date"
    yield from (f"  {line}" for line in lines or _of_recipe(cell))


def _of_recipe(cell: Cell) -> Iterator[str]:
    """Yield lines about recipes that a user might edit by mistake, without any effect on the cell.

    Such recipes are base recipes whose settings the cell's recipe overrides, and another recipe with the name of the
    cell's system.
    """
    if (recipe := cell.settings.get("recipe")) is None:
        return
    inherited = conf().replaced(Path(recipe).name)
    for parent, names in inherited.items():
        if names:
            yield f"recipe {recipe} inherits from {parent}, but overrides {', '.join(names)}"
    row = cell.settings["system"]
    if row in conf().names("recipe") and (namesake := conf().choice(row)) not in (recipe, *inherited):
        yield f"this row's recipe is {recipe}; recipe {namesake}, which has the row's name, is not used"


def _of_study(study: Study, reasons: "Reasons") -> Iterator[str]:
    changed = {place: lines for place, cell in study.cells.items() if (lines := [*reasons.of_plan(cell)])}
    yield f"study {study.name}: {len(changed)} of {len(study.cells)} cells would run again, and cells that read them"
    for place, lines in changed.items():
        yield f"  {place}: {'; '.join(lines)}"


def find(name: str, study: Study) -> str:
    """Return the place of a cell.

    Args:
        name: the cell's place or the end of the place, the cell's folder, or the name of the cell's stage in DVC. If
            the name matches a training and its evaluation, the training is returned.
        study: the study.

    Raises: UsageError: no cell matches, or several cells match.
    """
    every, short = study.cells, os.path.normpath(name).removeprefix("outputs/")
    if short in every:
        return short
    keys = keys_of(study)
    places = [
        place
        for place, cell in every.items()
        if short in (keys[place], f"{cell.stage}@{keys[place]}") or place.endswith(f"/{short}")
    ]
    places = [place for place in places if not place.startswith("evaluate/")] or places
    if len(places) > 1:
        raise UsageError(f"{name} may be {' or '.join(sorted(places))}; write one of them")
    if not places:
        raise UsageError(f"{name} is not a cell of study {study.name}; {closest(short, [*keys.values(), *every])}")
    return places[0]


class Reasons:
    """The reasons why a study's cells would run again: what has changed since a cell was made, as lines of text."""

    def __init__(self, repo: Repo, study: Study):
        self._repo, self._every, self._keys = repo, study.cells, keys_of(study)
        self._noted = noted_stages()
        self._lines: dict[str, list[str]] = {}
        self._trees = tempfile.TemporaryDirectory()
        self._codes: dict[str, Code | None] = {}

    def of(self, cell: Cell) -> list[str]:
        """Return one line for each reason why the cell would run, or [] if the cell is up to date."""
        if cell.place not in self._lines:
            self._lines[cell.place] = [*self._look(cell)]
        return self._lines[cell.place]

    def _read(self, cell: Cell) -> dict[str, str] | None:
        """Return the digests, by path, that the cell's inputs had when the cell was made, or None for a new cell."""
        made = self._noted.get(f"{cell.stage}@{self._keys[cell.place]}")
        return None if made is None else {each["path"]: each["md5"] for each in made["deps"]}

    def _look(self, cell: Cell) -> Iterator[str]:
        if (read := self._read(cell)) is None:
            yield "it has not been made in this project"
            return
        yield from self.of_plan(cell)
        stage = self._repo.stage.load_one("dvc.yaml", f"{cell.stage}@{self._keys[cell.place]}")
        inputs = {os.path.relpath(dep.fs_path): dep for dep in stage.deps}
        makers = {path: self._maker(path) for path in inputs if path != cell.plan}
        running = [maker for maker in makers.values() if maker and self.of(maker)]
        for place in dict.fromkeys(maker.place for maker in running):
            yield f"it reads {place}, which would run: `retable why {place}`"
        for path in (path for path, maker in makers.items() if maker not in running):
            if path not in read:
                yield f"{path} is a new input"
            elif inputs[path].workspace_status():
                yield f"{path} {'has changed' if Path(path).exists() else 'is missing'}"
        for out in stage.outs:
            if out.workspace_status():
                cached = "not in DVC's cache" if out.changed_cache() else "in DVC's cache"
                path = os.path.relpath(out.fs_path)
                yield f"{path} {'has changed' if Path(path).exists() else 'is missing'}; its former content is {cached}"

    def _maker(self, path: str) -> Cell | None:
        """Return the cell whose output is `path`, or None if no cell of the study writes `path`."""
        return self._every.get(path.removeprefix("outputs/"))

    def of_plan(self, cell: Cell) -> Iterator[str]:
        """Yield a line for each setting that changed since the cell was made, and a line for changed code."""
        if (read := self._read(cell)) is None:
            yield "it has not been made in this project"
            return
        with mistakes_of(cell):
            text = plan_of(cell, self._every)
        if (md5 := read.get(cell.plan, "")) == _md5(text.encode()):
            return
        now = yaml.load(text, yaml.CSafeLoader)
        kept = (Path(cell.plan), Path(self._repo.cache.local.oid_to_path(md5)))
        file = next((each for each in kept if each.is_file() and _md5(each.read_bytes()) == md5), None)
        if file is None:
            yield self._of_code(cell, None, md5) or "its settings or code have changed; its former plan is not here"
            return
        before = _load(file)
        old, new = _settings(before), _settings(now)
        changed = [key for key in sorted({*old, *new}) if repr(old.get(key, ...)) != repr(new.get(key, ...))]
        yield from (f"{key}: {old.get(key, _NOTHING)} -> {new.get(key, _NOTHING)}" for key in changed)
        if before["code"] != now["code"]:
            named = any(key.endswith("_target_") for key in changed)
            line = self._of_code(cell, before["code"], md5) or "code: no commit of this repository has its former code"
            yield "code: the classes that these settings name" if named else line

    def _of_code(self, cell: Cell, before: str | None, md5: str) -> str:
        """Return a line with the changed definitions that a cell depends on; "" if git lacks the former code.

        Args:
            cell: the cell.
            before: the former fingerprint of the code; None to compare with the commit that first recorded the cell's
                plan.
            md5: digest of the cell's former plan.
        """
        if CHECKOUT is None:
            return "code: the installed package has changed in definitions that the cell depends on"
        names = entry_points(cell, self._every)
        now = code().digests(names)
        commits = _git("log", "--format=%h", f"-S{md5}", "--", "dvc.lock").decode().split()
        for commit in ["HEAD", *commits] if before is not None else commits[-1:]:
            if (earlier := self._code_at(commit)) is None:
                continue
            try:
                then = earlier.digests(names)
            except UnknownName:  # that commit did not have one of the names
                continue
            if before is None or earlier.fingerprint(names) == before:
                others = _others(then, now) or _others(earlier.links(names), code().links(names))
                return f"code: {', '.join(others)}, since {commit}" if others else ""
        return ""

    def _code_at(self, commit: str) -> Code | None:
        """Return the code of a commit, or None if git does not have the commit."""
        if commit not in self._codes:
            packed, tree = _git("archive", commit, "pipelines", "src/retable"), Path(self._trees.name, commit)
            if packed:
                with tarfile.open(fileobj=io.BytesIO(packed)) as files:
                    files.extractall(tree, filter="data")
            folders = {"pipelines": tree / "pipelines", "retable": tree / "src/retable"}
            self._codes[commit] = Code(folders | trust.sources()) if packed else None
        return self._codes[commit]


def _others(then: Mapping[Place, str], now: Mapping[Place, str]) -> list[str]:
    """Return the definitions whose digest or links changed. A definition that was only moved is not included."""
    same = {(place[1], text) for place, text in then.items()} & {(place[1], text) for place, text in now.items()}
    places = {place for each in (then, now) for place, text in each.items() if (place[1], text) not in same}
    names = sorted(".".join(filter(None, place)) for place in places)
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"and {len(names) - _SHOWN} others"]


def _settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's values by dotted name. The name of a loaded cell or a task precedes the names of its values."""
    values = flat(plan["configuration"])
    for name, part in (*plan.get("loads", {}).items(), *plan.get("tasks", {}).items()):
        values |= {f"{name} {key}": value for key, value in flat(part).items()}
    return values


def _git(*arguments: str) -> bytes:
    """Return git's output in the repository of the code, or b"" without git or without a repository."""
    paths = [os.path.abspath(each) if each == "dvc.lock" else each for each in arguments]
    try:
        return subprocess.run(["git", *paths], cwd=CHECKOUT, capture_output=True).stdout
    except FileNotFoundError:  # git is not installed
        return b""


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
