"""Read the YAML files of `conf/` without Hydra: names, recipes with their bases, attributes of `_target_` classes."""

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
_SHOWN = 12  # if a group has more names than this, a message lists only similar names


class Conf:
    """The files of a `conf/` folder.

    Args:
        folder: the folder `conf/`.
        own: the study's folder `conf/`, whose files take precedence.
    """

    def __init__(self, folder: Path, own: Path | None = None):
        self.folders = [*([own] if own is not None else []), folder]
        self._recipes: dict[str, Path] = {}
        for folder in self.folders:
            there = dict[str, Path]()
            for path in sorted((folder / "recipe").rglob("[!_]*.yaml")):
                if (other := there.setdefault(path.stem, path)) != path:
                    raise UsageError(f"{other} and {path} are recipes with the same name; rename one of them")
            self._recipes = there | self._recipes
        self._names: dict[str, list[str]] = {"recipe": sorted(self._recipes)}
        self._facts: dict[Path, dict[str, Any]] = {}
        self._parsed: dict[str, list[ast.stmt]] = {}  # the statements of each module, by file

    def path(self, name: str) -> Path:
        """Return the file of a choice, such as `task/sst2`, from the first folder that contains this file."""
        paths = [folder / f"{name}.yaml" for folder in self.folders]
        return next(filter(Path.exists, paths), paths[-1])

    def names(self, group: str) -> list[str]:
        """Return the choices of a group, sorted; names of recipes do not contain their folders."""
        if group not in self._names:
            paths = (path for folder in self.folders for path in (folder / group).glob("[!_]*.yaml"))
            self._names[group] = sorted({path.stem for path in paths})
        return self._names[group]

    def require(self, group: str, name: str, where: str) -> str:
        """Return `name` if the group has this choice.

        Raises: UsageError: the group has no such choice; the message begins with `where` and suggests similar names.
        """
        if name in (known := self.names(group)):
            return name
        near_names, tasks = near(name, known), near(name, self.names("task")) if group == "corpus" else []
        if tasks and tasks[0].startswith(name) and not any(each.startswith(name) for each in near_names):
            near_names = []  # a task whose name begins with `name` is more probably meant than a similar corpus
        if near_names or len(known) <= _SHOWN:
            instead = closest(name, known)
        else:
            similar = get_close_matches(name, known, n=3, cutoff=0.0)
            instead = f"write {', '.join(similar)} or another one of {len(known)} in conf/{group}"
        task = f" ({tasks[0]} is a task)" if tasks and not near_names else ""
        raise UsageError(f"{where}: unknown {group} {name!r}{task}; {instead}")

    def choice(self, recipe: str) -> str:
        """Return the recipe with its folder, as in `recipe=recurrent/lstm`."""
        path = self._recipes[recipe]
        folder = next(each for each in self.folders if each in path.parents)
        return str(path.relative_to(folder / "recipe").with_suffix(""))

    def recipe(self, name: str) -> dict[str, Any]:
        """Return the keys of a recipe and its bases; the key `choices` contains the choices of config groups."""
        return self._read(self._recipes[name])

    def replaced(self, recipe: str) -> dict[str, list[str]]:
        """Return a recipe's base recipes, nearest first, each with the names of its overridden settings."""
        return {
            parent: sorted(nearer & {*flat(read_yaml(self.path(f"recipe/{parent}")))})
            for parent, nearer in self.inherited(recipe).items()
        }

    def inherited(self, recipe: str) -> dict[str, set[str]]:
        """Return the base recipes that a recipe inherits from, nearest first.

        Each inherited recipe is returned with the names of all settings that take precedence over its own settings.
        Files whose names begin with an underscore are not listed, but their settings are included.
        """
        keys_of_recipe: dict[str, set[str]] = {}
        nearer: set[str] = set()

        def visit(path: Path) -> None:
            own = read_yaml(path)
            parents = [self._inherited(path, entry) for entry in own.pop("defaults", None) or ()]
            if nearer and self._recipes.get(path.stem) == path:
                keys_of_recipe[self.choice(path.stem)] = {*nearer}
            nearer.update(flat(own))
            for each in reversed([*filter(None, parents)]):
                visit(each)

        visit(self._recipes[recipe])
        return keys_of_recipe

    def _inherited(self, path: Path, entry: Any) -> Path | None:
        """Return the file that an entry of the defaults list of `path` inherits from, or None for other entries.

        Raises: UsageError: the file does not exist.
        """
        if not isinstance(entry, str) or entry == "_self_":
            return None
        name = entry.lstrip("/").removesuffix("@_here_")
        if not entry.startswith("/"):  # a relative name belongs to the same config group
            group = next(path.parent.relative_to(each) for each in self.folders if each in path.parents)
            name = str(group / name)
        inherited = self.path(name)
        if not inherited.exists():
            raise UsageError(f"{path}, defaults: {entry}: {inherited} does not exist; write the name of another file")
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
                        raise UsageError(f"{path}, defaults: {entry} must be one choice; write - override /model: lstm")
                    ((group, choice),) = entry.items()
                    facts["choices"][group.removeprefix("override ").lstrip("/")] = choice
            self._facts[path] = _merged(facts, own)
        return self._facts[path]

    def corpora_of(self, task: str) -> list[str]:
        """Return the corpora in a task's paths, such as `grammar` in `outputs/prepare/grammar/train.jsonl`."""
        paths = (text for text in strings(self.read("task", task)) if text.startswith("outputs/prepare/"))
        return sorted({name for path in paths if "$" not in (name := path.split("/")[2])})

    def read(self, group: str, name: str) -> dict[str, Any]:
        """Return the keys of a group's choice, such as task sst2, and of its bases; interpolations are not resolved."""
        return self._read(self.path(f"{group}/{name}"))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the specifications of tables in the order of a report.

        A table follows the table that its key `after` names. Tables without `after` are last.
        """
        tables = {name: self.read("table", name) for name in self.names("table")}
        followers: dict[Any, list[str]] = {}
        for name, specification in tables.items():
            if (after := specification.get("after", _LAST)) not in (None, _LAST):
                self.require("table", after, f"conf/table/{name}.yaml, after")
            followers.setdefault(after, []).append(name)

        def placed(after: Any) -> Iterator[str]:
            # If several tables follow the same table, a table that has followers itself comes last.
            for name in sorted(followers.get(after, ()), key=lambda name: name in followers):
                yield from (name, *placed(name))

        order = [*placed(None), *placed(_LAST)]
        if circle := sorted(tables.keys() - {*order}):
            raise UsageError(f"conf/table: the keys after of {', '.join(circle)} form a circle; set one to perplexity")
        left_out = ("choices", "after")
        return {name: {key: value for key, value in tables[name].items() if key not in left_out} for name in order}

    def class_attribute(self, target: str, attribute: str) -> Any:
        """Return the value of a class attribute, read from source code without importing the module.

        Args:
            target: the class, as in `_target_`.
            attribute: the name of the attribute.

        Returns: the value of a literal, or the name of a class; None if neither the class nor one of its base classes
            sets the attribute. Only base classes in the same module, the same package or retable are searched.
        Raises: UsageError: the module does not exist or is not trusted.
        """
        require_trusted(target, OWN)  # to find a module, Python imports its package
        module, _, name = target.rpartition(".")
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:  # the package that contains the module does not exist
            spec = None
        if spec is None or spec.origin is None:
            raise UsageError(
                f"_target_: {target}: module {module} does not exist; write the module and name of a class"
            )
        if spec.origin not in self._parsed:
            with reading(spec.origin, OSError, SyntaxError, ValueError):
                self._parsed[spec.origin] = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
        body = self._parsed[spec.origin]
        classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
        while name in classes:
            for each in classes[name].body:
                if isinstance(each, ast.Assign | ast.AnnAssign) and attribute in map(ast.unparse, _names_of(each)):
                    return _value_of(each.value)
            name = ast.unparse(classes[name].bases[0]) if classes[name].bases else ""
        for each in body:  # the base class may be imported from another module
            if isinstance(each, ast.ImportFrom) and (spec.parent if each.level else each.module):
                source = resolve_name("." * each.level + (each.module or ""), spec.parent or "")
                known = source.partition(".")[0] in (module.partition(".")[0], __name__.partition(".")[0])
                if known and (own := next((one.name for one in each.names if name == (one.asname or one.name)), "")):
                    return self.class_attribute(f"{source}.{own}", attribute)
        return None


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return a configuration's values by dotted name, such as optimizer.lr."""
    if isinstance(config, dict):
        return {k: v for name, part in config.items() for k, v in flat(part, f"{prefix}{name}.").items()}
    return {prefix[:-1]: config}


def comment_of(path: Path) -> str:
    """Return the comment at the top of a YAML file as one line."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _names_of(assignment: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]


def _value_of(value: ast.expr | None) -> Any:
    """Return the value of a literal, or the name of a class."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case None:
            return None
    return ast.literal_eval(value)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises: UsageError: the file is not valid YAML, is not a mapping, or has a key twice.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _OneOfEach) or {}  # noqa: S506, a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}; correct the file there") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a mapping; write one `key: value` per line")
    return content


class _OneOfEach(yaml.CSafeLoader):
    """A safe loader that rejects a key that occurs twice in a mapping; PyYAML itself would use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} occurs twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested mappings; values of `over` take precedence at every depth."""
    both = {
        key: _merged(base[key], over[key])
        for key in over
        if isinstance(over[key], dict) and isinstance(base.get(key), dict)
    }
    return {**base, **over, **both}


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a configuration."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
