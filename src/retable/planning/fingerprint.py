"""Which code a cell's numbers come of: the definitions that its stage and its configuration reach, and their digest.

Names are followed, not files: from a function, class or constant to those that its body names, through the project's
imports. A definition counts by its essence (`essence.py`), which has no docstrings, comments, messages and local names,
and by what its names stand for. So a definition that moves keeps its digest, and an edit elsewhere in its file changes
nothing. A class counts whole, since its methods are called on objects whose class only shows at run time. Apache
Hamilton's cache keys functions alike, by their code without docstrings and comments.
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

# What records a run, reports mistakes, or reads a study, whose cells stand in its report's plan: it decides no number.
# Nor does what fills in a configuration, on which a cell depends as it then is.
RECORDING = (
    *("pipelines.config", "pipelines.executors", "pipelines.plan", "pipelines.study"),
    *("pipelines.app.mlflow_run", "pipelines.app.observers", "pipelines.app.run_folder", "pipelines.app.stage"),
    *("retable.core.artifacts", "retable.core.digests", "retable.core.errors", "retable.core.publishing"),
    *("retable.core.settings", "retable.core.stages", "retable.core.trust", "retable.tracking"),
    *("retable.training.callbacks", "retable.training.devices", "retable.training.signals"),
    *("retable.planning.cell", "retable.planning.conf", "retable.planning.schema", "retable.planning.study"),
)

Place = tuple[str, str]  # module, definition; "" for what a module does when it is imported


class UnknownName(UsageError):
    """A name of a package whose source is known, that nothing there defines."""


class Code:
    """The source of packages: the project's own, and those that the user trusts. `folders` gives each one's folder by
    its name, or the file of a package that is a single module."""

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
        """The sha256 of all that the definitions `names` reach, such as `retable.models.gpt.GPT`, and of their links.

        UnknownName for a name of these packages that nothing defines; a name of another library is passed over.
        """
        linked = {f"{self._digest(place)} {self._links(place)}" for place in self.reached(names)}
        return hashlib.sha256("\n".join(sorted(linked)).encode()).hexdigest()

    def digests(self, names: Iterable[str]) -> dict[Place, str]:
        """The digest of each definition that `names` reach."""
        return {place: self._digest(place) for place in self.reached(names)}

    def links(self, names: Iterable[str]) -> dict[Place, str]:
        """Of each definition that `names` reach, what its names stand for."""
        return {place: self._links(place) for place in self.reached(names)}

    def reached(self, names: Iterable[str]) -> set[Place]:
        """The places of all definitions that `names` reach, themselves among them."""
        waiting = [place for name in names for place in self._root(name)]
        found: set[Place] = set()
        while waiting:
            place = waiting.pop()
            if place not in found:
                found.add(place)
                waiting += self._used(place)
        return found

    def _root(self, name: str) -> set[Place]:
        if name.partition(".")[0] not in self._packages:
            return set()
        places = self._resolve(name)
        if not places and not self._records(name):
            raise UnknownName(f"there is no {name}; write as _target_ the module and name of one that there is")
        return places

    def _used(self, place: Place) -> set[Place]:
        """What the definition at `place` names, and what its module does beside defining."""
        name, definition = place
        effects = {(name, "")} if definition and self._modules[name].effects else set()
        return effects.union(*(places for _, places, _ in self._named(place))) - {place}

    def _named(self, place: Place) -> frozenset[tuple[str, frozenset[Place], str]]:
        """The names that the definition at `place` reads, with the definitions that each stands for, or its full name
        in another library."""
        if place not in self._names:
            name, definition = place
            module, found = self._modules[name], set()
            outer = self._imports(name) | dict.fromkeys(module.definitions, "")
            for essence in module.essences(definition):
                inner = dict(_imports(essence.imports, name, module.is_package))
                for chain in essence.names:
                    first, dot, rest = chain.partition(".")
                    places = self._look_up(name, inner, chain)
                    origin = inner.get(first) or outer.get(first) or ""
                    if places or (origin and origin.partition(".")[0] not in self._packages):
                        found.add((chain, frozenset(places), "" if places else origin + dot + rest))
            self._names[place] = frozenset(found)
        return self._names[place]

    def _links(self, place: Place) -> str:
        """What the names of the definition at `place` stand for: of definitions their digests, so that one may move."""
        links = (
            f"{chain} {origin or ' '.join(sorted(map(self._digest, places)))}"
            for chain, places, origin in self._named(place)
        )
        return "\n".join(sorted(links))

    def _look_up(self, module: str, inner: Mapping[str, str], chain: str) -> set[Place]:
        """What `chain`, such as `F.cross_entropy`, stands for in `module`, in a definition that imports `inner`."""
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
        """The definition that a full name ends at, or all of a module that is named alone."""
        parts = dotted.split(".")
        name = next((n for i in range(len(parts), 0, -1) if (n := ".".join(parts[:i])) in self._modules), None)
        if name is None or self._records(name):
            return set()
        module, rest = self._modules[name], parts[name.count(".") + 1 :]
        if not rest:
            return {(name, each) for each in module.definitions} | ({(name, "")} if module.effects else set())
        return self._look_up(name, {}, ".".join(rest))

    def _imports(self, module: str) -> dict[str, str]:
        found = self._modules[module]
        if found.imports is None:
            nodes = found.tree.body
            found.imports = dict(_imports(nodes, module, found.is_package))
        return found.imports

    def _stars(self, module: str) -> list[str]:
        """The modules whose names it imports as a whole."""
        found = self._modules[module]
        return [_source(node, module, found.is_package) for node in found.stars]

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
    imports: dict[str, str] | None = field(default=None, init=False)  # of the module's own level, by the name they bind
    _essences: dict[int, Essence] = field(default_factory=dict, init=False)  # by the statement's place in the module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def compiled(self) -> list[str]:
        """The words of the C source and the data of the module's name, without comments: each definition needs them."""
        source, data = self.path.with_suffix(".c"), self.path.with_suffix(".yaml")
        words: list[str] = []
        if source.exists():
            words += re.sub(r"/\*.*?\*/", "", source.read_text(encoding="utf-8"), flags=re.DOTALL).split()
        if data.exists():
            words += re.sub(r"(^|\s)#.*", "", data.read_text(encoding="utf-8")).split()
        return words

    @cached_property
    def definitions(self) -> dict[str, list[int]]:
        """The statements that bind a name, by their places in the module: several where it is bound more than once."""
        found: dict[str, list[int]] = {}
        for place, node in enumerate(self.tree.body):
            for name in _bound(node):
                found.setdefault(name, []).append(place)
        return found

    @cached_property
    def effects(self) -> list[int]:
        """The statements that do something when the module is imported, beside binding names."""
        return [place for place, node in enumerate(self.tree.body) if _acts(node)]

    @cached_property
    def stars(self) -> list[ast.ImportFrom]:
        return [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]

    def essences(self, definition: str) -> list[Essence]:
        """Those of the statements that define it; for "", of those that act."""
        places = self.definitions[definition] if definition else self.effects
        self._essences |= {place: Essence(self.tree.body[place]) for place in {*places} - self._essences.keys()}
        return [self._essences[place] for place in places]


def _module_name(package: str, path: Path, folder: Path) -> str:
    if path == folder:
        return package
    parts = (package, *path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module's own level binds, imports apart."""
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
    """The names that the imports among statements bind, with what they stand for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (first := alias.name.partition(".")[0], first)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, module, is_package)
            for alias in node.names:
                yield alias.asname or alias.name, f"{source}.{alias.name}"


def _source(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that `module` imports names from."""
    if not node.level:
        return node.module or ""
    up = module.split(".")[: len(module.split(".")) - node.level + is_package]
    return ".".join([*up, *([node.module] if node.module else [])])
