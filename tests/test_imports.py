"""Imports point one way, and the heavy libraries have one importer each."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "retable"
# What each package may import, besides itself and the modules at the top (errors, artifacts, settings). What a model is
# to others, models.base, some may know that know no model.
ALLOWED = {
    "corpora": {"metrics"},
    "grammar": {"corpora", "metrics"},
    "tokenizers": {"corpora"},
    "data": {"tokenizers", "corpora"},
    "plan": set(),
    "nn": set(),
    "models": {"nn"},
    "objectives": {"data", "nn", "models.base"},
    "tasks": {"evaluation", "generation", "objectives", "models.base", "data", "tokenizers", "corpora", "metrics"},
    "metrics": set(),
    "training": {"objectives", "models", "nn", "data", "metrics"},
    "evaluation": {"training", "generation", "objectives", "models.base", "data", "metrics", "nn", "tokenizers"},
    "generation": {"objectives", "models.base", "nn"},
    "exchange": {"models", "nn", "objectives", "tokenizers"},
    "reporting": {"evaluation", "metrics"},
    "tracking": set(),
    "cells": {
        "tasks",
        "tracking",
        "training",
        "evaluation",
        "generation",
        "objectives",
        "models",
        "data",
        "tokenizers",
        "corpora",
        "metrics",
    },
}
ONLY_IMPORTER = {
    "lightning": "training",
    "mlflow": "tracking",
    "alembic": "tracking",
    "sqlalchemy": "tracking",
    "hydra": None,
    "omegaconf": None,
    "transformers": None,
    "lm_eval": "cells",
}
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    package = path.relative_to(SOURCE).parts[0]
    for name in imported(path):
        top, *rest = name.split(".")
        if top in ONLY_IMPORTER:
            assert package == ONLY_IMPORTER[top], name
        if top == "retable" and package in ALLOWED and rest and (SOURCE / rest[0]).is_dir():
            assert rest[0] == package or {rest[0], ".".join(rest[:2])} & ALLOWED[package], name


def test_every_package_is_listed():
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert packages == set(ALLOWED)


def test_no_imports_go_in_a_circle():
    """Those inside of functions too, by which a circle is only hidden."""
    names = {".".join(("retable", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in MODULES}
    graph = {}
    for name, path in names.items():
        froms = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
        members = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        graph[name] = names.keys() & {*members, *imported(path)}
    TopologicalSorter(graph).prepare()  # raises a CycleError that shows the circle
