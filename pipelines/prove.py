"""Cells whose code has changed and whose bytes have not keep their results: `python -m pipelines.prove REVISION`,
of all studies, or of those that are named behind it.

For each pair of an old and a new fingerprint, and each set of settings that choose a path through the code, one cell
runs under both revisions, each in a tree of its own: 20 steps on one thread with the whole schedule drawn into them, on
a small text where the embedded language gives one, so that they cross the ends of epochs and validations; what is
counted or evaluated runs whole. Equal bytes of all that the cell leaves renew the entries of all cells of the pair with
these settings in DVC's locks, and `results/renewals.csv` says so. Unequal ones stay stale. Where the code is the same,
and only how it is told has changed, nothing needs to run.
Its limit: 20 equal steps are evidence for the path that they walked, of cells of other sizes, texts and tasks, too.
"""

import argparse
import csv
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import md5
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import yaml

from pipelines.entry import CONF, one_line_errors
from pipelines.forks import ask, serving
from pipelines.plan import composing, configuration, data_of, roots_of, studies
from pipelines.reach import code
from pipelines.tries import flat
from retable.digests import DIGESTS, digest, digest_of
from retable.errors import UsageError
from retable.escaping import spreadsheet
from retable.plan.cell import Cell
from retable.plan.conf import Conf
from retable.plan.fingerprint import Code
from retable.plan.graph import distinct, graph_file, plan_file
from retable.plan.study import read_study

ROOT = CONF.parent
RENEWALS = Path("results/renewals.csv")
COLUMNS = ("stage", "old_code", "new_code", "cell", "digest", "old_commit", "new_commit", "renewed")
KERNELS = Path("src/retable/nn/fused.c")
RECORDS = ("run.json", "config.yaml", DIGESTS)  # which say how a cell was made
SMALL = {
    "words": "{train: 10000, validation: 2000, test: 2000}",
    "task_examples": "{train: 100, validation: 20, test: 40}",
    "pairs": "{train: 300, validation: 30, test: 30}",
    "examples": "{train: 60, validation: 20, test: 40}",
}
FEW = 50  # labels, of those that SMALL leaves, where a cell learns from some of them
# A cell's names and texts; its other settings may choose a path through the code.
NAMES = ("cell", "cells", "corpus", "reported_as", "seed", "system", "task", "task_name", "tokenizer")
SHORT = ("++epochs=1000", "++max_steps=20", "++validations=1")


class Pair(NamedTuple):
    """A change of code that cells of a stage have in common."""

    stage: str
    old: str
    new: str


def prove(revision: str, names: Collection[str] = ()) -> None:
    """Renew what can be proved the same as at `revision`, and print what was proved and what is stale."""
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"  # of what is forked, too
    commits = [_git("rev-parse", revision), _git("rev-parse", "HEAD")]
    trees = {"old": Path("work/prove/old").resolve(), "new": ROOT}
    shutil.rmtree(trees["old"].parent, ignore_errors=True)
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", str(trees["old"]), commits[0])
    try:
        if not (trees["old"] / "pipelines/plan.py").exists():
            raise UsageError(f"{revision} has no plan of its cells to compare with; name a later revision")
        lend_kernels(ROOT, trees["old"])
        chosen = [read_study(Conf(CONF), name) for name in names] or studies()
        cells, asked = distinct(studies()), {place for study in chosen for place in study.cells}
        earlier = Code({"pipelines": trees["old"] / "pipelines", "retable": trees["old"] / "src/retable"})
        with serving() as forks, ThreadPoolExecutor(len(trees)) as side_by_side:
            changed = _changed(forks, trees, {place: cell for place, cell in cells.items() if place in asked})
            for pair, places, is_alike in _by_path(changed, cells, earlier):
                found = sorted((cells[place] for place in places), key=_size)[0]
                some = " ".join(sorted(places)[:5])
                if is_alike:
                    print(f"alike  {found.place}, for {len(places)}: {some}")
                    _renew([cells[place] for place in places])
                    _record([*pair, found.place, "the same code", *commits, len(places)])
                    continue
                making = [(each, _settings(each)) for each in (*_upstream(found, cells), found)]
                folders = (trees["old"].parent / f"run-{side}" for side in trees)
                old, new = side_by_side.map(partial(_run, forks, making), trees.values(), folders)
                same = new is not None and old == new
                print(f"{'same  ' if same else 'STALE '} {found.place}, for {len(places)}: {some}")
                if same:
                    _renew([cells[place] for place in places])
                    _record([*pair, found.place, new, *commits, len(places)])
    finally:
        _git("worktree", "remove", "--force", str(trees["old"]))
        shutil.rmtree(trees["old"].parent, ignore_errors=True)


