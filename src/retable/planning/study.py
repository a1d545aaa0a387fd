"""Read a study (the systems to train and the benchmarks to run) and derive its cells.

A study lists systems by their recipes. The stages, folders, commands and inputs of all cells are derived from the
recipes. A study is checked when it is read: each mistake raises UsageError in one line.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from retable.core.errors import UsageError, closest
from retable.core.hub import CHECKPOINT
from retable.core.stages import TASK_STAGES
from retable.planning.cell import Cell
from retable.planning.conf import Conf, read_yaml
from retable.planning.schema import REPORT_KEYS, parse, require_systems

_NAME = re.compile(r"[A-Za-z0-9][\w+-]*", re.ASCII)  # without . and =, because DVC's option `-S` splits names there
_PLACE = re.compile(r"[\w./+-]+", re.ASCII)
_REVISION = re.compile(r"(hf:[\w.-]+(?:/[\w.-]+)?)@.+")  # of a checkpoint of the hub
_SEED = re.compile(r"-\d+(?=/|$)")  # a seed at the end of a cell's name
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*")
_OF_THE_MACHINE = {"hydra", "callbacks", "logger"}
# Settings that determine a cell's place, inputs and kind of system, in addition to its choices of config groups.
_PLANNED = {
    *("system", "seed", "recipe", "task", "init", "embedding", "objective", "trainer", "decoding"),
    *("out", "tokens", "stage", "cell", "cells", "benchmark", "adaptation"),
}


@dataclass(frozen=True)
class Study:
    """A study with its cells.

    Attributes:
        cells: the cells by place (`<stage>/<out>`), in the study's order.
        reported: the study's settings for its report.
        rates: for each system with the key `rates`, the names and learning rates of the systems that are derived from
            this system.
    """

    name: str
    cells: Mapping[str, Cell]
    reported: Mapping[str, Any]
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def folder_of_more_seeds(study: Study, root: str) -> str:
    """Return the folder of the study whose records add seeds to this study's report, or "" without `more_seeds`.

    `root` is the path of this study's folder with a final `/`, or "" for the working folder.
    """
    return os.path.normpath(f"{root}../{name}") if (name := study.reported.get("more_seeds")) else ""


def more_seeds(study: Study, other: Study) -> list[Cell]:
    """Return the cells of `other` that differ from a cell of `study` only in the seed.

    Raises: UsageError: no cell adds a seed, or a cell that adds a seed differs in another setting as well.
    """
    here = {_without_seeds(cell.place): cell for cell in study.cells.values()}
    cells = [cell for place, cell in other.cells.items() if place not in study.cells and _without_seeds(place) in here]
    for cell in cells:
        own, its = (_settings_without_seeds(each) for each in (here[_without_seeds(cell.place)], cell))
        if own != its:
            key = min(key for key in {*own, *its} if own.get(key) != its.get(key))
            raise UsageError(
                f"study {study.name}, more_seeds: {cell.place} of study {other.name} has {key}={its.get(key)}, but the "
                f"cell of this study has {key}={own.get(key)}; give both studies the same settings"
            )
    if not cells:
        raise UsageError(f"study {study.name}, more_seeds: study {other.name} adds no seeds of these systems")
    return cells


def _settings_without_seeds(cell: Cell) -> dict[str, str]:
    return {key: _without_seeds(value) for key, value in cell.settings.items() if key != "seed"}


def _without_seeds(text: str) -> str:
    return _SEED.sub("", text)


def read_study(conf: Conf, file: Path) -> Study:
    """Read a study from the file `<name>/study.yaml`; raise UsageError for a mistake in it."""
    content = read_yaml(file)
    return expand(conf, str(content.pop("name", None) or file.resolve().parent.name), content)


def expand(conf: Conf, name: str, specification: Mapping[str, Any]) -> Study:
    """Return the study with the cells derived from the content of its file; raise UsageError for a mistake."""
    return _Expansion(conf, f"study {name}", specification).study(name)


class _Expansion:
    def __init__(self, conf: Conf, where: str, specification: Mapping[str, Any]):
        self._conf, self._where, self._specification = conf, where, parse(specification, where)
        self._cells: dict[str, Cell] = {}
        self._rates: dict[str, dict[str, float]] = {}
        # Cells that benchmarks can measure, each with the classes of its system.
        self._pretrained: dict[str, tuple[Cell, frozenset[str]]] = {}

    def study(self, name: str) -> Study:
        _require_name(name, "a study")
        entries = list(self._entries())
        # Systems without `init` come first, since other systems may start from systems without `init`.
        for entry in sorted(entries, key=lambda entry: bool(entry.get("init"))):
            if not entry.get("task") and self._stage(entry) not in TASK_STAGES:
                self._add_pretrained(entry)
        for entry in entries:
            if entry.get("task") or self._stage(entry) in TASK_STAGES:
                self._add_trained(entry)
        for corpus, tokenizers in self._tokenizers():
            for tokenizer in tokenizers:
                self._tokens(corpus, tokenizer)
        for adaptation, selection in self._specification.get("adaptations", {}).items():
            where = f"{self._where}, adaptations"
            self._conf.require("adaptation", adaptation, where)
            for cell in self._selected(selection, f"{where}.{adaptation}", self._required("adaptation", adaptation)):
                self._add_adapted(cell, adaptation)
        for system, mixture in self._specification.get("mixtures", {}).items():
            self._add_mixture(system, mixture)
        by_place: dict[str, list[str]] = {}  # benchmarks of each cell; a cell is loaded only once
        for benchmark, selection in self._specification.get("benchmarks", {}).items():
            self._conf.require("benchmark", benchmark, f"{self._where}, benchmarks")
            where = f"{self._where}, benchmarks.{benchmark}"
            for cell in self._selected(selection, where, self._required("benchmark", benchmark)):
                by_place.setdefault(cell.place, []).append(benchmark)
        for place, benchmarks in by_place.items():
            self._add_evaluation(self._pretrained[place][0], benchmarks)
        for decoding, selection in self._specification.get("texts", {}).items():
            self._conf.require("decoding", decoding, f"{self._where}, texts")
            for cell in self._selected(selection, f"{self._where}, texts.{decoding}"):
                settings = {"stage": cell.stage, "cell": cell.out, "decoding": decoding}
                steering = self._discriminators("decoding", [decoding], cell.corpus)
                self._add(
                    Cell(
                        "generate",
                        f"{cell.out}-{decoding}",
                        settings,
                        made_from=(cell.place, *steering),
                        reads=(cell.place, *steering, f"prepare/{cell.corpus}"),
                        corpus=cell.corpus,
                        tokenizer=cell.tokenizer,
                    )
                )
        for name in _listed(self._specification.get("scaling")):
            if name in self._conf.names("corpus"):  # this corpus contains the points that the scaling law is fitted to
                self._prepare(name)
                for seed in self._seeds(self._specification):
                    settings = {"scaling": "law", "corpus": name, "seed": str(seed)}
                    reads = (f"prepare/{name}",)
                    self._add(Cell("scaling", f"laws/{name}-{seed}", settings, reads=reads, corpus=name))
            else:
                self._add(Cell("scaling", f"layers/{name}", {"device": name}))
        reported = {key: self._specification[key] for key in REPORT_KEYS if key in self._specification}
        systems = dict.fromkeys(cell.settings["system"] for cell in self._cells.values() if "system" in cell.settings)
        require_systems(reported, systems, self._where)
        return Study(name, self._cells, reported, self._rates)

    def _entries(self) -> Iterator[dict[str, Any]]:
        """Yield, for each listed system, one entry per recipe and initial system, with the study's shared settings."""
        shared = {
            key: self._specification[key]
            for key in ("corpus", "tokenizer", "seeds", "trainer")
            if key in self._specification
        }
        for entry in self._specification.get("systems", ()):
            recipes, starts = _listed(entry["of"]), _listed(entry.get("init")) or [None]
            for recipe, start in product(recipes, starts):
                self._conf.require("recipe", recipe, f"{self._where}, systems")
                names = {
                    "{of}": recipe,
                    "{init}": _REVISION.sub(r"\1", str(start)).removeprefix(CHECKPOINT).rpartition("/")[2],
                }
                init = None if start is None else _filled(str(start), names)
                system = _require_name(_filled(str(entry.get("as", "{of}")), names), f"{self._where}, systems, as")
                if system != recipe and system in self._conf.names("recipe") and system != names["{init}"]:
                    raise UsageError(
                        f"{self._where}, systems: {system} has recipe {recipe}, but is the name of another recipe; "
                        f"leave `as` out, or write another name, such as: {system}_of_{self._where.rpartition(' ')[2]}"
                    )
                one = shared | entry | {"of": recipe, "as": system, "init": init}
                yield from self._at_rates(one)

    def _at_rates(self, entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a copy of an entry for each learning rate, or the entry itself without rates.

        The rates are listed in the entry, or belong to the system that the entry starts from.
        """
        system = entry["as"]
        where = f"{self._where}, system {system}"
        tuned = [key for key in ("init", "embedding") if entry.get(key) in [*self._rates]]
        if not tuned and "rates" not in entry:
            yield entry
        elif len(tuned) + ("rates" in entry) > 1:
            start = entry[tuned[0]]
            raise UsageError(
                f"{where} starts from {start}, which has `rates`; start from one of its systems, such as {start}_rate_1"
            )
        else:
            rates = [*self._rates[entry[tuned[0]]].items()] if tuned else [("", rate) for rate in entry["rates"]]
            for number, (start, rate) in enumerate(rates, start=1):
                name, settings = f"{system}_rate_{number}", entry.get("set") or {}
                own = {tuned[0]: start} if tuned else {"set": {**settings, "optimizer.lr": rate}}
                self._rates.setdefault(system, {})[name] = self._rate(rate, where)
                yield entry | {"as": name} | own

    def _rate(self, value: Any, where: str) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            raise UsageError(f"{where}, rates: {value!r} is not a number; write rates: [1e-3, 2e-3]") from None

    def _stage(self, entry: Mapping[str, Any]) -> str:
        facts = self._conf.recipe(entry["of"])
        if "stage" not in facts:
            raise UsageError(f"conf/recipe/{self._conf.choice(entry['of'])}.yaml has no stage; write stage: pretrain")
        return str(facts["stage"])

    def _add_pretrained(self, entry: Mapping[str, Any]) -> None:
        facts, stage = self._conf.recipe(entry["of"]), self._stage(entry)
        where = f"{self._where}, system {entry['as']}"
        if entry.get("decoding"):
            raise UsageError(
                f"{where}: `decoding` needs a task; add one, as in task: translation, or remove `decoding`"
            )
        if entry.get("init") and (stage != "pretrain" or _is_counted(facts, entry)):
            kind = "word vectors" if stage == "embed" else "a count-based model"
            raise UsageError(f"{where}: {entry['of']} is {kind} and cannot start from another system; remove `init`")
        if facts.get("encoder") and not _is_checkpoint(entry.get("init")):
            raise UsageError(f"{where}: {entry['of']} is not trained here; add a checkpoint, as in init: hf:OWNER/NAME")
        for corpus, seed in product(self._corpora(entry), self._seeds(entry)):
            tokenizer = "" if facts.get("encoder") else self._tokenizer(entry)  # an encoder has its own tokenizer
            chosen = {"system": entry["as"], "seed": str(seed)}
            chosen |= self._choices(entry, "objective", "trainer")
            reads = [self._tokens(corpus, tokenizer)] if tokenizer else []
            if entry.get("embedding"):
                vectors, cells = self._vectors(entry, corpus, seed)
                reads += cells
                chosen = {"embedding": vectors} | chosen
            if entry.get("init"):
                init = self._initial(entry, corpus, seed)
                reads += [] if _is_checkpoint(init) else [init]
                chosen = {"init": init} | chosen
            settings = {"corpus": corpus, "tokenizer": tokenizer, "recipe": self._conf.choice(entry["of"])}
            settings = {key: value for key, value in settings.items() if value}
            cell = Cell(
                stage,
                f"{corpus}/{entry['as']}-{seed}",
                settings | chosen | _set(entry, {*settings, *chosen}, where),
                reads=tuple(reads),
                corpus=corpus,
                tokenizer=tokenizer,
            )
            self._add(cell)
            self._pretrained[cell.place] = cell, _answers(facts, entry)

    def _add_trained(self, entry: Mapping[str, Any]) -> None:
        where = f"{self._where}, system {entry['as']}"
        if not (tasks := _listed(entry.get("task"))):
            raise UsageError(f"{where}: {entry['of']} needs a task; add one, as in task: sentiment")
        for task in tasks:
            settings = self._conf.read("task", self._conf.require("task", task, where))
            if "_target_" not in settings.get("task", {}):
                raise UsageError(
                    f"{where}: conf/task/{task}.yaml has no type; write defaults: [/task_type/sentences, _self_], or "
                    "another of conf/task_type"
                )
            target = settings["task"]["_target_"]
            has_no_text = self._conf.class_attribute(target, "has_no_text")
            reads_words = has_no_text or (self._conf.class_attribute(target, "in_words") and self._reads_words(entry))
            form = settings.get("out", "${task_name}/${system}-${seed}")
            form = form.replace("${hydra:runtime.choices.corpus}", "${corpus}")
            for corpus in [""] if reads_words and "${corpus}" not in form else self._corpora(entry):
                for other in self._conf.corpora_of(task):
                    self._prepare(other)
                for seed in self._seeds(entry):
                    self._add(self._trained(entry, task, corpus, seed, form))

    def _trained(self, entry: Mapping[str, Any], task: str, corpus: str, seed: int, form: str) -> Cell:
        tokenizer, reads = "", list[str]()
        settings: dict[str, str] = {}
        if corpus and _is_checkpoint(entry.get("init")):  # a checkpoint has its own tokenizer
            self._prepare(corpus)
            reads += self._pairs(corpus)
            settings |= {"corpus": corpus}
        elif corpus:
            tokenizer = self._tokenizer(entry)
            reads += [self._tokens(corpus, tokenizer), *self._pairs(corpus)]
            settings |= {"corpus": corpus, "tokenizer": tokenizer}
        settings |= {"task": task, "recipe": self._conf.choice(entry["of"])}
        stage = "from_scratch"
        if entry.get("init"):
            stage, settings["init"] = "finetune", self._initial(entry, corpus, seed)
            reads += [] if _is_checkpoint(settings["init"]) else [settings["init"]]
        if entry.get("embedding"):
            vectors, cells = self._vectors(entry, corpus, seed)
            reads += cells
            stage, settings["embedding"] = "finetune", vectors
        settings |= {"system": entry["as"], "seed": str(seed)}
        settings |= self._choices(entry, "objective", "trainer", "decoding")
        # A task with its own text may set a corpus that is not the study's corpus.
        settings |= _set(entry, settings.keys() - {"corpus"}, f"{self._where}, system {entry['as']}")
        facts = {"corpus": corpus, "task_name": task, "system": entry["as"], "seed": str(seed)}
        try:
            out = Template(form).substitute(facts)
        except (KeyError, ValueError):
            raise UsageError(
                f"conf/task/{task}.yaml, out: {form} may refer only to {', '.join(facts)}; write "
                "${corpus}/${task_name}-${system}-${seed}"
            ) from None
        return Cell(stage, out, settings, reads=tuple(reads), corpus=corpus, tokenizer=tokenizer)

    def _reads_words(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the recipe's model reads the spelling of words instead of token ids."""
        facts = self._conf.recipe(entry["of"])
        chosen = facts["choices"].get("model")
        model = self._conf.read("model", chosen) if chosen else facts.get("model") or {}
        if "_target_" not in model:
            raise UsageError(
                f"conf/recipe/{self._conf.choice(entry['of'])}.yaml chooses no model; write defaults: "
                "[override /model: lstm], or another of conf/model"
            )
        return bool(self._conf.class_attribute(model["_target_"], "reads_words"))

    def _add_adapted(self, trained: Cell, adaptation: str) -> None:
        """Add a cell for an adaptation of `trained`; the cell's name contains the system and the adaptation."""
        system, seed = f"{trained.settings['system']}_{adaptation}", trained.settings["seed"]
        settings = {"corpus": trained.corpus, "tokenizer": trained.tokenizer, "cell": trained.out}
        cell = Cell(
            "adapt",
            f"{trained.corpus}/{system}-{seed}",
            settings | {"adaptation": adaptation, "system": system, "seed": seed},
            made_from=(trained.place,),
            reads=(trained.place, self._tokens(trained.corpus, trained.tokenizer)),
            corpus=trained.corpus,
            tokenizer=trained.tokenizer,
        )
        self._add(cell)
        self._pretrained[cell.place] = cell, _LANGUAGE_MODEL

    def _add_mixture(self, system: str, mixture: Sequence[str] | Mapping[str, Any]) -> None:
        where = f"{self._where}, mixtures.{_require_name(system, f'{self._where}, mixtures')}"
        mixture = mixture if isinstance(mixture, Mapping) else {"of": mixture}
        parts, weights = mixture["of"], mixture.get("weights", "fitted")
        cells = [cell for part in parts for cell in self._selected([part], where)]
        if len({cell.corpus for cell in cells}) != 1 or len(cells) < 2:
            raise UsageError(
                f"{where}: {parts} must be two or more systems with one corpus and one seed each; write their names"
            )
        first = cells[0]
        places = [cell.place for cell in cells]
        settings = {"corpus": first.corpus, "tokenizer": first.tokenizer, "cells": f"[{','.join(places)}]"}
        settings |= {"weights": weights} if weights != "fitted" else {}
        cell = Cell(
            "mix",
            f"{first.corpus}/{system}-1",
            settings | {"system": system, "seed": "1"},
            made_from=tuple(places),
            reads=(*places, self._tokens(first.corpus, first.tokenizer)),
            corpus=first.corpus,
            tokenizer=first.tokenizer,
        )
        self._add(cell)
        self._pretrained[cell.place] = cell, _LANGUAGE_MODEL

    def _add_evaluation(self, cell: Cell, benchmarks: Sequence[str]) -> None:
        settings = {"corpus": cell.corpus} | ({"tokenizer": cell.tokenizer} if cell.tokenizer else {})
        settings |= {"stage": cell.stage, "cell": cell.out}
        settings |= {"benchmark": benchmarks[0] if len(benchmarks) == 1 else f"[{','.join(benchmarks)}]"}
        steering = self._discriminators("benchmark", benchmarks, cell.corpus)
        text = self._tokens(cell.corpus, cell.tokenizer) if cell.tokenizer else self._prepare(cell.corpus)
        self._add(
            Cell(
                "evaluate",
                cell.out,
                settings,
                made_from=(cell.place, *steering),
                reads=(cell.place, *steering, text),
                corpus=cell.corpus,
                tokenizer=cell.tokenizer,
            )
        )

    def _discriminators(self, group: str, names: Sequence[str], corpus: str) -> tuple[str, ...]:
        """Return the places of the discriminators that benchmarks or a decoding use.

        Raises: UsageError: the study does not train a discriminator, or the configuration of a discriminator has no key
        `cell`.
        """
        places = []
        for name in names:
            if discriminator := self._conf.read(group, name).get("discriminator"):
                if not isinstance(discriminator, Mapping) or "cell" not in discriminator:
                    raise UsageError(
                        f"conf/{group}/{name}.yaml, discriminator: {discriminator!r} has no key `cell`; write this "
                        "key as in conf/decoding/fudge.yaml"
                    )
                place = _filled(discriminator["cell"], {"${text}": corpus})
                if place not in self._cells:
                    raise UsageError(
                        f"{self._where}: {group} {name} needs {place}, which the study does not train; add "
                        "that system, as in {of: lstm_prefixes, task: sentiment_prefixes}"
                    )
                places.append(place)
        return tuple(places)

    def _required(self, group: str, name: str) -> str:
        """Return the kind of system that a benchmark or adaptation needs: the attribute `requires` of its class."""
        file = f"conf/{group}/{name}.yaml"
        if (target := self._conf.read(group, name).get("_target_")) is None:
            raise UsageError(f"{self._where}: {file} has no class; write _target_: module.Name")
        if (kind := self._conf.class_attribute(target, "requires")) is None:
            raise UsageError(
                f"{self._where}: {target} in {file} has no attribute `requires`; write requires = LanguageModel, "
                "or another class of retable.core.systems"
            )
        return str(kind)

    def _selected(self, selection: Any, where: str, kind: str = "LanguageModel") -> list[Cell]:
        """Return the cells that a selection of a study lists.

        Args:
            selection: names such as `kn5`, `ptb/kn5` or `kn5-1`, where `*` matches anything; `all` for all cells whose
                system has this kind; or `{all but: […]}`.
            where: place in the study, for messages.
            kind: name of a class of `retable.core.systems`, to which each cell's system must belong.
        """
        able = {place: cell for place, (cell, kinds) in self._pretrained.items() if kind in kinds}
        if selection == "all":
            return list(able.values())
        if isinstance(selection, Mapping):
            left = {cell.place for name in _listed(selection["all but"]) for cell in self._matching(name, where)}
            return [cell for place, cell in able.items() if place not in left]
        cells = {cell.place: cell for name in _listed(selection) for cell in self._matching(name, where)}
        for place in cells:
            if place not in able:
                raise UsageError(f"{where}: {place} is not a {kind}, the only kind of system allowed here; remove it")
        return list(cells.values())

    def _matching(self, name: str, where: str) -> list[Cell]:
        corpus, _, rest = str(name).rpartition("/")
        cells = [cell for cell, _ in self._pretrained.values() if fnmatchcase(cell.corpus, corpus or "*")]
        # The name gpt-2 may be the name of a system, or may mean seed 2 of gpt. A system with this name is preferred.
        matching = [cell for cell in cells if cell.settings["system"] == rest]
        if not matching:
            pattern = rest if "-" in rest else f"{rest}-*"
            matching = [cell for cell in cells if fnmatchcase(cell.out.rpartition("/")[2], pattern)]
        if not matching:
            known = dict.fromkeys(cell.settings["system"] for cell, _ in self._pretrained.values())
            raise UsageError(f"{where}: the study has no pretrained system {name!r}; {closest(rest, known)}")
        return matching

    def _initial(self, entry: Mapping[str, Any], corpus: str, seed: int) -> str:
        """Return the value of the setting `init`: a checkpoint, or the place of a cell of this study."""
        return str(entry["init"]) if _is_checkpoint(entry["init"]) else self._start(entry, "init", corpus, seed)

    def _vectors(self, entry: Mapping[str, Any], corpus: str, seed: int) -> tuple[str, list[str]]:
        """Return the file of vectors that `embedding` names, and the cell of this study to which the file belongs.

        A name with a dot is the path of a file, because the names of systems have no dot.
        """
        if "." in (name := str(entry["embedding"])):
            return name, []
        cell = self._start(entry, "embedding", corpus, seed)
        return f"outputs/{cell}/vectors.bin", [cell]

    def _start(self, entry: Mapping[str, Any], key: str, corpus: str, seed: int) -> str:
        """Return the place of the cell whose weights or vectors an entry starts from.

        Cells with the same corpus are preferred, then cells with the same seed, then the first match.
        """
        where = f"{self._where}, system {entry['as']}, {key}"
        cells = self._matching(entry[key], where)
        cells = [cell for cell in cells if (cell.stage == "embed") == (key == "embedding")] or cells
        near = [cell for cell in cells if cell.corpus == corpus] or cells
        if len({cell.corpus for cell in near}) > 1:
            raise UsageError(
                f"{where}: {entry[key]} has several corpora; write one of them, as in {near[0].corpus}/{entry[key]}"
            )
        same = [cell for cell in near if cell.settings["seed"] == str(seed)] or near
        if (same[0].stage == "embed") != (key == "embedding"):
            raise UsageError(
                f"{where}: {same[0].place} cannot be used as `{key}`; write `init` for models, `embedding` for vectors"
            )
        return same[0].place

    def _prepare(self, corpus: str) -> str:
        """Add the cell that prepares a corpus, and return the place of this cell."""
        self._conf.require("corpus", corpus, self._where)
        self._add(cell := Cell("prepare", corpus, {"corpus": corpus}, corpus=corpus), again=True)
        return cell.place

    def _tokens(self, corpus: str, tokenizer: str) -> str:
        """Add the cell that tokenizes a corpus, and return the place of this cell."""
        self._conf.require("tokenizer", tokenizer, self._where)
        self._prepare(corpus)
        settings = {"corpus": corpus, "tokenizer": tokenizer}
        cell = Cell(
            "tokenize", f"{corpus}/{tokenizer}", settings,
            reads=(f"prepare/{corpus}",), corpus=corpus, tokenizer=tokenizer,
        )  # fmt: skip
        self._add(cell, again=True)
        return cell.place

    def _pairs(self, corpus: str) -> list[str]:
        """Return a list with the place of the corpus if the corpus contains sentence pairs, otherwise []."""
        if (written := self._conf.read("corpus", corpus).get("write")) is None:
            raise UsageError(f"conf/corpus/{corpus}.yaml has no key `write`; add this key as in conf/corpus/ptb.yaml")
        paired = written.get("pairs") or any(key.endswith("_source") for key in written)
        return [f"prepare/{corpus}"] if paired else []

    def _tokenizers(self) -> Iterator[tuple[str, list[str]]]:
        tokenizers = self._specification.get("tokenizers", {})
        if isinstance(tokenizers, Mapping):
            yield from ((corpus, _listed(names)) for corpus, names in tokenizers.items())
        else:
            for corpus in self._corpora(self._specification):
                yield corpus, _listed(tokenizers)

    def _corpora(self, entry: Mapping[str, Any]) -> list[str]:
        if not (corpora := _listed(entry.get("corpus"))):
            raise UsageError(f"{self._where}, system {entry.get('as')} has no corpus; add one, as in corpus: grammar")
        return corpora

    def _tokenizer(self, entry: Mapping[str, Any]) -> str:
        return str(entry.get("tokenizer") or self._conf.recipe(entry["of"])["choices"].get("tokenizer", "word"))

    def _seeds(self, entry: Mapping[str, Any]) -> list[int]:
        seeds = entry.get("seeds", 1)
        return list(range(1, seeds + 1)) if isinstance(seeds, int) else seeds

    def _choices(self, entry: Mapping[str, Any], *groups: str) -> dict[str, str]:
        where = f"{self._where}, system {entry['as']}"
        return {group: self._conf.require(group, entry[group], where) for group in groups if entry.get(group)}

    def _add(self, cell: Cell, again: bool = False) -> None:
        if not _PLACE.fullmatch(cell.out):  # DVC passes it to a shell
            raise UsageError(
                f"{self._where}: {cell.place!r} is not a valid path; write ASCII letters, digits and _ - + ."
            )
        if not again and cell.place in self._cells:
            raise UsageError(f"{self._where}: {cell.place} occurs twice; rename one of the two by its key `as`")
        self._cells.setdefault(cell.place, cell)


_LANGUAGE_MODEL = frozenset({"LanguageModel", "System"})


def _answers(facts: Mapping[str, Any], entry: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the classes of `retable.core.systems` to which a recipe's system belongs."""
    if facts.get("encoder"):
        return frozenset({"SentenceEncoder", "System"})
    if facts["stage"] == "embed":
        return frozenset({"WordVectors", "System"})
    if _is_counted(facts, entry):
        return _LANGUAGE_MODEL
    if facts.get("scorer") or facts["choices"].get("scorer"):
        return _LANGUAGE_MODEL | {"TrainedSystem", "NeuralLM"}
    if _objective(facts, entry) == "bidirectional_lm":
        return _LANGUAGE_MODEL | {"TwoWayLanguageModel", "Contextual", "TrainedSystem"}
    return frozenset({"PretrainedObjective", "TrainedSystem", "System"})


def _is_counted(facts: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    untrained = _objective(facts, entry) is None or facts.get("objective", {}) is None
    return untrained and not facts.get("encoder")


def _objective(facts: Mapping[str, Any], entry: Mapping[str, Any]) -> str | None:
    return entry.get("objective") or facts["choices"].get("objective", "causal_lm")


def _is_checkpoint(start: Any) -> bool:
    return str(start).startswith(CHECKPOINT)


def _set(entry: Mapping[str, Any], chosen: Collection[str], where: str) -> dict[str, str]:
    """Return the settings under `set`, as texts.

    Raises: UsageError: a setting is in `chosen`, is derived from the study, or belongs to callbacks, loggers or Hydra,
    which could write files anywhere.
    """
    for key in (settings := entry.get("set") or {}):
        if str(key).lstrip("+~") in {*chosen, *_PLANNED}:
            raise UsageError(f"{where}: set: {key!r} follows from the study; write it next to `of`, or leave it out")
        if not _SETTING.fullmatch(str(key)) or {*re.split("[./@]", str(key).lstrip("+~"))} & _OF_THE_MACHINE:
            raise UsageError(
                f"{where}: set: {key!r} is not allowed in a study; write a setting of the computation, as in "
                "optimizer.lr"
            )
    return {str(key): "null" if value is None else str(value) for key, value in settings.items()}


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def _require_name(name: Any, where: str) -> str:
    """Return `name` if it is a valid name for files and DVC stages; otherwise raise UsageError."""
    if not _NAME.fullmatch(str(name)):
        raise UsageError(f"{where}: {name!r} is not a name; write ASCII letters, digits and _ - +, as in lstm_2x64")
    return str(name)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
