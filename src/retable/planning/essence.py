"""Write the syntax of a definition as a text that changes only if a change of the code can change a result.

The text does not contain docstrings, comments and positions in the file. Import statements are left out, too, because
an imported name is part of the text where the name is used. Annotations are part of the text only in classes, because
decorators of classes may read annotations.

Strings that are only printed are not part of the text:

- strings in `raise X(…)`, and all arguments of a UsageError
- messages of `assert`
- strings in `warn(…)`, in `tqdm(…)`, and in `print(…)` to the terminal

Expressions inside the f-strings of `warn`, `tqdm` and `print` are evaluated, so these expressions are part of the text.
Expressions in `raise` and `assert` are not part of the text.

Local names are replaced by numbers in the order of their first use, so a consistent renaming does not change the text.
The text contains these names unchanged:

- Parameters of methods and of a module's functions, because callers, `_target_` in YAML, Lightning and Hydra use the
  names. Parameters whose names no caller uses (before `/`, `*args`, `**kw`) are numbered.
- Some parameters of lambdas and inner functions: keyword-only parameters, parameters that the same definition passes by
  keyword in any call, and all parameters next to `**kw`, which would accept an old name. Calls by keyword from another
  definition are not found. After a renaming such calls fail; results change only if two parameters exchange names.
- Names of inner classes, which code can read as text.
- Names and parameters of decorated inner functions, which the decorator can read.
- Names of inner functions, if the definition reads `__name__`; parameters of inner functions, if the definition uses
  `inspect.signature`.
- All local names, if the definition uses `locals`, `eval`, `exec` or similar. The string f"{x=}" contains the name x.
- Names bound in a class or by an import, attributes, keywords, and global names.

Scopes follow Python's reference, "Naming and binding". The module symtable is not used: from Python 3.12 on, symtable
merges the scope of most comprehensions with the scope of the surrounding function.
"""

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_READ_LOCALS = {"locals", "currentframe", "_getframe", "f_locals", "getsource"}
_READ_PARAMETERS = {"signature", "getfullargspec", "getcallargs", "__code__", "__kwdefaults__"}
_PRINTERS = {"print", "warn", "warnings.warn", "tqdm"}
_IGNORED = {"ctx", "kind", "type_comment"}  # `ctx` (load or store) follows from the position of a name
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass
class _Scope:
    """Names that a function, lambda, comprehension or class binds. Module-level names belong to no scope."""

    outer: "_Scope | None"
    is_class: bool = False
    local: dict[str, str] = field(default_factory=dict)  # text written for each name; "" before its first use
    by_name: set[str] = field(default_factory=set)  # names declared global, bound by an import, or bound in a class
    enclosing: set[str] = field(default_factory=set)  # names declared nonlocal


