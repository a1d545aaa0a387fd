"""Fingerprints of the code that a cell depends on: all definitions that the cell's stage and configuration use.

A definition refers to other definitions by name; references are followed, directly and indirectly, through the
project's imports. The fingerprint covers each definition's code without docstrings, comments, messages and local names
(`essence.py`), and the definitions that the code's names refer to. A definition that is moved keeps its digest, and an
edit elsewhere in the file does not change the digest. A class is included as a whole, because it is known only at run
time which methods are called. The cache of Apache Hamilton also identifies functions by their code without docstrings
and comments.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from retable.core.errors import UsageError
from retable.planning.essence import Essence, bindings

# Modules that cannot change a result, because they record runs, report mistakes or read studies. Some of these modules
# complete configurations, but a cell's plan contains the completed configuration itself.
RECORDING = (
    *("pipelines.config", "pipelines.executors", "pipelines.plan", "pipelines.study"),
    *("pipelines.app.mlflow_run", "pipelines.app.observers", "pipelines.app.run_folder", "pipelines.app.stage"),
    *("retable.core.artifacts", "retable.core.digests", "retable.core.errors", "retable.core.publishing"),
    *("retable.core.settings", "retable.core.stages", "retable.core.trust", "retable.tracking"),
    *("retable.training.callbacks", "retable.training.devices", "retable.training.signals"),
    *("retable.planning.cell", "retable.planning.conf", "retable.planning.schema", "retable.planning.study"),
)

Place = tuple[str, str]  # a module and a definition; the definition "" stands for the module's statements in `effects`


class UnknownName(UsageError):
    """A name that none of a package's modules defines, although the source code of the package is known."""


class Code:
    """The source code of the project's packages and of packages that the user trusts.

    Args:
        folders: the folder of each package by name, or the file of a package that is a single module.
        recording: modules that cannot change a result; references to these modules are ignored.
    """

    def __init__(self, folders: Mapping[str, Path], recording: Iterable[str] = RECORDING):
        self._recording, self._packages = frozenset(recording), frozenset(folders)
        self._modules = {
            _module_name(package, path, folder): _Module(path)
            for package, folder in folders.items()
            for path in (sorted(folder.rglob("*.py")) if folder.is_dir() else [folder])
        }
        self._names: dict[Place, frozenset[tuple[str, frozenset[Place], str]]] = {}
        self._digests: dict[Place, str] = {}

    def fingerprint(self, names: Iterable[str]) -> str:
        """Return the sha256 of all definitions that `names`, such as `retable.models.gpt.GPT`, depend on.

        Names in other libraries are ignored.

        Raises: UnknownName: a name belongs to one of the known packages, but no module defines the name.
        """
        linked = {f"{self._digest(place)} {self._links(place)}" for place in self.reached(names)}
        return hashlib.sha256("\n".join(sorted(linked)).encode()).hexdigest()

    def digests(self, names: Iterable[str]) -> dict[Place, str]:
        """Return the digest of each definition that `names` depend on."""
        return {place: self._digest(place) for place in self.reached(names)}

    def links(self, names: Iterable[str]) -> dict[Place, str]:
        """Return, for each definition that `names` depend on, a text that lists the definitions to which it refers."""
        return {place: self._links(place) for place in self.reached(names)}

    def reached(self, names: Iterable[str]) -> set[Place]:
        """Return the places of all definitions that `names` depend on, including the definitions of `names`."""
        waiting = [place for name in names for place in self._root(name)]
        places: set[Place] = set()
        while waiting:
            place = waiting.pop()
            if place not in places:
                places.add(place)
                waiting += self._used(place)
        return places

    def _root(self, name: str) -> set[Place]:
        if name.partition(".")[0] not in self._packages:
            return set()
        places = self._resolve(name)
        if not places and not self._records(name):
            raise UnknownName(f"{name} does not exist; write the module and name of a class or function as _target_")
        return places

    def _used(self, place: Place) -> set[Place]:
        """Return the definitions that `place` refers to, and the module's statements that do more than bind names."""
        name, definition = place
        effects = {(name, "")} if definition and self._modules[name].effects else set()
        return effects.union(*(places for _, places, _ in self._named(place))) - {place}

    def _named(self, place: Place) -> frozenset[tuple[str, frozenset[Place], str]]:
        """Return the names that `place` uses, each with its definitions or, in another library, with its full name."""
        if place not in self._names:
            name, definition = place
            module, named = self._modules[name], set()
            outer = self._imports(name) | dict.fromkeys(module.definitions, "")
            for essence in module.essences(definition):
                inner = dict(_imports(essence.imports, name, module.is_package))
                for chain in essence.names:
                    first, dot, rest = chain.partition(".")
                    places = self._look_up(name, inner, chain)
                    origin = inner.get(first) or outer.get(first) or ""
                    if places or (origin and origin.partition(".")[0] not in self._packages):
                        named.add((chain, frozenset(places), "" if places else origin + dot + rest))
            self._names[place] = frozenset(named)
        return self._names[place]

    def _links(self, place: Place) -> str:
        """Return, as text, the definitions that the names at `place` refer to.

        The text contains digests of definitions, so that the text stays the same if a definition moves to another
        module.
        """
        links = (
            f"{chain} {origin or ' '.join(sorted(map(self._digest, places)))}"
            for chain, places, origin in self._named(place)
        )
        return "\n".join(sorted(links))

    def _look_up(self, module: str, inner: Mapping[str, str], chain: str) -> set[Place]:
        """Return the definitions of `chain`, such as `F.cross_entropy`, in `module`; `inner` contains local imports."""
        first, _, rest = chain.partition(".")
        imports = self._imports(module)
        if first in inner:
            return self._resolve(".".join(filter(None, (inner[first], rest))))
        if first in self._modules[module].definitions:
            return {(module, first)}
        if first in imports:
            return self._resolve(".".join(filter(None, (imports[first], rest))))
        starred = (self._resolve(f"{other}.{first}") for other in self._stars(module))
        return next(filter(None, starred), set())

    def _resolve(self, dotted: str) -> set[Place]:
        """Return the definition of a full name; for the name of a module, all definitions in the module."""
        parts = dotted.split(".")
        name = next((n for i in range(len(parts), 0, -1) if (n := ".".join(parts[:i])) in self._modules), None)
        if name is None or self._records(name):
            return set()
        module, rest = self._modules[name], parts[name.count(".") + 1 :]
        if not rest:
            return {(name, each) for each in module.definitions} | ({(name, "")} if module.effects else set())
        return self._look_up(name, {}, ".".join(rest))

    def _imports(self, module: str) -> dict[str, str]:
        parsed = self._modules[module]
        if parsed.imports is None:
            nodes = parsed.tree.body
            parsed.imports = dict(_imports(nodes, module, parsed.is_package))
        return parsed.imports

    def _stars(self, module: str) -> list[str]:
        """Return the modules that `module` imports by `from … import *`."""
        parsed = self._modules[module]
        return [_source(node, module, parsed.is_package) for node in parsed.stars]

    def _records(self, name: str) -> bool:
        return any(name == each or name.startswith(f"{each}.") for each in self._recording)

    def _digest(self, place: Place) -> str:
        if place not in self._digests:
            module, definition = place
            texts = [essence.text for essence in self._modules[module].essences(definition)]
            texts += self._modules[module].compiled
            self._digests[place] = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        return self._digests[place]