def _by_path(
    changed: Mapping[Pair, list[str]], cells: Mapping[str, Cell], earlier: Code
) -> Iterator[tuple[Pair, list[str], bool]]:
    """The cells of each pair, and whether its code is the same. Of another code those stand apart whose settings choose
    another path through it."""
    for pair, places in changed.items():
        if _has_the_same_code(cells[places[0]], cells, earlier):
            yield pair, places, True
            continue
        by_path: dict[str, list[str]] = {}
        for place in places:
            by_path.setdefault(_path(cells[place]), []).append(place)
        for some in by_path.values():
            yield pair, some, False


def _path(cell: Cell) -> str:
    with composing():
        return digest_of(chosen(flat(configuration(cell))))


def chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of settings by their dotted names those that choose a path through the code, and what they choose."""
    return {name: _choice(value) for name, value in settings.items() if name.partition(".")[0] not in NAMES}


def _choice(value: Any) -> Any:
    """What of a setting may choose a path: a word, but no file's name; and whether a number, or how many a list has, is
    0, 1 or another."""
    if isinstance(value, str):
        return "" if "/" in value else value
    size = len(value) if isinstance(value, list) else value
    if size is None or isinstance(size, bool):
        return size
    return int(size) if size in (0, 1) else 2


def _has_the_same_code(cell: Cell, cells: Mapping[str, Cell], earlier: Code) -> bool:
    with composing():
        names = roots_of(cell, cells)
    try:
        return earlier.fingerprint(names) == code().fingerprint(names)
    except KeyError:  # of a name that there was not
        return False


def _changed(forks: str, trees: Mapping[str, Path], cells: Mapping[str, Cell]) -> dict[Pair, list[str]]:
    """The cells that were up to date, by the change of code that is all that makes them stale."""
    found: dict[Pair, list[str]] = {}
    for group in sorted(
        {cell.group for cell in cells.values() if graph_file(cell.group).with_name("dvc.lock").exists()}
    ):
        for tree in trees.values():
            failed, said = _python(forks, tree, tree, "pipelines.plan", "cells", group)
            assert tree is trees["old"] or not failed, said  # the old may not know the group
        entries = _load(graph_file(group).with_name("dvc.lock"))["stages"]
        for cell in (cell for cell in cells.values() if cell.group == group and cell.name in entries):
            old, new = (tree / plan_file(cell) for tree in trees.values())
            locked = {dep["path"]: dep["md5"] for dep in entries[cell.name]["deps"]}
            if not old.exists() or locked.get(plan_file(cell)) != _md5(old) or _md5(old) == _md5(new):
                continue
            before, after = _load(old), _load(new)
            codes = before.pop("code"), after.pop("code")
            if before == after:
                found.setdefault(Pair(cell.stage, *codes), []).append(cell.place)
            else:
                print(f"STALE  {cell.place}: its configuration has changed")
    return found


def lend_kernels(here: Path, there: Path) -> None:
    """What is compiled in one tree serves the other, too, if its source is the same: bf16 has other digits without."""
    if (there / KERNELS).exists() and (there / KERNELS).read_bytes() == (here / KERNELS).read_bytes():
        for library in (here / KERNELS).parent.glob("_fused*.so"):
            shutil.copy2(library, there / KERNELS.parent)


def _run(forks: str, making: Sequence[tuple[Cell, Sequence[str]]], tree: Path, folder: Path) -> str | None:
    """The digest of what the last cell leaves under the code of `tree`, run with all; None: one failed."""
    folder.mkdir(parents=True, exist_ok=True)
    if (ROOT / "data").exists() and not (folder / "data").exists():
        (folder / "data").symlink_to((ROOT / "data").resolve())
    for cell, settings in making:
        if not (folder / "outputs" / cell.place).exists():
            code, said = _python(forks, tree, folder, f"pipelines.{cell.stage}", *settings)
            if code:
                print(f"{cell.command} failed at {tree.name}: {said}")
                return None
    left = folder / "outputs" / making[-1][0].place
    files = sorted(path for path in left.rglob("*") if path.is_file() and path.name not in RECORDS)
    return digest_of({str(path.relative_to(left)): digest(path) for path in files})


def _upstream(cell: Cell, cells: Mapping[str, Cell]) -> Iterator[Cell]:
    """The cells that a cell is made from, each behind those that it is made from itself."""
    with composing():
        files = [*cell.reads, *(path.removeprefix("outputs/") for path in data_of(cell))]
    made = [place for file in files for place in cells if file.startswith(f"{place}/")]
    for place in dict.fromkeys([*cell.made_from, *made]):
        yield from _upstream(cells[place], cells)
        yield cells[place]


def _settings(cell: Cell) -> list[str]:
    """A cell's, and what makes it short."""
    return [*(f"{key}={value}" for key, value in cell.settings.items()), *_short(cell)]


