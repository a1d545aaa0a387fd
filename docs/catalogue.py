"""Collect the facts about each system that the site shows, from docs/systems.yaml, conf/, studies/ and src/."""

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from pipelines.config.project import DEFAULT, STUDIES, STUDY, study_names
from retable.core.stages import TASK_STAGES
from retable.planning.cell import Cell
from retable.planning.conf import Conf
from retable.planning.graph import keys_of
from retable.planning.study import read_study

ROOT = Path(__file__).parent.parent
GROUPS = ("recipe", "tokenizer", "objective", "corruption", "task", "benchmark", "decoding", "adaptation")
STAGES = ("mix", "scaling")  # files in conf/ itself whose comments contain the id of a system
_SHARED_PACKAGES = ("corpora", "data", "grammar", "training")  # shared by many systems, so not listed as code of one
_IDS = re.compile(r"[A-J]\d+[a-z]?(?:(?:, | with )[A-J]\d+[a-z]?)*(?=\W)")
_SYSTEMS = re.compile(r"Systems?\s(.*?)\sof\sdocs/systems\.yaml", re.DOTALL)

# For each table: the name of its headline number, the metrics of which the first available one is shown, and a factor.
HEADLINES: Mapping[str, tuple[str, tuple[str, ...], float]] = {
    "perplexity": ("perplexity a word", ("test/perplexity_word", "validation/perplexity_word"), 1),
    "directions": ("perplexity a word", ("test/perplexity_word",), 1),
    "held_out": ("loss", ("/loss",), 1),
    "analogies": ("analogies", ("total/accuracy",), 100),
    "unseen_words": ("stem or form of unseen words", ("/stem_or_form",), 100),
    "tokenizers": ("tokens a word", ("test/fertility",), 1),
    "glue": ("", ("validation/matthews", "validation/pearson", "validation/accuracy"), 100),
    "tasks": (
        "",
        ("test/matthews", "test/pearson", "test/accuracy", "validation/matthews", "validation/accuracy"),
        100,
    ),
    "tagging": ("", ("test/f1", "test/accuracy"), 100),
    "answers": ("", ("test/f1",), 100),
    "choices": ("", ("test/accuracy",), 100),
    "coreference": ("", ("test/average_f1",), 100),
    "summaries": ("ROUGE-1", ("test/rouge1",), 100),
    "translation": ("BLEU", ("test/bleu", "test2016/bleu", "flickr_2016/bleu"), 1),
}
_UNTRAINED = ("perplexity", "directions", "held_out", "analogies", "unseen_words")  # tables of no task


@dataclass(frozen=True)
class Check:
    """A claim about correctness, its kind of check, and the tests that support it, as `file::function` in tests/."""

    kind: str
    claim: str
    tests: tuple[str, ...]
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A file of conf/: its group, its name there (`recurrent/lstm`), its comment, and the system ids in the comment."""

    group: str
    choice: str
    ids: tuple[str, ...]
    comment: str

    @property
    def path(self) -> str:
        return f"conf/{self.group}/{self.choice}.yaml" if self.group else f"conf/{self.choice}.yaml"


@dataclass(frozen=True)
class Number:
    """A row of a results table of a study; its numbers are text, in the units of the table."""

    study: str
    table: str
    corpus: str
    system: str
    metric: str
    mean: str
    runs: int
    interval: str
    published: str
    verdict: str


@dataclass
class System:
    """A system of docs/systems.yaml, with its settings, code, checks, studies and numbers."""

    entry: Mapping[str, Any]
    settings: list[Setting] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    studies: list[str] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.entry["id"])

    @property
    def shown(self) -> list[str]:
        """Return the result files that docs/systems.yaml lists for a system without a headline number."""
        shown = (each.partition("/") for each in self.entry.get("shown", ()))
        return [f"studies/{study}/results/{name}" for study, _, name in shown]

    @property
    def ran(self) -> list[Number]:
        return [number for number in self.numbers if number.runs]


@cache
def _listed() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docs/systems.yaml").read_text(encoding="utf-8")))


def read_systems() -> list[dict[str, Any]]:
    """Read the families of docs/systems.yaml."""
    return list(_listed()["families"])


def read_checks() -> list[Check]:
    """Read the checks of docs/systems.yaml: first the checks listed under systems, then all other checks."""
    systems = [system for family in read_systems() for system in family["systems"]]
    listed = [(entry, [system["id"]]) for system in systems for entry in system.get("checks", ())]
    listed += [(entry, []) for entry in _listed()["checks"]]
    made = []
    for entry, own in listed:
        ((kind, claim),) = ((key, value) for key, value in entry.items() if key not in ("tests", "also"))
        made.append(Check(kind, claim, tuple(entry["tests"]), (*own, *entry.get("also", ()))))
    return made


def comment_of(path: Path) -> str:
    """Return the first comment of a configuration, without its `@package` line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("# @package")]
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.removeprefix("#").strip() for line in lines[:count])


