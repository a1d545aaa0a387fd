"""Why a cell would run, or not: what has changed since it was made, as DVC's lock has it."""

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

from pipelines.entry import enter_project
from pipelines.plan import composing, mistakes_of, plan_of, roots_of, studies
from pipelines.project import TEMPLATE
from pipelines.reach import code
from pipelines.repro import refresh_graph
from pipelines.tries import flat
from retable.errors import UsageError, closest
from retable.escaping import in_one_line
from retable.plan.cell import Cell
from retable.plan.fingerprint import Code, Place
from retable.plan.graph import distinct, graph_file, plan_file

_NOTHING = "nothing"


def why(name: str) -> None:
    """Print why the cell of this name would run."""
    enter_project()
    every = distinct(studies())
    cell = every[find(name, every)]
    refresh_graph()
    with Repo() as repo, repo.lock, composing():
        found = Reasons(repo, every).of(cell)
    print(f"{cell.place} would run:" if found else f"{cell.place} is as DVC's lock has it: nothing to do")
    for line in found:
        print(f"  {in_one_line(line)}")


def find(name: str, every: Mapping[str, Cell]) -> str:
    """The place of the cell that is called so: by its place or the end of it, its folder, its stage, or as `dvc repro`
    takes that. UsageError where there is none, or several."""
    asked = os.path.normpath(name).removeprefix("outputs/")
    if asked in every:
        return asked
    stages = {place: (cell.name, f"{graph_file(cell.group)}:{cell.name}") for place, cell in every.items()}
    found = [place for place, names in stages.items() if asked in names or place.endswith(f"/{asked}")]
    if len(found) > 1:
        raise UsageError(f"{name} may be {' or '.join(sorted(found))}; write one of them")
    if not found:
        ends = {place.partition("/")[2]: place for place in every}
        near = closest(asked, ends if "/" in asked else [])
        proposed = (
            near if near.removeprefix("write ") in ends else "write CORPUS/SYSTEM-SEED, such as grammar_small/gpt-1"
        )
        raise UsageError(f"{name} is no cell of a study; {proposed}")
    return found[0]


class Reasons:
    """What has changed of cells since they were made. `every` has those of all studies, by place."""

    def __init__(self, repo: Repo, every: Mapping[str, Cell]):
        self._repo, self._every = repo, every
        self._found: dict[str, list[str]] = {}
        self._trees = tempfile.TemporaryDirectory()
        self._codes: dict[str, Code | None] = {}

    def of(self, cell: Cell) -> list[str]:
        """A line each; none where there is nothing to do."""
        if cell.place not in self._found:
            self._found[cell.place] = [*self._look(cell)]
        return self._found[cell.place]

    def _look(self, cell: Cell) -> Iterator[str]:
        file = graph_file(cell.group)
        lock = _load(file.with_name("dvc.lock")) if file.with_name("dvc.lock").exists() else {"stages": {}}
        if cell.name not in lock["stages"]:
            yield "it was never made in this project"
            return
        made = lock["stages"][cell.name]
        if made["cmd"] != cell.command:
            yield f"its command was `{made['cmd']}`"
        read = {each["path"]: each["md5"] for each in made["deps"]}
        yield from self._of_plan(cell, read.pop(plan_file(cell), ""))
        stage = self._repo.stage.load_one(str(file), cell.name)
        inputs = {os.path.relpath(dep.fs_path): dep for dep in stage.deps}
        makers = {path: self._maker(path) for path in inputs if path != plan_file(cell)}
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
        """The cell that leaves a file or folder."""
        places = Path(path.removeprefix("outputs/"))
        return next((self._every[place] for place in map(str, (places, *places.parents)) if place in self._every), None)

    def _of_plan(self, cell: Cell, md5: str) -> Iterator[str]:
        """The settings that have changed since the plan of this digest, and the code."""
        with mistakes_of(cell):
            text = plan_of(cell, self._every)
        if md5 == _md5(text.encode()):
            return
        kept = (Path(plan_file(cell)), Path(self._repo.cache.local.oid_to_path(md5)))
        file = next((each for each in kept if each.is_file() and _md5(each.read_bytes()) == md5), None)
        if file is None:
            yield "its settings or its code: the plan that it was made by is neither in outputs/plan nor in DVC's cache"
            return
        before, now = _load(file), yaml.load(text, yaml.CSafeLoader)
        old, new = _settings(before), _settings(now)
        changed = [key for key in sorted({*old, *new}) if repr(old.get(key, ...)) != repr(new.get(key, ...))]
        yield from (f"{key}: {old.get(key, _NOTHING)} -> {new.get(key, _NOTHING)}" for key in changed)
        if before["code"] != now["code"]:
            named = any(key.endswith("_target_") for key in changed)
            yield (
                "code: that which these settings name" if named else f"code: {self._of_code(cell, before['code'], md5)}"
            )

    def _of_code(self, cell: Cell, before: str, md5: str) -> str:
        """Which definitions that the cell reaches are others than they were by the fingerprint `before`."""
        if TEMPLATE.exists():
            return "the package that is installed has changed in what the cell reaches"
        names = roots_of(cell, self._every)
        now = code().digests(names)
        lock = str(graph_file(cell.group).with_name("dvc.lock"))
        for commit in ["HEAD", *_git("log", "--format=%h", f"-S{md5}", "--", lock).decode().split()]:
            if (earlier := self._code_at(commit)) is None:
                continue
            try:
                then = earlier.digests(names)
            except KeyError:  # of a name that there was not
                continue
            if earlier.fingerprint(names) == before:
                others = _others(then, now) or _others(earlier.links(names), code().links(names))
                return f"{', '.join(others)}, since {commit}"
        return "what it reaches has changed, and no commit of this repository is known to have what it was"

    def _code_at(self, commit: str) -> Code | None:
        """The source of a commit; None where it has none."""
        if commit not in self._codes:
            packed, tree = _git("archive", commit, "pipelines", "src/retable"), Path(self._trees.name, commit)
            if packed:
                with tarfile.open(fileobj=io.BytesIO(packed)) as files:
                    files.extractall(tree, filter="data")
            folders = {"pipelines": tree / "pipelines", "retable": tree / "src/retable"}
            self._codes[commit] = Code(folders) if packed else None
        return self._codes[commit]


def _others(then: Mapping[Place, str], now: Mapping[Place, str]) -> list[str]:
    """The definitions that are others than they were, or have other links."""
    places = {place for place in {*then, *now} if then.get(place) != now.get(place)}
    return sorted(".".join(filter(None, place)) for place in places)


def _settings(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's values by their names: the cell's own, and behind a cell's place those of one that it loads."""
    found = flat(plan["configuration"])
    for name, values in (*plan.get("loads", {}).items(), *plan.get("tasks", {}).items()):
        found |= {f"{name} {key}": value for key, value in flat(values).items()}
    return found


def _git(*arguments: str) -> bytes:
    """What git prints; nothing where there is no repository, or it finds nothing."""
    return subprocess.run(["git", *arguments], capture_output=True).stdout


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
