"""A study's `params.yaml` and `dvc.yaml`, which DVC runs.

`dvc.yaml` has one DVC stage for each of Retable's stages, with `foreach` over the study's cells of that stage.
`params.yaml` lists the cells by stage and key. The entry of a cell contains the cell's choices and overrides and, under
the key `of`:

- `out`: the path of the cell below `outputs/<stage>/`.
- `reads`: the cell's inputs. DVC's templates cannot contain lists of variable length (DVC's issues 7151 and 8171). So
  all lists `reads` of a stage have the same length: shorter lists repeat their last entry, and DVC ignores repetitions.
- `name`: the display name of the cell's system, which `dvc stage list` shows.

The stage `plan` writes a plan for each cell: the resolved configuration and the digest of the code that the cell uses.
A cell runs again only if its plan or its inputs change. The command and the outputs of a cell do not contain the
study's name, so DVC's run cache can restore outputs that another study has made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from retable.core.errors import UsageError
from retable.core.stages import STAGES
from retable.planning.cell import Cell
from retable.planning.study import Study, folder_of_more_seeds

REPORT_PLAN = "outputs/plan/report.yaml"
_COUNTED = "counted/"  # folder of recipes without training steps
_HEADER = "# Generated from {file} by `retable graph`.\n"

Params = dict[str, dict[str, dict[str, Any]]]  # the entries of cells, by stage and key


def keys_of(study: Study) -> dict[str, str]:
    """Return the key of each cell in `params.yaml`, by the cell's place.

    The key is the cell's name without the corpus. If several cells of a stage share that name, only the first cell's
    key is the name; the keys of all further cells begin with their corpus. So existing cells keep their keys when a
    corpus is added to the study.
    """
    keys: dict[str, str] = {}
    taken = set[tuple[str, str]]()
    for place, cell in study.cells.items():
        group = cell.out.partition("/")[0]
        key = cell.short_name if (cell.stage, cell.short_name) not in taken else f"{group}-{cell.short_name}"
        if (cell.stage, key) in taken:
            raise UsageError(
                f"study {study.name}: two cells of stage {cell.stage} have the key {key}; rename one system by its "
                "key `as`"
            )
        taken.add((cell.stage, key))
        keys[place] = key
    return keys


def params_of(study: Study, data: Mapping[str, Sequence[str]], name_of: Callable[[str], str] = str) -> Params:
    """Return the content of `params.yaml`.

    Args:
        study: the study.
        data: for each cell's place, the paths that the cell reads in addition to other cells.
        name_of: function that returns the display name of a system.
    """
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
            if system := _system(study, cell):
                facts["name"] = name_of(system)
            params.setdefault(stage, {})[keys[cell.place]] = entry | {"of": facts}
    return params


def _system(study: Study, cell: Cell) -> str:
    """Return the system of a cell or, for a measurement, of the measured cell; "" if no system exists."""
    measured = study.cells.get(f"{cell.settings.get('stage')}/{cell.settings.get('cell')}")
    return _system(study, measured) if measured else cell.settings.get("system", "")


def _put(entry: dict[str, Any], name: str, value: Any) -> None:
    """Store a dotted name as nested keys, as `dvc exp run -S` requires.

    If `entry` already has a choice of a config group under the parent's name, the dotted name is stored as one key.
    """
    *path, last = name.split(".")
    part = entry
    for key in path:
        part = part.setdefault(key, {})
        if not isinstance(part, dict):
            entry[name] = value
            return
    part[last] = value


def _typed(text: str) -> Any:
    """Convert a text to a number or None if YAML writes this value as the same text; otherwise return the text."""
    try:
        value = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, int | float | None) and setting_text(value) == text else text


def settings_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of an entry of `params.yaml` by dotted name, as texts for Hydra's command line."""
    settings: dict[str, str] = {}

    def collect(part: Mapping[str, Any], prefix: str) -> None:
        for key, value in part.items():
            if isinstance(value, dict):
                collect(value, f"{prefix}{key}.")
            else:
                settings[prefix + str(key)] = setting_text(value)

    collect({key: value for key, value in entry.items() if key != "of"}, "")
    return settings


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
    """Return the content of `dvc.yaml`.

    Args:
        study: the study.
        params: the content of `params.yaml`.
        code: paths of the code that plans depend on.
        library: path of the package `retable`.
        root: path of the study's folder with a final `/`; "" if `dvc.yaml` is in the study's folder.
    """
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
        first = next(iter(entries.values()))["of"]
        width, named = len(first.get("reads", ())), all("name" in entry["of"] for entry in entries.values())
        stages[stage] = {
            "foreach": f"${{{stage}}}",
            "do": {
                **({"desc": "${item.of.name}"} if named else {}),  # `dvc stage list` shows it
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
            *(f"{root}{file}" for file in study.reported.get("sweeps", {}).values()),
        ],
        # These small folders are in git, not in DVC's cache, and DVC must not remove them before the stage runs.
        "outs": [{path: {"cache": False, "persist": True}} for path in (results, records)],
    }
    return {"stages": stages, "metrics": [f"{results}/metrics.json"], "plots": _plots(study, results, library)}


def _plots(study: Study, results: str, library: str) -> list[dict[str, Any]]:
    """Return DVC's plots: a bar chart of scores, and learning curves for each stage, corpus and task."""
    bars, lines = (f"{library}/reporting/templates/dvc_{name}.json" for name in ("scores", "curves"))
    scores = {"template": bars, "x": "value", "y": {f"{results}/metrics.csv": "system"}}
    curves: dict[str, dict[str, str]] = {}
    for cell in study.cells.values():
        if "recipe" in cell.settings and not (cell.settings["recipe"].startswith(_COUNTED) or _is_adopted(cell)):
            name = "/".join(filter(None, (cell.stage, cell.corpus, cell.settings.get("task"))))
            curves.setdefault(name, {})[f"outputs/{cell.place}/curve.csv"] = "value"
    drawn = [{name: {"template": lines, "x": "step", "y": y}} for name, y in sorted(curves.items())]
    return [{"scores": scores}, *drawn]


def _is_adopted(cell: Cell) -> bool:
    """Return whether a cell is a sentence encoder, which is not trained, so it is pretrained without a text."""
    return cell.stage == "pretrain" and not cell.tokenizer


def pipeline_text(pipeline: Mapping[str, Any], file: str) -> str:
    """Return the text of `dvc.yaml`; `file` is the path of the study's file, for the header."""
    return _HEADER.format(file=file) + yaml.dump(pipeline, sort_keys=False, width=10_000, Dumper=_Dumper)


def params_text(params: Params, file: str) -> str:
    """Return the text of `params.yaml`: for each cell, a line of settings and a line with its output and inputs.

    Args:
        params: the content of the file, as `params_of` returns it.
        file: path of the study's file, for the header.
    """
    lines = [_HEADER.format(file=file)]
    for stage, entries in params.items():
        lines.append(f"{stage}:\n")
        for key, entry in entries.items():
            settings = {name: value for name, value in entry.items() if name != "of"}
            lines += [f"  {key}:\n", f"    {_flow(settings)[:-1]},\n", f"     of: {_flow(entry['of'])}}}\n"]
    return "".join(lines)


def _flow(value: Any) -> str:
    text = yaml.dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True, Dumper=_Dumper)
    return text.rstrip()


class _Dumper(yaml.CSafeDumper):
    """A dumper that writes every occurrence of a list in full, and never as a YAML alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