def _short(cell: Cell) -> list[str]:
    if cell.stage == "prepare":
        said = _load(CONF / "corpus" / f"{cell.corpus}.yaml").get("write", {})
        return [f"corpus.write.{key}={value}" for key, value in SMALL.items() if key in said]
    if "recipe" not in cell.settings or cell.settings["recipe"].startswith("counted/"):
        return []
    with composing():
        draws = configuration(cell).get("examples")
    return [*SHORT, *([f"examples={FEW}"] if draws else [])]


def _size(cell: Cell) -> tuple[bool, bool, str]:
    """The smallest first: of the embedded language's smallest text, then of its others."""
    return cell.group != "grammar_tiny", not cell.corpus.startswith("grammar"), cell.place


def _renew(cells: list[Cell]) -> None:
    """Put the present plans into the locks' entries."""
    from dvc.fs import localfs
    from dvc.utils.serialize import modify_yaml  # as DVC itself writes it

    for group in {cell.group for cell in cells}:
        with modify_yaml(str(graph_file(group).with_name("dvc.lock")), fs=localfs) as lock:
            for cell in (cell for cell in cells if cell.group == group):
                entry, plan = lock["stages"][cell.name], Path(plan_file(cell))
                for dep in entry["deps"]:
                    if dep["path"] == str(plan):
                        dep |= {"md5": _md5(plan), "size": plan.stat().st_size}
                entry["cmd"] = cell.command


def _record(row: list[Any]) -> None:
    RENEWALS.parent.mkdir(exist_ok=True)
    begun = RENEWALS.exists()
    with RENEWALS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*map(spreadsheet, each)] for each in ([row] if begun else [COLUMNS, row]))


def _python(forks: str, tree: Path, folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Run a module with the code of `tree`, in `folder`; its exit code and the last line that it said."""
    own = {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "RETABLE_DATA": "data"}
    own |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder.resolve() / 'mlflow.db'}"} if folder != tree else {}
    with NamedTemporaryFile("r", encoding="utf-8") as said:
        code = ask(forks, module, arguments, str(folder), os.environ | own, said.name, said.name)
        return code, "".join(said.read().strip().splitlines()[-1:])


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _md5(path: Path) -> str:
    return md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipelines.prove", description=__doc__)
    parser.add_argument("revision", help="the commit whose results the locks hold, such as HEAD~3")
    parser.add_argument("study", nargs="*", help="whose cells; those of all studies, where none is named")
    with one_line_errors():
        arguments = parser.parse_args()
        prove(arguments.revision, arguments.study)


if __name__ == "__main__":
    main()