class Essence(ast.NodeVisitor):
    """A statement of a module as a text that changes only if a change of the statement can change a result.

    text: the syntax, with local names numbered.
    names: the non-local names that the statement reads, including attributes, such as `np` or `np.random.default_rng`.
    imports: the import statements in the statement; if the statement is itself an import, only this import.
    """

    def __init__(self, statement: ast.stmt):
        self.names: set[str] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self._keywords: set[str] = set()
        self._reads_locals = self._reads_parameters = self._reads_names = False
        self._survey(statement)
        self._out: list[str] = []
        self._scope: _Scope | None = None
        self._numbered = 0
        self._printed: set[int] = set()  # ids of the constants that are only printed
        self._collects = True
        self.visit(statement)
        self.text = "".join(self._out)

    def _survey(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append(node)
            elif isinstance(node, ast.keyword):
                self._keywords.add(node.arg or "")
            elif isinstance(node, ast.Name | ast.Attribute):
                name = node.id if isinstance(node, ast.Name) else node.attr
                self._reads_locals |= name in _READ_LOCALS
                self._reads_parameters |= name in _READ_PARAMETERS
                self._reads_names |= name in ("__name__", "__qualname__")
            elif isinstance(node, ast.Call):
                self._reads_locals |= _reads_locals(node)

    def generic_visit(self, node: ast.AST) -> None:
        self._out.append(f"{type(node).__name__}(")
        for name in node._fields:
            if name not in _IGNORED:
                self._write(name, getattr(node, name, None))
        self._out.append(")")

    def _write(self, name: str, value: object) -> None:
        """Write a part of a node.

        Empty parts are not written, because versions of Python have different empty parts.
        """
        if isinstance(value, ast.AST):
            self._out.append(f"{name}=")
            self.visit(value)
        elif isinstance(value, list) and value:
            self._out.append(f"{name}=[")
            for each in value:
                if isinstance(each, ast.AST):
                    self.visit(each)
                else:
                    self._out.append(f"{each!r},")
            self._out.append("]")
        elif value is not None and value != []:
            self._out.append(f"{name}={value!r},")

    # Names

    def _resolved(self, name: str) -> tuple[str, bool]:
        """Return the text to write for a name in the present scope, and whether the name is local to a function."""
        scope = self._scope
        while scope is not None:
            if name in scope.by_name and (not scope.is_class or scope is self._scope):
                break
            if name in scope.local and name not in scope.enclosing:
                if not scope.local[name]:
                    scope.local[name] = f"${self._numbered}"
                    self._numbered += 1
                return scope.local[name], True
            scope = scope.outer
        return name, False

    def visit_Name(self, node: ast.Name) -> None:
        name, is_local = self._resolved(node.id)
        self._out.append(f"Name({name})")
        if self._collects and not is_local and isinstance(node.ctx, ast.Load):
            self.names.add(name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        self._out.append(f"Attribute({'.'.join(parts)},")
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            name, is_local = self._resolved(inner.id)
            self._out.append(name)
            if self._collects and not is_local:
                self.names.add(".".join([name, *parts]))
        else:
            self.visit(inner)
        self._out.append(")")

    def visit_Global(self, node: ast.Global) -> None:
        self._out.append(f"Global({node.names})")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._out.append(f"Nonlocal({[self._resolved(name)[0] for name in node.names]})")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._binding(node, "name", node.name)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._binding(node, "name", node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._binding(node, "name", node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._binding(node, "rest", node.rest)

    def _binding(self, node: ast.AST, part: str, name: str | None) -> None:
        """Write a node that binds a name and stores this name as a string in its field `part`."""
        self._out.append(f"{type(node).__name__}(")
        for each in node._fields:
            self._write(each, self._resolved(name)[0] if each == part and name else getattr(node, each))
        self._out.append(")")

    # Scopes

    @contextmanager
    def _inside(self, scope: _Scope) -> Iterator[None]:
        before, self._scope = self._scope, scope
        yield
        self._scope = before

    def _function_scope(self, body: Iterable[ast.AST], arguments: ast.arguments, is_public: bool) -> _Scope:
        scope = _Scope(self._scope, local=dict.fromkeys(_parameters(arguments), ""))
        for name, node in bindings(body):
            match node:
                case ast.Global() | ast.Import() | ast.ImportFrom():
                    scope.by_name.add(name)
                case ast.Nonlocal():
                    scope.enclosing.add(name)
                case _:
                    scope.local[name] = name if self._is_read(node) else scope.local.get(name, "")
        only = {each.arg for each in arguments.kwonlyargs} | self._keywords
        for each in (*arguments.args, *arguments.kwonlyargs):
            if is_public or self._reads_parameters or arguments.kwarg or each.arg in only:
                scope.local[each.arg] = each.arg
        if self._reads_locals:
            scope.local = {name: name for name in scope.local}
        return scope

    def _is_read(self, node: ast.AST) -> bool:
        """Return whether `node` is a function whose name code may read as text."""
        return isinstance(node, _Function) and (self._reads_names or bool(node.decorator_list))

    def visit_FunctionDef(self, node: _Function) -> None:
        is_public = self._scope is None or self._scope.is_class or bool(node.decorator_list)
        self._out.append(f"{type(node).__name__}({self._resolved(node.name)[0]},")
        self._write("decorators", node.decorator_list)
        self._function(node.args, _without_docstring(node), is_public)
        self._out.append(")")

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._out.append("Lambda(")
        self._function(node.args, [node.body], is_public=False)
        self._out.append(")")

    def _function(self, arguments: ast.arguments, body: list[ast.AST], is_public: bool) -> None:
        self._write("defaults", arguments.defaults)
        self._write("kw_defaults", arguments.kw_defaults)
        with self._inside(self._function_scope(body, arguments, is_public)):
            for part in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
                self._write(part, getattr(arguments, part))
            self._write("body", body)

    def visit_arg(self, node: ast.arg) -> None:
        self._out.append(f"{self._resolved(node.arg)[0]},")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._out.append(f"ClassDef({node.name},")
        for part in ("bases", "keywords", "decorator_list"):
            self._write(part, getattr(node, part))
        bound = {name for name, each in bindings(node.body) if not isinstance(each, ast.Nonlocal)}
        with self._inside(_Scope(self._scope, is_class=True, by_name=bound)):
            self._write("body", _without_docstring(node))
        self._out.append(")")

    def visit_ListComp(self, node: _Comprehension) -> None:
        first, *others = node.generators
        self._out.append(f"{type(node).__name__}(")
        self.visit(first.iter)
        bound = {name for each in node.generators for name, _ in bindings([each.target])}
        local = {name: name if self._reads_locals else "" for name in bound}
        with self._inside(_Scope(self._scope, local=local)):
            for each in node.generators:
                self._out.append(f"{each.is_async},")
                if each in others:
                    self.visit(each.iter)
                self.visit(each.target)
                self._write("ifs", each.ifs)
            for part in ("key", "value", "elt"):
                self._write(part, getattr(node, part, None))
        self._out.append(")")

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    # Parts that are left out

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        pass

    visit_ImportFrom = visit_Import

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if self._scope is not None and self._scope.is_class:
            before, self._collects = self._collects, False
            self._write("annotation", node.annotation)
            self._collects = before
        if node.value is not None:
            self.visit(ast.Assign([node.target], node.value))
        elif self._scope is None or self._scope.is_class:
            self.visit(node.target)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._out.append("Raise(")
        if isinstance(node.exc, ast.Call):
            self.visit(node.exc.func)
            if ast.unparse(node.exc.func) != "UsageError":
                self._write("args", [each for each in node.exc.args if not any(_words(each))])
                self._write("keywords", [each for each in node.exc.keywords if not any(_words(each.value))])
        else:
            self._write("exc", node.exc)
        self._out.append(")")

    def visit_Assert(self, node: ast.Assert) -> None:
        self._out.append("Assert(")
        self.visit(node.test)
        self._out.append(")")

    def visit_Call(self, node: ast.Call) -> None:
        if self._prints(node):
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                self._printed |= set(map(id, _words(each)))
        self.generic_visit(node)

    def _prints(self, call: ast.Call) -> bool:
        """Return whether the call only prints its strings on the terminal."""
        name = ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""
        file = next((ast.unparse(each.value) for each in call.keywords if each.arg in ("file", None)), "sys.stderr")
        return name in _PRINTERS and file == "sys.stderr" and not self._resolved(name)[1]

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._out.append("JoinedStr(")  # Python 3.12 adds an empty string to some format specifications
        self._write("values", [each for each in node.values if getattr(each, "value", None) != ""])
        self._out.append(")")

    def visit_Constant(self, node: ast.Constant) -> None:
        if id(node) not in self._printed:
            self._out.append(f"{node.value!r},")


def bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield each name that nodes of one scope bind or declare, with the node that binds or declares the name."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name):
                if not isinstance(node.ctx, ast.Load):
                    yield name, node
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
                waiting += [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
            case ast.ClassDef():
                yield node.name, node
                waiting += [*node.decorator_list, *node.bases, *node.keywords]
            case ast.Lambda():
                waiting += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            case ast.comprehension():  # its targets are bound in an inner scope, names of `:=` in this scope
                waiting += [node.iter, *node.ifs]
            case ast.Import() | ast.ImportFrom():
                yield from ((each.asname or each.name.partition(".")[0], node) for each in node.names)
            case ast.Global() | ast.Nonlocal():
                yield from ((name, node) for name in node.names)
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                yield from [(name, node)] if name else []
                waiting += ast.iter_child_nodes(node)
            case ast.MatchMapping(rest=name):
                yield from [(name, node)] if name else []
                waiting += ast.iter_child_nodes(node)
            case _:
                waiting += ast.iter_child_nodes(node)


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    every = (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg)
    return (each.arg for each in every if each)


def _words(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the strings and f-strings in an expression whose value is a text; yield nothing for other expressions."""
    match node:
        case ast.Constant(value=str()):
            yield node
        case ast.JoinedStr(values=parts):
            yield node
            for each in parts:
                yield from _words(each)
        case ast.FormattedValue(format_spec=ast.JoinedStr() as form):
            yield from _words(form)
        case ast.BinOp(left=first, op=ast.Add() | ast.Mod(), right=second) | ast.IfExp(body=first, orelse=second):
            yield from _words(first)
            yield from _words(second)
        case ast.Call(func=ast.Attribute(value=text)):
            yield from _words(text)


def _reads_locals(call: ast.Call) -> bool:
    """Return whether a call is `eval`, `exec`, `vars()` or `dir()` without an object, or pandas' `query("@name …")`."""
    match call.func:
        case ast.Name(id="eval" | "exec") | ast.Attribute(value=ast.Name(id="builtins"), attr="eval" | "exec"):
            return True
        case ast.Name(id="vars" | "dir"):
            return not call.args
        case ast.Attribute(attr="query" | "eval"):
            return any(any(_words(each)) for each in call.args)
    return False


def _without_docstring(node: _Function | ast.ClassDef) -> list[ast.AST]:
    return [*node.body[ast.get_docstring(node, clean=False) is not None :]]
