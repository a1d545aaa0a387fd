"""Test that imports point in one direction, and that each heavy library is imported by one package only."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "retable"
# What each package may import, besides itself and core. Some packages that import no model may import models.base, the
# protocols.
ALLOWED = {
    "core": {"objectives"},  # only for types
    "corpora": {"metrics"},
    "grammar": {"corpora", "metrics"},
    "tokenizers": {"corpora"},
    "data": {"tokenizers", "corpora"},
    "planning": set(),
    "nn": set(),
    "models": {"nn"},
    "objectives": {"data", "nn", "models.base"},
    "tasks": {"evaluation", "generation", "objectives", "models.base", "data", "tokenizers", "corpora", "metrics"},
    "metrics": set(),
    "training": {"objectives", "models", "nn", "data", "metrics"},
    "evaluation": {"training", "generation", "objectives", "models.base", "data", "metrics", "nn", "tokenizers"},
    "generation": {"objectives", "models.base", "nn", "data"},
    "exchange": {"models", "nn", "objectives", "tokenizers"},
    "reporting": {"evaluation", "metrics"},
    "tracking": set(),
}
ALLOWED["inference"] = set(ALLOWED) - {"core", "grammar", "planning", "nn", "exchange", "reporting"}
ONLY_IMPORTER = {
    "lightning": "training",
    **dict.fromkeys(("mlflow", "alembic", "sqlalchemy"), "tracking"),
    **dict.fromkeys(("hydra", "omegaconf", "transformers")),
    "lm_eval": "inference",
}
COPIED = "modeling_pooled.py"  # is copied into an export, where transformers imports it; nothing here imports it
PIPELINES = SOURCE.parent.parent / "pipelines"
# For each package of pipelines/ the packages that it may import; stages are the files directly in pipelines/.
BELOW: dict[str, tuple[str, ...]] = {
    "config": (),
    "executors": ("config",),
    "study": ("config", "executors"),
    "app": ("config", "executors", "study"),
    "stages": ("config", "executors", "study", "app"),
    "execute": ("config", "executors", "study", "app"),
    "cli": ("config", "executors", "study", "app", "stages", "execute"),
}
MODULES, STAGES = sorted(SOURCE.rglob("*.py")), sorted(PIPELINES.rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    every = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in every if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> set[str]:
    plain = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes(path) if isinstance(node, ast.ImportFrom)}


def members(path: Path) -> set[str]:
    """Return everything that a file imports: modules, and names from them, which may be modules."""
    froms = [node for node in nodes(path) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{alias.name}" for node in froms for alias in node.names} | imported(path)


def test_imports_point_one_way():
    wrong = []
    for path in MODULES:
        package = path.relative_to(SOURCE).parts[0]
        for name in imported(path):
            top, *rest = name.split(".")
            foreign = top in ONLY_IMPORTER and package != ONLY_IMPORTER[top] and path.name != COPIED
            if top == "retable" and package in ALLOWED and rest and (SOURCE / rest[0]).is_dir():
                foreign = rest[0] != package and not {rest[0], ".".join(rest[:2])} & {"core", *ALLOWED[package]}
            wrong += [f"{path.relative_to(SOURCE)} imports {name}"] * foreign
    assert not wrong


def test_what_is_copied_is_imported_by_nothing_and_knows_nothing_of_this_package():
    name = COPIED.removesuffix(".py")
    assert not [path for path in [*MODULES, *STAGES] if any(name in each for each in members(path))]
    (path,) = SOURCE.rglob(COPIED)
    assert not [each for each in imported(path) if each.startswith("retable")]


def test_every_package_is_listed():
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages == set(ALLOWED)


def test_imports_of_pipelines_point_down():
    wrong = []
    for path in STAGES:
        package = path.relative_to(PIPELINES).parts[0] if path.parent != PIPELINES else "stages"
        for name in filter(lambda name: name.startswith("pipelines."), members(path)):
            of = name.split(".")[1] if (PIPELINES / name.split(".")[1]).is_dir() else "stages"
            foreign = of not in {*({package} - {"stages"}), *BELOW[package]}
            wrong += [f"{path.relative_to(PIPELINES)} imports {name}"] * foreign
    assert not wrong


@pytest.mark.parametrize(("package", "paths"), [("retable", MODULES), ("pipelines", STAGES)])
def test_no_imports_go_in_a_circle(package, paths):
    """Imports inside functions count too: they only hide a circle."""
    root = SOURCE if package == "retable" else PIPELINES
    names = {".".join((package, *path.relative_to(root).with_suffix("").parts)): path for path in paths}
    graph = {name: names.keys() & members(path) for name, path in names.items()}
    TopologicalSorter(graph).prepare()  # raises a CycleError that shows the circle