def ids_of(comment: str) -> tuple[str, ...]:
    """Find the ids of systems in a comment or docstring.

    The ids are at the start (`F5 with D1: …`, `B3, B7, of 200 dimensions: …`) or in a sentence such as `Systems C3
    and C4 of docs/systems.yaml.`
    """
    ids = _SYSTEMS.search(comment) or _IDS.match(comment)
    return tuple(re.findall(r"[A-J]\d+[a-z]?", ids[0])) if ids else ()


def read_settings(conf: Conf) -> list[Setting]:
    """Read the configurations of GROUPS and STAGES."""
    choices = [("", stage) for stage in STAGES]
    for group in GROUPS:
        choices += [(group, conf.choice(name) if group == "recipe" else name) for name in conf.names(group)]
    comments = [comment_of(ROOT / "conf" / group / f"{choice}.yaml") for group, choice in choices]
    return [Setting(*each, ids_of(comment), comment) for each, comment in zip(choices, comments, strict=True)]


def table_of_systems(page: str) -> str:
    """Return a Markdown table of the systems of a family, with the settings that choose each system."""
    (family,) = (each for each in read_systems() if each["page"] == page)
    settings = read_settings(Conf(ROOT / "conf"))
    lines = ["| system | settings |", "|---|---|"]
    for system in family["systems"]:
        chosen: dict[str, list[str]] = defaultdict(list)
        for setting in settings:
            if system["id"] in setting.ids:
                folder, _, name = setting.choice.rpartition("/")
                chosen[f"{setting.group or 'stage'} {folder}{'/' * bool(folder)}".rstrip()].append(name)
        if chosen:
            cells = (f"{before}: {', '.join(names)}" for before, names in chosen.items())
            lines.append(f"| {system['name']} | {'; '.join(cells)} |")
    return "\n".join(lines)


