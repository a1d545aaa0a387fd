"""What the files of `conf/` say, as they stand there: names, recipes with what they inherit, the classes behind."""

import ast
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec, resolve_name
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from retable.core.errors import UsageError, closest, near, reading
from retable.core.settings import OWN
from retable.core.trust import require_trusted

_LAST = object()
_SHOWN = 12  # names of a group in a message; of more the most similar ones


class Conf:
    """The files of `conf/`, as far as studies need them: the names of its groups, what recipes say of themselves.

    own: a folder of the same form, of a study's own, whose files come first.
    """

    def __init__(self, folder: Path, own: Path | None = None):
        self.folders = [*([own] if own is not None else []), folder]
        self._recipes: dict[str, Path] = {}
        for folder in self.folders:
            there = dict[str, Path]()
            for path in sorted((folder / "recipe").rglob("[!_]*.yaml")):
                if (other := there.setdefault(path.stem, path)) != path:
                    raise UsageError(f"{other} and {path} are two recipes of one name; call one something else")
            self._recipes = there | self._recipes
        self._names: dict[str, list[str]] = {"recipe": sorted(self._recipes)}
        self._facts: dict[Path, dict[str, Any]] = {}
        self._parsed: dict[str, list[ast.stmt]] = {}  # modules, by their files

    def path(self, name: str) -> Path:
        """The file of a choice, such as `task/sst2`, in the first folder that has it."""
        paths = [folder / f"{name}.yaml" for folder in self.folders]
        return next(filter(Path.exists, paths), paths[-1])

    def names(self, group: str) -> list[str]:
        """The choices of a group; of recipes, without their folders."""
        if group not in self._names:
            paths = (path for folder in self.folders for path in (folder / group).glob("[!_]*.yaml"))
            self._names[group] = sorted({path.stem for path in paths})
        return self._names[group]

    def require(self, group: str, name: str, where: str) -> str:
        """Return `name`, if the group has it. UsageError for another, which proposes the closest, and names a task
        where a corpus should be."""
        if name in (known := self.names(group)):
            return name
        found, tasks = near(name, known), near(name, self.names("task")) if group == "corpus" else []
        if found or len(known) <= _SHOWN:
            instead = closest(name, known)
        else:
            similar = get_close_matches(name, known, n=3, cutoff=0.0)
            instead = f"write {', '.join(similar)} or another one of {len(known)} in conf/{group}"
        task = f", and {tasks[0]} is a task" if tasks and not found else ""
        raise UsageError(f"{where}: there is no {group} {name!r}{task}; {instead}")

    def choice(self, recipe: str) -> str:
        """The recipe as `recipe=` wants it, with its folder."""
        path = self._recipes[recipe]
        folder = next(each for each in self.folders if each in path.parents)
        return str(path.relative_to(folder / "recipe").with_suffix(""))

    def recipe(self, name: str) -> dict[str, Any]:
        """What a recipe, and those that it inherits from, say: their own keys, and under `choices` those of groups."""
        return self._read(self._recipes[name])

    def replaced(self, recipe: str) -> dict[str, list[str]]:
        """The recipes that a recipe inherits from, nearest first, with their settings that the recipe sets itself."""
        return {
            parent: sorted(nearer & {*flat(read_yaml(self.path(f"recipe/{parent}")))})
            for parent, nearer in self.inherited(recipe).items()
        }

    def inherited(self, recipe: str) -> dict[str, set[str]]:
        """The recipes that a recipe inherits from, nearest first, each with the settings that come before its own.

        Of files whose names begin with an underscore, which no study names, only the settings count.
        """
        found: dict[str, set[str]] = {}
        nearer: set[str] = set()

        def visit(path: Path) -> None:
            own = read_yaml(path)
            parents = [self._inherited(path, entry) for entry in own.pop("defaults", None) or ()]
            if nearer and self._recipes.get(path.stem) == path:
                found[self.choice(path.stem)] = {*nearer}
            nearer.update(flat(own))
            for each in reversed([*filter(None, parents)]):
                visit(each)

        visit(self._recipes[recipe])
        return found

    def _inherited(self, path: Path, entry: Any) -> Path | None:
        """The file that an entry of the defaults of the file `path` names; None for one that names no file to inherit
        from. UsageError for one that does not exist."""
        if not isinstance(entry, str) or entry == "_self_":
            return None
        name = entry.lstrip("/").removesuffix("@_here_")
        if not entry.startswith("/"):  # of the same group
            group = next(path.parent.relative_to(each) for each in self.folders if each in path.parents)
            name = str(group / name)
        inherited = self.path(name)
        if not inherited.exists():
            raise UsageError(f"{path} inherits from {entry}, and there is no {inherited}; write another")
        return inherited

    def _read(self, path: Path) -> dict[str, Any]:
        if path not in self._facts:
            own = read_yaml(path)
            facts: dict[str, Any] = {"choices": {}}
            for entry in own.pop("defaults", None) or ():
                if (inherited := self._inherited(path, entry)) is not None:
                    facts = _merged(facts, self._read(inherited))
                elif isinstance(entry, dict):
                    if len(entry) != 1:
                        raise UsageError(f"{path}, defaults: {entry} is not one choice; write - override /model: lstm")
                    ((group, choice),) = entry.items()
                    facts["choices"][group.removeprefix("override ").lstrip("/")] = choice
            self._facts[path] = _merged(facts, own)
        return self._facts[path]

    def corpora_of(self, task: str) -> list[str]:
        """The corpora that a task names itself, in paths such as `outputs/prepare/grammar_endings/train.jsonl`."""
        paths = (text for text in strings(self.says("task", task)) if text.startswith("outputs/prepare/"))
        return sorted({name for path in paths if "$" not in (name := path.split("/")[2])})

    def says(self, group: str, name: str) -> dict[str, Any]:
        """What a choice of a group, and those that it inherits from, say: their own keys, unresolved."""
        return self._read(self.path(f"{group}/{name}"))

    def tables(self) -> dict[str, dict[str, Any]]:
        """The specifications of tables, each behind the one that its `after` names; those without `after` come last."""
        said = {name: self.says("table", name) for name in self.names("table")}
        behind: dict[Any, list[str]] = {}
        for name, specification in said.items():
            if (after := specification.get("after", _LAST)) not in (None, _LAST):
                self.require("table", after, f"conf/table/{name}.yaml, after")
            behind.setdefault(after, []).append(name)

        def placed(after: Any) -> Iterator[str]:
            for name in sorted(behind.get(after, ()), key=lambda name: name in behind):  # a chain behind single tables
                yield from (name, *placed(name))

        order = [*placed(None), *placed(_LAST)]
        if circle := sorted(said.keys() - {*order}):
            raise UsageError(f"conf/table: {', '.join(circle)} come after each other; write after: perplexity")
        return {name: {key: said[name][key] for key in said[name] if key not in ("choices", "after")} for name in order}

    def class_says(self, target: str, attribute: str) -> Any:
        """What the class that a `_target_` names sets an attribute to, a class by its name, read without importing what
        that imports; None where neither it nor a base does, of its module, its package or this one."""
        require_trusted(target, OWN)  # to find a module imports the package that it is in
        module, _, name = target.rpartition(".")
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:  # of a package above it
            spec = None
        if spec is None or spec.origin is None:
            raise UsageError(
                f"there is no {module}; write as _target_, in place of {target}, the module and name of a class"
            )
        if spec.origin not in self._parsed:
            with reading(spec.origin, OSError, SyntaxError, ValueError):
                self._parsed[spec.origin] = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        body = self._parsed[spec.origin]
        classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
        while name in classes:
            for each in classes[name].body:
                if isinstance(each, ast.Assign | ast.AnnAssign) and attribute in map(ast.unparse, _names_of(each)):
                    return _said(each.value)
            name = ast.unparse(classes[name].bases[0]) if classes[name].bases else ""
        for each in body:  # a base of another module
            if isinstance(each, ast.ImportFrom) and (spec.parent if each.level else each.module):
                source = resolve_name("." * each.level + (each.module or ""), spec.parent or "")
                known = source.partition(".")[0] in (module.partition(".")[0], __name__.partition(".")[0])
                if known and (own := next((one.name for one in each.names if name == (one.asname or one.name)), "")):
                    return self.class_says(f"{source}.{own}", attribute)
        return None


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return a configuration's values by their dotted names, as a command line writes them: optimizer.lr."""
    if isinstance(config, dict):
        return {k: v for name, part in config.items() for k, v in flat(part, f"{prefix}{name}.").items()}
    return {prefix[:-1]: config}


def comment_of(path: Path) -> str:
    """The comment at the top of a YAML file, in one line."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _names_of(assignment: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]


def _said(value: ast.expr | None) -> Any:
    """A class by its name, a literal by what it is."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case None:
            return None
    return ast.literal_eval(value)


def read_yaml(path: Path) -> dict[str, Any]:
    """What a file of `conf/` says. UsageError for one that is no YAML, names no settings, or says one of them twice."""
    try:
        said = yaml.load(path.read_text(encoding="utf-8"), _OneOfEach) or {}  # noqa: S506, it is a safe one
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}; mend it there") from None
    if not isinstance(said, dict):
        raise UsageError(f"{path} names no settings; write key: value, a line each")
    return said


class _OneOfEach(yaml.CSafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} stands there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of both, those of `over` first, at every depth."""
    both = {
        key: _merged(base[key], over[key])
        for key in over
        if isinstance(over[key], dict) and isinstance(base.get(key), dict)
    }
    return {**base, **over, **both}


def strings(value: Any) -> Iterator[str]:
    """All texts in a configuration."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