@dataclass
class _Module:
    path: Path
    imports: dict[str, str] | None = field(default=None, init=False)  # maps names that imports bind to full names
    _essences: dict[int, Essence] = field(default_factory=dict, init=False)  # by a statement's position

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def compiled(self) -> list[str]:
        """Return the words of the C file and the YAML file that have the same name as the module.

        All definitions of the module depend on these words.
        """
        source, data = self.path.with_suffix(".c"), self.path.with_suffix(".yaml")
        words: list[str] = []
        if source.exists():
            words += re.sub(r"/\*.*?\*/", "", source.read_text(encoding="utf-8"), flags=re.DOTALL).split()
        if data.exists():
            words += re.sub(r"(^|\s)#.*", "", data.read_text(encoding="utf-8")).split()
        return words

    @cached_property
    def definitions(self) -> dict[str, list[int]]:
        """Return, for each name, the positions of the module's statements that bind the name."""
        places: dict[str, list[int]] = {}
        for place, node in enumerate(self.tree.body):
            for name in _bound(node):
                places.setdefault(name, []).append(place)
        return places

    @cached_property
    def effects(self) -> list[int]:
        """Return the positions of statements that do more on import than bind names."""
        return [place for place, node in enumerate(self.tree.body) if _acts(node)]

    @cached_property
    def stars(self) -> list[ast.ImportFrom]:
        return [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]

    def essences(self, definition: str) -> list[Essence]:
        """Return the essences of the statements that bind `definition`.

        If `definition` is "", return the essences of the statements that do more on import than bind names.
        """
        places = self.definitions[definition] if definition else self.effects
        self._essences |= {place: Essence(self.tree.body[place]) for place in {*places} - self._essences.keys()}
        return [self._essences[place] for place in places]


def _module_name(package: str, path: Path, folder: Path) -> str:
    if path == folder:
        return package
    parts = (package, *path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at module level binds, except names bound by imports."""
    if not (isinstance(node, ast.If) and (_is_for_types(node) or _is_main(node))):
        yield from (name for name, each in bindings([node]) if not isinstance(each, ast.Import | ast.ImportFrom))


def _acts(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return False
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.If() if _is_for_types(node) or _is_main(node):
            return False
        case ast.Assign(targets=targets):
            return not all(isinstance(each, ast.Name | ast.Tuple) for each in targets)
        case ast.AnnAssign(target=ast.Name()):
            return False
    return True


def _is_for_types(node: ast.If) -> bool:
    return "TYPE_CHECKING" in ast.dump(node.test)


def _is_main(node: ast.If) -> bool:
    return "'__main__'" in ast.dump(node.test)


def _imports(nodes: Iterable[ast.stmt], module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Yield the names that the import statements in `nodes` bind, each with its full name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (first := alias.name.partition(".")[0], first)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, module, is_package)
            for alias in node.names:
                yield alias.asname or alias.name, f"{source}.{alias.name}"


def _source(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Return the full name of the module that `from … import` in `module` reads."""
    if not node.level:
        return node.module or ""
    up = module.split(".")[: len(module.split(".")) - node.level + is_package]
    return ".".join([*up, *([node.module] if node.module else [])])