class Catalogue:
    """All systems, each with its settings, code, checks, studies and numbers."""

    def __init__(self) -> None:
        self.conf = Conf(ROOT / "conf")
        self.families = read_systems()
        self.checks = read_checks()
        self.systems = {entry["id"]: System(entry) for family in self.families for entry in family["systems"]}
        self._kinds: dict[str, str | None] = {}
        self._read: dict[str, Mapping[tuple[str, str, str], list[Number]]] = {}
        self._studies = {name: read_study(self.conf, STUDIES / name / STUDY) for name in study_names()}
        for setting in self.settings:
            for each in setting.ids:
                self.systems[each].settings.append(setting)
        for system in self.systems.values():
            system.code = self._code(system)
            system.checks = [check for check in self.checks if system.id in check.systems]
            cells = self._cells(system)
            system.studies = [study for study, own in cells.items() if own]
            system.numbers = sorted(
                {number for study, own in cells.items() for number in self._numbers(system, study, own)},
                key=lambda each: (each.runs == 0, each.study, each.corpus, each.metric, each.system),
            )

    @property
    def settings(self) -> list[Setting]:
        """Return the configurations whose comments contain the id of a system."""
        return [setting for setting in self.configurations if setting.ids]

    @cached_property
    def configurations(self) -> list[Setting]:
        return read_settings(self.conf)

    def content(self, setting: Setting) -> dict[str, Any]:
        """Return the content of a configuration, merged with the configurations that it inherits from."""
        return self.conf.read(setting.group or ".", setting.choice)

    def ran_in(self, setting: Setting) -> list[str]:
        """Return the names of the studies that have run a cell with this configuration."""

        def is_of(cell: Cell) -> bool:
            recipe = cell.settings.get("recipe") if setting.group != "tokenizer" else None  # a cell's own is in _makes
            of_recipe = self.conf.recipe(recipe.rpartition("/")[2])["choices"] if recipe else {}
            return _makes(setting, cell) or of_recipe.get(setting.group) == setting.choice

        return [name for name, cells in self._cells_run.items() if any(map(is_of, cells))]

    @cached_property
    def _cells_run(self) -> dict[str, list[Cell]]:
        """Return the cells that have run, for each study with results.

        A cell has run if it is in the study's committed `dvc.lock`, or if its system is in a table of the study.
        """
        by_name: dict[str, list[Cell]] = defaultdict(list)
        for name, study in self._studies.items():
            tables = [_rows(path) for path in (STUDIES / name / "results").glob("*.csv")]
            systems = {row["system"] for rows in tables for row in rows if "system" in row}
            keys, locked = keys_of(study), _locked(name)
            for place, cell in study.cells.items() if systems else ():
                system = cell.settings.get("system") or cell.out.rpartition("/")[2].partition("-")[0]
                by_tokenizer = cell.stage == "tokenize" and cell.tokenizer in systems
                if system in systems or by_tokenizer or f"{cell.stage}@{keys[place]}" in locked:
                    by_name[name].append(cell)
        return by_name

    def missing_input(self, setting: Setting) -> str:
        """Return the missing input of a configuration, as listed in study `gallery`; "" if nothing is missing."""
        return str(self.missing_inputs.get(setting.group, {}).get(setting.choice.rpartition("/")[2], ""))

    @property
    def missing_inputs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the missing inputs of configurations by group and name, as listed in study `gallery`."""
        return self._studies["gallery"].reported["lacks"]

    def _code(self, system: System) -> list[str]:
        """List a system's code: modules with its id, classes of its configurations, entries of docs/systems.yaml."""
        named = {name for name, ids in self._modules.items() if system.id in ids}
        for setting in system.settings:
            entry = self.content(setting)
            if setting.group == "recipe":
                chosen = {group: entry["choices"].get(group) for group in ("model", "objective")}
                entry = {group: self.conf.read(group, choice) for group, choice in chosen.items() if choice}
            named |= {target for target in _targets(entry) if target.startswith("retable.")}
        named = {name for name in named if name.split(".")[1] not in _SHARED_PACKAGES} | set(
            system.entry.get("code", ())
        )
        return sorted(name for name in named if not any(other.startswith(f"{name}.") for other in named))

    @cached_property
    def _modules(self) -> dict[str, tuple[str, ...]]:
        by_name = {}
        for path in sorted((ROOT / "src/retable").rglob("*.py")):
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            by_name[".".join(path.relative_to(ROOT / "src").with_suffix("").parts)] = ids_of(docstring)
        return by_name

    def _cells(self, system: System) -> dict[str, list[Cell]]:
        """Return, by study, the cells that use a configuration of the system."""
        keep = system.entry.get("stages", ())

        def is_of(cell: Cell) -> bool:
            return (not keep or cell.stage in keep) and any(_makes(setting, cell) for setting in system.settings)

        return {name: [*filter(is_of, study.cells.values())] for name, study in self._studies.items()}

    def _numbers(self, system: System, study: str, cells: list[Cell]) -> Iterator[Number]:
        """Yield headline numbers of `cells` in a study's tables, and the system's published rows that have not run."""
        if study == "smoke":
            return
        tables = self._tables(study)
        own = {setting.choice.removeprefix("google_") for setting in system.settings if setting.group == "benchmark"}
        for cell in cells:
            if cell.stage == "evaluate":
                key = ("", cell.corpus, cell.made_from[0].rpartition("/")[2].rpartition("-")[0])
                yield from (number for number in tables[key] if number.table in own)
            elif cell.stage == "tokenize":
                yield from tables["tokenizers", cell.corpus, cell.tokenizer]
            elif cell.stage in TASK_STAGES:
                group = cell.out.partition("/")[0]
                yield from tables[self._kind(cell.settings["task"]), group, cell.settings["system"]]
            else:
                yield from tables["", cell.corpus, cell.settings.get("system", "")]
        recipes = {setting.choice.rpartition("/")[2] for setting in system.settings if setting.group == "recipe"}
        for numbers in tables.values():
            yield from (number for number in numbers if number.runs == 0 and number.system in recipes)

    def _kind(self, task: str) -> str:
        """Return the name of a task in tables: the `kind` of its class if the class has one, otherwise its own name."""
        target = self.conf.read("task", task)["task"]["_target_"]
        if target not in self._kinds:
            self._kinds[target] = self.conf.class_attribute(target, "kind")
        return self._kinds[target] or task

    def _tables(self, study: str) -> Mapping[tuple[str, str, str], list[Number]]:
        """Return a study's headline numbers by task, corpus and system; a number without a task has task ""."""
        if study not in self._read:
            by_name: dict[tuple[str, str, str], list[Number]] = defaultdict(list)
            for table, (title, metrics, scale) in HEADLINES.items():
                if (path := STUDIES / study / "results" / f"{table}.csv").is_file():
                    for key, number in _headlines(study, path, title, metrics, scale):
                        by_name[key].append(number)
            self._read[study] = by_name
        return self._read[study]


