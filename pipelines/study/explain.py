"""Why the cells of a study would run, or not: what has changed since they were made, as DVC's lock has it."""

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
_SHOWN = 8  # of the definitions that have changed


def why(name: str | None, study: str | None) -> None:
    """Print why the cell of this name would run; of a study's name, or of none, which of its cells the present code and
    settings would make again."""
    if name is not None and study is None and (name in study_names() or Path(name, "study.yaml").exists()):
        name, study = None, name
    enter_project(study)
    refresh_graph()
    found = set_study()
    with Repo() as repo, repo.lock, composing():
        reasons = Reasons(repo, found)
        lines = _of_cell(name, found, reasons) if name is not None else _of_study(found, reasons)
        for line in lines:
            print(f"{'  ' * line.startswith('  ')}{in_one_line(line)}")


def _of_cell(name: str, study: Study, reasons: "Reasons") -> Iterator[str]:
    cell = study.cells[find(name, study)]
    lines = reasons.of(cell)
    yield f"{cell.place} would run:" if lines else f"{cell.place} is as DVC's lock has it: nothing to do"
    yield from (f"  {line}" for line in lines or _of_recipe(cell))


def _of_recipe(cell: Cell) -> Iterator[str]:
    """The recipes whose edits the cell does not follow, though its own inherits from them or its row has their name."""
    if (recipe := cell.settings.get("recipe")) is None:
        return
    inherited = conf().replaced(Path(recipe).name)
    for parent, names in inherited.items():
        if names:
            yield f"recipe {recipe} inherits from {parent}, but sets these itself: {', '.join(names)}"
    row = cell.settings["system"]
    if row in conf().names("recipe") and (namesake := conf().choice(row)) not in (recipe, *inherited):
        yield f"recipe {recipe} makes this row; {namesake}, which is called as the row, is not read"


def _of_study(study: Study, reasons: "Reasons") -> Iterator[str]:
    changed = {place: lines for place, cell in study.cells.items() if (lines := [*reasons.of_plan(cell)])}
    yield f"study {study.name}: {len(changed)} of {len(study.cells)} cells would be made again, and what reads them"
    for place, lines in changed.items():
        yield f"  {place}: {'; '.join(lines)}"


def find(name: str, study: Study) -> str:
    """The place of the cell that is called so: by its place or the end of it, its folder, or its stage as `dvc repro`
    takes that; of a system, its training before its evaluation. UsageError where there is none, or several."""
    every, asked = study.cells, os.path.normpath(name).removeprefix("outputs/")
    if asked in every:
        return asked
    keys = keys_of(study)
    found = [
        place
        for place, cell in every.items()
        if asked in (keys[place], f"{cell.stage}@{keys[place]}") or place.endswith(f"/{asked}")
    ]
    found = [place for place in found if not place.startswith("evaluate/")] or found
    if len(found) > 1:
        raise UsageError(f"{name} may be {' or '.join(sorted(found))}; write one of them")
    if not found:
        raise UsageError(f"{name} is not a cell of study {study.name}; {closest(asked, [*keys.values(), *every])}")
    return found[0]


