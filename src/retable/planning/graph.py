"""A study's `params.yaml` and `dvc.yaml`, which DVC runs: a stage per verb, with `foreach` over the cells of the study.

`params.yaml` lists each cell by stage and key: its choices and overrides, `out`, where its results go below
`outputs/<stage>/`, and `reads`, its inputs. DVC's templates take no list of variable length (its issues 7151 and 8171).
So all `reads` of a stage have one length: shorter ones repeat their last entry, which DVC counts once.

Each cell depends on its plan, a file of the stage `plan`: its resolved configuration and the digest of the code that it
reaches. It runs again if that file or its inputs change, and for no other reason. Its command and its outputs name no
study, so DVC's run cache restores what another study has made.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from retable.core.errors import UsageError
from retable.core.stages import STAGES
from retable.planning.study import Study, folder_of_more_seeds

REPORT_PLAN = "outputs/plan/report.yaml"
_HEADER = "# Generated from {file} by `retable graph`.\n"

Params = dict[str, dict[str, dict[str, Any]]]  # by stage and key the entry of a cell


def keys_of(study: Study) -> dict[str, str]:
    """The key of each cell in `params.yaml`, by its place.

    It is the cell's name without its corpus. If several cells of a stage share that name, only the first has it, and
    the others have their corpus in front: cells keep their keys when a study gets another corpus.
    """
    keys: dict[str, str] = {}
    taken = set[tuple[str, str]]()
    for place, cell in study.cells.items():
        group = cell.out.partition("/")[0]
        key = cell.short_name if (cell.stage, cell.short_name) not in taken else f"{group}-{cell.short_name}"
        if (cell.stage, key) in taken:
            raise UsageError(f"study {study.name}: two cells of {cell.stage} are called {key}; rename one, as: …")
        taken.add((cell.stage, key))
        keys[place] = key
    return keys


def params_of(study: Study, data: Mapping[str, Sequence[str]]) -> Params:
    """The content of `params.yaml`. `data` are the paths that each cell reads besides other cells, by its place."""
    keys, params = keys_of(study), Params()
    for stage in STAGES:
        cells = [cell for cell in study.cells.values() if cell.stage == stage]
        reads = {cell.place: list(dict.fromkeys([*map("outputs/{}".format, cell.reads), *data[cell.place]]))
                 for cell in cells}  # fmt: skip
        width = max(map(len, reads.values()), default=0)
        for cell in cells:
            entry: dict[str, Any] = {}
            for name, text in cell.settings.items():
                _put(entry, name, _typed(text))
            padded = reads[cell.place] or [cell.plan] * bool(width)
            padded = [*padded, *padded[-1:] * (width - len(padded))]
            facts: dict[str, Any] = {"out": cell.out} | ({"reads": padded} if padded else {})
            params.setdefault(stage, {})[keys[cell.place]] = entry | {"of": facts}
    return params


def _put(entry: dict[str, Any], name: str, value: Any) -> None:
    """Nest a dotted name, so that `exp run -S` finds it; below a choice of a group, such as `objective`, it stays."""
    *path, last = name.split(".")
    part = entry
    for key in path:
        part = part.setdefault(key, {})
        if not isinstance(part, dict):
            entry[name] = value
            return
    part[last] = value


def _typed(text: str) -> Any:
    """A setting as YAML shows it: a number as a number, if that is written alike, otherwise the text."""
    try:
        value = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, int | float | None) and setting_text(value) == text else text


def settings_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """The settings of an entry of `params.yaml`, as Hydra's command line takes them."""
    found: dict[str, str] = {}

    def collect(part: Mapping[str, Any], prefix: str) -> None:
        for key, value in part.items():
            if isinstance(value, dict):
                collect(value, f"{prefix}{key}.")
            else:
                found[prefix + str(key)] = setting_text(value)

    collect({key: value for key, value in entry.items() if key != "of"}, "")
    return found


def setting_text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(map(setting_text, value))}]"
    return str(value)


def pipeline_of(study: Study, params: Params, code: Sequence[str], library: str, root: str = "") -> dict[str, Any]:
    """The content of `dvc.yaml`. `code` are the paths of the code that plans are made of, `library` is that of the
    package `retable`. `root` is the path in front of `study.yaml`: empty in the study's folder."""
    results, records = f"{root}results", f"{root}records"
    stages: dict[str, Any] = {
        "plan": {
            "cmd": "python -m pipelines.plan",
            "deps": [*code, f"{root}study.yaml", "params.yaml"],
            "outs": ["outputs/plan"],
        }
    }
    modules = {cell.stage: cell.module for cell in study.cells.values()}
    for stage, entries in params.items():
        plan = f"outputs/plan/{stage}/${{item.of.out}}.yaml"
        width = len(next(iter(entries.values()))["of"].get("reads", ()))
        stages[stage] = {
            "foreach": f"${{{stage}}}",
            "do": {
                "cmd": f"python -m {modules[stage]} @{plan}",
                "deps": [plan, *(f"${{item.of.reads[{number}]}}" for number in range(width))],
                "outs": [f"outputs/{stage}/${{item.of.out}}"],
            },
        }
    further = folder_of_more_seeds(study, root)
    stages["report"] = {
        "cmd": "python -m pipelines.report",
        "deps": [
            REPORT_PLAN,
            *(f"outputs/{place}" for place in sorted(study.cells)),
            *([f"{further}/records"] if further else []),
        ],
        # small, and kept in git; the old ones stay until the new ones are whole
        "outs": [{path: {"cache": False, "persist": True}} for path in (results, records)],
    }
    return {"stages": stages, "metrics": [f"{results}/metrics.json"], "plots": _plots(study, results, library)}


def _plots(study: Study, results: str, library: str) -> list[dict[str, Any]]:
    """Bars of the scores, and the learning curves of each stage and text in one figure."""
    bars, lines = (f"{library}/reporting/templates/dvc_{name}.json" for name in ("scores", "curves"))
    scores = {"template": bars, "x": "value", "y": {f"{results}/metrics.csv": "system"}}
    curves: dict[str, dict[str, str]] = {}
    for cell in study.cells.values():
        if "recipe" in cell.settings and not cell.settings["recipe"].startswith("counted/"):
            name = "/".join(filter(None, (cell.stage, cell.corpus, cell.settings.get("task"))))
            curves.setdefault(name, {})[f"outputs/{cell.place}/curve.csv"] = "value"
    drawn = [{name: {"template": lines, "x": "step", "y": y}} for name, y in sorted(curves.items())]
    return [{"scores": scores}, *drawn]


def pipeline_text(pipeline: Mapping[str, Any], file: str) -> str:
    """`dvc.yaml`."""
    return _HEADER.format(file=file) + yaml.dump(pipeline, sort_keys=False, width=10_000, Dumper=_Dumper)


def params_text(params: Params, file: str) -> str:
    """`params.yaml`: of each cell a line of settings, and a line of its output and inputs."""
    lines = [_HEADER.format(file=file)]
    for stage, entries in params.items():
        lines.append(f"{stage}:\n")
        for key, entry in entries.items():
            settings = {name: value for name, value in entry.items() if name != "of"}
            lines += [f"  {key}:\n", f"    {_flow(settings)[:-1]},\n", f"     of: {_flow(entry['of'])}}}\n"]
    return "".join(lines)


def _flow(value: Any) -> str:
    return yaml.dump(value, default_flow_style=True, sort_keys=False, width=10_000, Dumper=_Dumper).rstrip()


class _Dumper(yaml.CSafeDumper):
    """Without aliases, where two stages have the same list."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