def _makes(setting: Setting, cell: Cell) -> bool:
    """Check whether a cell uses a configuration; only cells of stage `tokenize` count as users of a tokenizer."""
    if setting.group == "tokenizer" and cell.stage != "tokenize":
        return False
    return cell.stage == setting.choice if not setting.group else setting.choice in cell.choices(setting.group)


def _targets(entry: Any) -> Iterator[str]:
    """Yield the names of the classes (`_target_`) in a configuration."""
    if isinstance(entry, dict):
        yield from (value for key, value in entry.items() if key == "_target_" and isinstance(value, str))
        for value in entry.values():
            yield from _targets(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from _targets(value)


def _headlines(
    study: str, path: Path, title: str, metrics: tuple[str, ...], scale: float
) -> Iterator[tuple[tuple[str, str, str], Number]]:
    """Yield, for each task, corpus and system of a table, the number of the first metric that the table has."""
    rows: dict[tuple[str, str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for row in _rows(path):
        rows[row["task"], row["corpus"], row["system"]].setdefault(f"{row['split']}/{row['metric']}", row)
    for (task, corpus, system), measured in rows.items():
        available = [measured[name] for name in metrics if name in measured]
        if not available:
            continue
        row = available[0]
        labels = [title or f"{task}: {row['metric']}", row["split"] if row["split"] != "total" else ""]
        labels += [task] if title and task not in (path.stem, "tokenizer") else []
        number = Number(
            study=study,
            table=path.stem,
            corpus=corpus,
            system=system,
            metric=", ".join(filter(None, labels)).replace("_", " "),
            mean=_shown(row, scale, "{mean} ± {std}"),
            runs=int(row["n"] or 0),
            interval=_shown(row, scale, "{ci_low} to {ci_high}"),
            published=_shown(row, scale, "{published} ± {tolerance}"),
            verdict="" if row["verdict"] == "n/a" else row["verdict"],
        )
        yield (
            (path.stem if path.stem == "tokenizers" else "" if path.stem in _UNTRAINED else task, corpus, system),
            number,
        )


def _shown(row: Mapping[str, str], scale: float, form: str) -> str:
    """Format the numbers of a row by a template such as `{mean} ± {std}`; stop at the first number that is missing."""
    shown = ""
    for before, name, _, _ in Formatter().parse(form):
        if not name or not row[name]:
            break
        value = float(row[name]) * scale
        shown += before + (f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}")
    return shown


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


@cache
def _locked(study: str) -> Collection[str]:
    """Return the stages in the `dvc.lock` of a study."""
    lock = (ROOT if study == DEFAULT else STUDIES / study) / "dvc.lock"
    return yaml.load(lock.read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"] if lock.exists() else ()


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the functions of a Python file, by name."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
