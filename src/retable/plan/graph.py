"""DVC's files from cells: one for each corpus with all its cells, whichever studies name them, and one for each report.

DVC can't take lists of variable length from templates (its issues 7151 and 8171), so the files are generated whole.
Each stage depends on one file of the stage `plan`, its resolved configuration with the digest of the code that it
reaches, and on its data; so it runs again where one of these has changed, and nowhere else.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from retable.errors import UsageError
from retable.plan.cell import Cell
from retable.plan.study import Study


class Sources(NamedTuple):
    """What stands in a project's folder that its graph is made of.

    Attributes:
        plans: the paths that plans are made of.
        reports: those that reports read beside their plans and cells.
        command: what writes the graph.
    """

    plans: Sequence[str]
    reports: Sequence[str]
    command: str


CHECKOUT = Sources(
    ("conf", "pipelines", "src/retable"),
    ("src/retable/reporting/references.yaml", "src/retable/reporting/templates"),
    "make graph",
)


def plan_file(cell: Cell) -> str:
    """The file that says how a cell is made."""
    return f"outputs/plan/{cell.group}/{cell.name}.yaml"


def graph_file(group: str) -> Path:
    """Where the stages of a corpus stand."""
    return Path("graph/corpus", group, "dvc.yaml")


def report_file(study: str, default: str) -> Path:
    """Where the stage of a study's report stands: at the top for the study that `dvc repro` alone makes."""
    return Path("dvc.yaml") if study == default else Path("graph/study", study, "dvc.yaml")


def to_dvc(command: str) -> str:
    """A command as DVC's files have it, which would fill a `${…}` itself that is for Hydra."""
    return command.replace("${", r"\${")


def from_dvc(command: str) -> str:
    return command.replace(r"\${", "${")


def distinct(studies: Iterable[Study]) -> dict[str, Cell]:
    """The cells of all studies by their places. UsageError where two studies make one place in different ways."""
    found: dict[str, tuple[Cell, str]] = {}
    for study in studies:
        for place, cell in study.cells.items():
            other, name = found.setdefault(place, (cell, study.name))
            if other != cell:
                raise UsageError(
                    f"studies {name} and {study.name} make {place} in two ways, `{other.command}` and "
                    f"`{cell.command}`; call the system something else in one of them, as: …"
                )
    return {place: cell for place, (cell, _) in found.items()}


def corpus_graph(
    group: str, cells: Iterable[Cell], data: Mapping[str, Sequence[str]], sources: Sources = CHECKOUT
) -> str:
    """The text of a corpus' `dvc.yaml`. `data` are the paths that each place reads beside what other cells leave."""
    root = "../../.."
    stages: dict[str, Any] = {
        "plan": {
            "wdir": root,
            "cmd": f"python -m pipelines.plan cells {shlex.quote(group)}",
            "deps": list(sources.plans),
            "outs": [f"outputs/plan/{group}"],
        }
    }
    for cell in sorted(cells, key=lambda cell: cell.name):
        read = [f"outputs/{file}" for file in cell.reads]
        stages[cell.name] = {
            "wdir": root,
            "cmd": to_dvc(cell.command),
            "deps": [plan_file(cell), *dict.fromkeys([*read, *data[cell.place]])],
            "outs": [f"outputs/{cell.place}"],
        }
    return _text(stages, sources)


def report_graph(study: Study, default: str, sources: Sources = CHECKOUT) -> str:
    """The text of the `dvc.yaml` with the stage of a study's report."""
    name, folders = shlex.quote(study.name), sorted(f"outputs/{place}" for place in study.cells)
    plan = f"outputs/plan/report/{study.name}.yaml"
    where = {} if study.name == default else {"wdir": "../../.."}
    stages: dict[str, Any] = {
        "plan": where | {"cmd": f"python -m pipelines.plan report {name}", "deps": list(sources.plans), "outs": [plan]},
        "report": where
        | {
            "cmd": f"python -m pipelines.report study={name}",
            "deps": [plan, *sources.reports, *folders],
            # small, and kept in git; the old one stays until the new one is whole
            "outs": [{f"results/{study.name}": {"cache": False, "persist": True}}],
        },
    }
    # Of other studies `dvc metrics` is given the folder: without that, it would set those of all beside each other.
    shown = {"metrics": [f"results/{study.name}/metrics"], "plots": _plots(study)} if study.name == default else {}
    return _text(stages, sources, **shown)


def _plots(study: Study) -> list[dict[str, Any]]:
    """Bars of the scores, and the learning curves of each stage and text in one figure. The templates are DVC's own
    kind, in `.dvc/plots`."""
    scores = {"template": "scores", "x": "value", "y": {f"results/{study.name}/metrics.csv": "system"}}
    curves: dict[str, dict[str, str]] = {}
    for cell in study.cells.values():
        if "recipe" in cell.settings and not cell.settings["recipe"].startswith("counted/"):
            name = "/".join(filter(None, (cell.stage, cell.corpus, cell.settings.get("task"))))
            curves.setdefault(name, {})[f"outputs/{cell.place}/curve.csv"] = "value"
    drawn = [{name: {"template": "curves", "x": "step", "y": y}} for name, y in sorted(curves.items())]
    return [{"scores": scores}, *drawn]


def _text(stages: Mapping[str, Any], sources: Sources, **shown: Any) -> str:
    header, whole = f"# Generated from conf/study by `{sources.command}`.\n", {"stages": stages} | shown
    return header + yaml.dump(whole, sort_keys=False, width=10_000, Dumper=_Dumper)


class _Dumper(yaml.CSafeDumper):
    """Without aliases, where two stages have the same list."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