class Reasons:
    """What has changed of a study's cells since they were made."""

    def __init__(self, repo: Repo, study: Study):
        self._repo, self._every, self._keys = repo, study.cells, keys_of(study)
        self._noted = noted_stages()
        self._found: dict[str, list[str]] = {}
        self._trees = tempfile.TemporaryDirectory()
        self._codes: dict[str, Code | None] = {}

    def of(self, cell: Cell) -> list[str]:
        """A line each; none where there is nothing to do."""
        if cell.place not in self._found:
            self._found[cell.place] = [*self._look(cell)]
        return self._found[cell.place]

    def _read(self, cell: Cell) -> dict[str, str] | None:
        """The digests of what the cell read when it was made, by path; None where it was not made."""
        made = self._noted.get(f"{cell.stage}@{self._keys[cell.place]}")
        return None if made is None else {each["path"]: each["md5"] for each in made["deps"]}

    def _look(self, cell: Cell) -> Iterator[str]:
        if (read := self._read(cell)) is None:
            yield "it was never made in this project"
            return
        yield from self.of_plan(cell)
        stage = self._repo.stage.load_one("dvc.yaml", f"{cell.stage}@{self._keys[cell.place]}")
        inputs = {os.path.relpath(dep.fs_path): dep for dep in stage.deps}
        makers = {path: self._maker(path) for path in inputs if path != cell.plan}
        running = [maker for maker in makers.values() if maker and self.of(maker)]
        for place in dict.fromkeys(maker.place for maker in running):
            yield f"it waits for {place}, which would run: `retable why {place}`"
        for path in (path for path, maker in makers.items() if maker not in running):
            if path not in read:
                yield f"{path} was not read before"
            elif inputs[path].workspace_status():
                yield f"{path} {'has changed' if Path(path).exists() else 'is missing'}"
        for out in stage.outs:
            if out.workspace_status():
                cached = "not in DVC's cache" if out.changed_cache() else "in DVC's cache"
                path = os.path.relpath(out.fs_path)
                yield f"{path} {'has changed' if Path(path).exists() else 'is missing'}; what it was is {cached}"

    def _maker(self, path: str) -> Cell | None:
        """The cell that leaves a folder."""
        return self._every.get(path.removeprefix("outputs/"))

    def of_plan(self, cell: Cell) -> Iterator[str]:
        """The settings that have changed since the cell was made, and the code."""
        if (read := self._read(cell)) is None:
            yield "it was never made in this project"
            return
        with mistakes_of(cell):
            text = plan_of(cell, self._every)
        if (md5 := read.get(cell.plan, "")) == _md5(text.encode()):
            return
        now = yaml.load(text, yaml.CSafeLoader)
        kept = (Path(cell.plan), Path(self._repo.cache.local.oid_to_path(md5)))
        file = next((each for each in kept if each.is_file() and _md5(each.read_bytes()) == md5), None)
        if file is None:
            yield self._of_code(cell, None, md5) or "its settings or its code; the plan that it was made by is not here"
            return
        before = _load(file)
        old, new = _settings(before), _settings(now)
        changed = [key for key in sorted({*old, *new}) if repr(old.get(key, ...)) != repr(new.get(key, ...))]
        yield from (f"{key}: {old.get(key, _NOTHING)} -> {new.get(key, _NOTHING)}" for key in changed)
        if before["code"] != now["code"]:
            named = any(key.endswith("_target_") for key in changed)
            found = self._of_code(cell, before["code"], md5) or "code: no commit of this repository has what it was"
            yield "code: that which these settings name" if named else found

    def _of_code(self, cell: Cell, before: str | None, md5: str) -> str:
        """Which definitions that the cell reaches are others than they were by the fingerprint `before`, or when the
        plan of this digest was noted first; empty where git does not know."""
        if CHECKOUT is None:
            return "code: the package that is installed has changed in what the cell reaches"
        names = entry_points(cell, self._every)
        now = code().digests(names)
        commits = _git("log", "--format=%h", f"-S{md5}", "--", "dvc.lock").decode().split()
        for commit in ["HEAD", *commits] if before is not None else commits[-1:]:
            if (earlier := self._code_at(commit)) is None:
                continue
            try:
                then = earlier.digests(names)
            except UnknownName:  # of a name that there was not
                continue
            if before is None or earlier.fingerprint(names) == before:
                others = _others(then, now) or _others(earlier.links(names), code().links(names))
                return f"code: {', '.join(others)}, since {commit}" if others else ""
        return ""

    def _code_at(self, commit: str) -> Code | None:
        """The source of a commit; None where it has none."""
        if commit not in self._codes:
            packed, tree = _git("archive", commit, "pipelines", "src/retable"), Path(self._trees.name, commit)
            if packed:
                with tarfile.open(fileobj=io.BytesIO(packed)) as files:
                    files.extractall(tree, filter="data")
            folders = {"pipelines": tree / "pipelines", "retable": tree / "src/retable"}
            self._codes[commit] = Code(folders | trust.sources()) if packed else None
        return self._codes[commit]


def _others(then: Mapping[Place, str], now: Mapping[Place, str]) -> list[str]:
    """The definitions that are others than they were, or have other links. One that only moved is not among them."""
    same = {(place[1], said) for place, said in then.items()} & {(place[1], said) for place, said in now.items()}
    places = {place for each in (then, now) for place, said in each.items() if (place[1], said) not in same}
    names = sorted(".".join(filter(None, place)) for place in places)
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"and {len(names) - _SHOWN} others"]


def _settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's values by their names: the cell's own, and after a cell's place those of one that it loads."""
    found = flat(plan["configuration"])
    for name, values in (*plan.get("loads", {}).items(), *plan.get("tasks", {}).items()):
        found |= {f"{name} {key}": value for key, value in flat(values).items()}
    return found


def _git(*arguments: str) -> bytes:
    """What git prints in the repository of the code; nothing where there is none, or it finds nothing."""
    paths = [os.path.abspath(each) if each == "dvc.lock" else each for each in arguments]
    try:
        return subprocess.run(["git", *paths], cwd=CHECKOUT, capture_output=True).stdout
    except FileNotFoundError:  # git is not installed
        return b""


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
