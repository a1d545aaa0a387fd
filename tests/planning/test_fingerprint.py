"""Test kinds of edits, and what they make stale: in a small package, and in the project's code."""

import ast
import dis
import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from retable.planning.essence import Essence
from retable.planning.fingerprint import Code, UnknownName

ROOT = Path(__file__).parent.parent.parent
VERB = "pipelines.pretrain.learn"
TRAINING = (VERB, "retable.training.optimizers.adamw", "retable.training.schedules.warmup_cosine")
SYSTEMS = {
    "kn5": ("pipelines.pretrain.count", "retable.models.ngram.KneserNey"),
    "lstm": (*TRAINING, "retable.models.recurrent.LSTM", "retable.objectives.causal_lm.CausalLM"),
    "gpt": (*TRAINING, "retable.models.gpt.GPT", "retable.objectives.causal_lm.CausalLM"),
    "bert": (*TRAINING, "retable.models.bert.BERT", "retable.objectives.masked_lm.MaskedLM"),
    "grammar": ("retable.grammar.corpus.write_corpus",),
}

SMALL = {
    "stage.py": '''
"""A stage."""
from small.errors import UsageError
from small.layers import width
import small.numbers as numbers

SCALE = 2  # of everything

def run(x: int) -> float:
    """What it gives."""
    if x < 0:
        raise UsageError(f"{x} is below zero")
    y: float = numbers.double(x) * width(x)
    return y * SCALE

def unused(x):
    return x - 1
''',
    "layers.py": '''
import functools

from small import numbers
from small.numbers import *

@functools.cache
def width(x):
    return half(x) + Layer(x).size

class Layer:
    """A layer."""
    size: int = 3

    def __init__(self, x):
        self.x = x

    def never_called(self):
        return numbers.triple(self.x)
''',
    "numbers.py": """
BASE = 2
OTHER = 5

def double(x):
    return BASE * x

def triple(x):
    return 3 * x

def half(x):
    return x / BASE

def fifth(x):
    return x / OTHER
""",
    "errors.py": "class UsageError(Exception):\n    pass\n",
}


@pytest.fixture
def small(tmp_path):
    for name, text in SMALL.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def fingerprint(folder, name="small.stage.run"):
    return Code({"small": folder}, recording=["small.errors"]).fingerprint([name])


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_names_are_followed_and_not_files(small):
    reached = Code({"small": small}, recording=["small.errors"]).reached(["small.stage.run"])
    assert reached == {
        *(("small.stage", name) for name in ("run", "SCALE")),
        *(("small.layers", name) for name in ("width", "Layer")),
        *(("small.numbers", name) for name in ("double", "half", "triple", "BASE")),
    }


@pytest.mark.parametrize(("changes", "file", "old", "new"), [
    (False, "stage.py", "# of everything", "# of all"),
    (False, "stage.py", '"""What it gives."""', '"""What it gives back."""'),
    (False, "stage.py", '    """What it gives."""\n', ""),
    (False, "stage.py", "is below zero", "must not be below zero"),
    (False, "stage.py", "x: int) -> float", "x: float) -> int"),
    (False, "stage.py", "y: float =", "y ="),
    (False, "stage.py", "return x - 1", "return x - 2"),
    (False, "layers.py", '"""A layer."""', ""),
    (False, "numbers.py", "OTHER = 5", "OTHER = 6"),
    (False, "numbers.py", "    return BASE * x", "\n    # twice\n    return (BASE\n  * x)"),
    (False, "errors.py", "pass", "code = 2"),
    (True, "stage.py", "SCALE = 2", "SCALE = 3"),
    (True, "stage.py", "* width(x)", "+ width(x)"),
    (True, "stage.py", "x < 0", "x < 1"),
    (True, "layers.py", "@functools.cache\n", ""),
    (True, "layers.py", "size: int = 3", "size: int = 4"),
    (True, "layers.py", "triple(self.x)", "double(self.x)"),  # a method counts, whatever calls it
    (True, "numbers.py", "BASE = 2", "BASE = 3"),
    (True, "numbers.py", "x / BASE", "x // BASE"),
    (True, "numbers.py", "BASE = 2\n", "import os\n\nBASE = 2\nos.environ.setdefault('X', '1')\n"),
])  # fmt: skip
def test_what_may_change_a_number_changes_the_fingerprint(small, changes, file, old, new):
    before = fingerprint(small)
    edit(small / file, old, new)
    assert (fingerprint(small) != before) == changes


BINDINGS = """
import tools.fast
from math import floor as whole
from statistics import mean

from small.numbers import double as first
from small.numbers import half as second

def run(x):
    return first(whole(x)) - second(mean([x])) + tools.fast.sum(x)
"""


@pytest.mark.parametrize(("old", "new"), [
    ("double as first\nfrom small.numbers import half as", "half as first\nfrom small.numbers import double as"),
    ("floor as whole", "ceil as whole"),
    ("from statistics import mean", "from numpy import mean"),
    ("import tools.fast", "import others as tools"),
])  # fmt: skip
def test_what_a_name_stands_for_counts(small, old, new):
    (small / "a.py").write_text(BINDINGS)
    before = fingerprint(small, "small.a.run")
    edit(small / "a.py", old, new)
    assert fingerprint(small, "small.a.run") != before


def essence(source: str) -> str:
    return Essence(ast.parse(source).body[0]).text


@pytest.mark.parametrize(("source", "renamed"), [
    ("def f(a):\n b = a + 1\n return b", "def f(a):\n c = a + 1\n return c"),
    ("def f():\n a, (b, *c) = g()\n return a, b, c", "def f():\n b, (c, *a) = g()\n return b, c, a"),
    ("def f(a, /, *b, **c): return a, b, c", "def f(c, /, *a, **b): return c, a, b"),
    ("class A:\n def f(self, a, /): return a", "class A:\n def f(self, b, /): return b"),
    ("async def f():\n async with g() as a: return a", "async def f():\n async with g() as b: return b"),
    ("def f():\n a = 1\n a += 2\n del a", "def f():\n b = 1\n b += 2\n del b"),
    ("def f():\n for a in g(): h(a)", "def f():\n for b in g(): h(b)"),
    ("def f():\n try: g()\n except E as a: h(a)", "def f():\n try: g()\n except E as b: h(b)"),
    ("X = [a for a in g() if a]", "X = [b for b in g() if b]"),
    ("X = {a: b for a, b in g()}", "X = {b: a for b, a in g()}"),
    ("X = [[a for a in a] for a in g()]", "X = [[b for b in a] for a in g()]"),
    ("def f(a): return [a for a in a]", "def f(a): return [b for b in a]"),
    ("def f(): return [(b := a) for a in g()], b", "def f(): return [(a := b) for b in g()], a"),
    ("X = sorted(g(), key=lambda a: -a)", "X = sorted(g(), key=lambda b: -b)"),
    ("X = lambda a, b=h, *c: a - b", "X = lambda b, c=h, *a: b - c"),
    ("def f():\n def a(b): return b\n return a", "def f():\n def b(a): return a\n return b"),
    ("def f():\n a = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a",
     "def f():\n b = 1\n def g():\n  nonlocal b\n  b = 2\n g()\n return b"),
    ("def f():\n a = 1\n class A:\n  b = a\n return A", "def f():\n c = 1\n class A:\n  b = c\n return A"),
    ("def f():\n a = 1\n class A:\n  a = 2\n  b = a\n return a",
     "def f():\n c = 1\n class A:\n  a = 2\n  b = a\n return c"),
    ("def f():\n a = 1\n class A:\n  a = 2\n  def g(self): return a",
     "def f():\n c = 1\n class A:\n  a = 2\n  def g(self): return c"),
    ("def f(x):\n match x:\n  case [a, *b, {'k': c, **d}] as e: return a, b, c, d, e",
     "def f(x):\n match x:\n  case [b, *c, {'k': d, **e}] as a: return b, c, d, e, a"),
    ("def f(x):\n match x:\n  case A(y=a): return a", "def f(x):\n match x:\n  case A(y=b): return b"),
    ("def f():\n if g():\n  a: int = 1", "def f():\n if g():\n  a: float = 1"),
    ("def f() -> int:\n a: int\n a = 1", "def f():\n a = 1"),
    ("def f(x):\n a = x.eval()\n return a, vars(x)", "def f(x):\n b = x.eval()\n return b, vars(x)"),
    ("def f(x):\n a = inspect.signature(x)\n return a", "def f(x):\n b = inspect.signature(x)\n return b"),
])  # fmt: skip
def test_a_renaming_of_local_names_changes_nothing(source, renamed):
    assert essence(source) == essence(renamed)


@pytest.mark.parametrize(("source", "other"), [
    ("def f(a, b): return a - b", "def f(a, b): return b - a"),
    ("def f(a, b): return a", "def f(b, a): return a"),
    ("def f(*, a, b): return a", "def f(*, b, a): return a"),
    ("def f(a): return a", "def f(b): return b"),  # callers may pass the argument by keyword
    ("class A:\n def f(self, a): return a", "class A:\n def f(self, b): return b"),
    ("def f(a, /): return a", "def f(*a): return a"),
    ("def f(*a, **b): return a", "def f(*a, **b): return b"),
    ("X = lambda a, b: a - b", "X = lambda a, b: b - a"),
    ("X = lambda *, a: a", "X = lambda *, b: b"),
    ("X = lambda a=1, **b: a", "X = lambda c=1, **b: c"),
    ("def f():\n g = lambda a, b: a - b\n return g(a=1, b=2)",
     "def f():\n g = lambda b, a: b - a\n return g(a=1, b=2)"),
    ("def f():\n @h\n def g(a): return a", "def f():\n @h\n def g(b): return b"),
    ("def f():\n @h\n def g(): pass", "def f():\n @h\n def k(): pass"),
    ("def f():\n def g(): pass\n return g.__name__", "def f():\n def h(): pass\n return h.__name__"),
    ("def f():\n class A: pass\n return A", "def f():\n class B: pass\n return B"),
    ("def f():\n a, b = g()\n return a", "def f():\n a, b = g()\n return b"),
    ("def f():\n a = b = 1\n return a", "def f():\n a = b = 1\n return c"),
    ("def f():\n a = 1\n return b", "def f():\n b = 1\n return b"),  # a global name becomes local
    ("def f():\n global a\n a = 1", "def f():\n a = 1"),
    ("def f():\n global a\n a = 1", "def f():\n global b\n b = 1"),
    ("def f():\n global a\n import a", "def f():\n import a"),
    ("def f():\n a = 1\n def g(): a = 2\n g()\n return a", "def f():\n a = 1\n def g(): b = 2\n g()\n return b"),
    ("def f():\n a = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a",
     "def f():\n a = 1\n def g():\n  a = 2\n g()\n return a"),
    ("def f():\n a = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a",
     "def f():\n a = 1\n def g():\n  global a\n  a = 2\n g()\n return a"),
    ("def f():\n a = b = 1\n def g():\n  nonlocal a\n  a = 2\n g()\n return a",
     "def f():\n a = b = 1\n def g():\n  nonlocal b\n  b = 2\n g()\n return a"),
    ("X = [a for a in g()]", "X = [a for a in h()]"),
    ("X = [a for a in g() if a]", "X = [a for a in g() if not a]"),
    ("X = [a for b in g() for a in b]", "X = [a for b in g() for a in h(b)]"),
    ("def f(): return [a for a in g()], a", "def f(): return [b for b in g()], b"),
    ("def f(a=1): pass", "def f(a=2): pass"),
    ("def f(*, a=1): pass", "def f(*, a=2): pass"),
    ("@a\ndef f(): pass", "@b\ndef f(): pass"),
    ("def f():\n a = b = 1\n return lambda: a", "def f():\n a = b = 1\n return lambda: b"),
    ("def f():\n a = 1\n return lambda a: a", "def f():\n a = 1\n return lambda b: a"),
    ("X = [[a for b in g()] for a in h()]", "X = [[b for b in g()] for a in h()]"),
    ("X = [a for a in g() for b in h()]", "X = [a for b in g() for a in h()]"),
    ("def f(a): return [a for b in a]", "def f(a): return [b for b in a]"),
    ("def f(): return [(b := a) for a in g()], b", "def f(): return [(c := a) for a in g()], b"),
    ("class A:\n a = 1\n b = 2", "class A:\n b = 1\n a = 2"),
    ("class A:\n a: int = 1", "class A:\n a: float = 1"),
    ("class A:\n a = 1\n def f(self): return a", "class A:\n b = 1\n def f(self): return b"),
    ("def f():\n a = 1\n class A:\n  a = a\n return A", "def f():\n c = 1\n class A:\n  a = c\n return A"),
    ("class A:\n a = g()\n X = [a for b in a]", "class A:\n a = g()\n X = [b for b in a]"),
    ("def f(x): return g(a=x)", "def f(x): return g(b=x)"),
    ("def f(x): return x.a", "def f(x): return x.b"),
    ("def f():\n a = 1\n return f'{a=}'", "def f():\n b = 1\n return f'{b=}'"),
    ("def f():\n a = 1\n return locals()", "def f():\n b = 1\n return locals()"),
    ("def f():\n a = 1\n return vars()", "def f():\n b = 1\n return vars()"),
    ("def f():\n a = 1\n return eval('a')", "def f():\n b = 1\n return eval('a')"),
    ("def f():\n a = 1\n return builtins.eval('a')", "def f():\n b = 1\n return builtins.eval('a')"),
    ("def f(): return inspect.signature(lambda a: a)", "def f(): return inspect.signature(lambda b: b)"),
    ("def f(x):\n a = 1\n return x.query('c > @a')", "def f(x):\n b = 1\n return x.query('c > @a')"),
    ("def f():\n import a\n return a", "def f():\n import b\n return b"),
    ("def f():\n try: g()\n except A as a: h(a)", "def f():\n try: g()\n except A as a: h(b)"),
    ("def f(x):\n match x:\n  case [a, b]: return a", "def f(x):\n match x:\n  case [a, b]: return b"),
    ("def f(x):\n match x:\n  case A(y=a): return a", "def f(x):\n match x:\n  case A(z=a): return a"),
    ("def f(x):\n match x:\n  case {'k': a, **b}: g(a)", "def f(x):\n match x:\n  case {'k': a, **b}: g(b)"),
    ("def f():\n a = 1\n del a", "def f():\n a = 1\n a"),
])  # fmt: skip
def test_another_binding_changes_it(source, other):
    assert essence(source) != essence(other)


@pytest.mark.parametrize(("source", "names"), [
    ("def f(a): return a.b, c.d.e(), g", {"c.d.e", "g"}),
    ("def f():\n import a.b\n return a.b.c", {"a.b.c"}),
    ("def f():\n global a\n a = 1\n return a", {"a"}),
    ("class A:\n a: B = c.d", {"c.d"}),
    ("def f(a: B = c) -> D:\n raise E(f'{g(a)}')", {"c", "E"}),
])  # fmt: skip
def test_names_from_outside_are_followed(source, names):
    assert Essence(ast.parse(source).body[0]).names == names


@pytest.mark.parametrize(("same", "statement", "other"), [
    (True, "raise ValueError('a' + str(x))", "raise ValueError(f'{g(x)} b') from x"),
    (True, "raise ValueError('%s' % x)", "raise ValueError('%d' % g())"),
    (True, "raise UsageError(x)", "raise UsageError(g(), y)"),
    (True, "raise SettingError(x, 'a')", "raise SettingError(x, ', '.join(x) if x else f'{x}')"),
    (True, "assert x, 'a'", "assert x, g()"),
    (True, "print('a', x)", "print('b', x, 'c')"),
    (True, "print(f'a {x:.1f}', file=sys.stderr)", "print(f'{x:>9} b', file=sys.stderr)"),
    (True, "warn(f'{g(x)} a')", "warn(f'b {g(x)}')"),
    (True, "y = tqdm(x, desc='a')", "y = tqdm(x, desc='b')"),
    (False, "raise ValueError('a')", "raise KeyError('a')"),
    (False, "raise ValueError(x)", "raise ValueError(y)"),
    (False, "raise SystemExit(0)", "raise SystemExit(1)"),
    (False, "assert x, 'a'", "assert y, 'a'"),
    (False, "warn(f'{g(x)} a')", "warn(f'{h(x)} a')"),  # the called function may have an effect
    (False, "print(f'{next(x)}')", "print('')"),
    (False, "print('a', file=x)", "print('b', file=x)"),
    (False, "y = tqdm(x, desc='a')", "y = tqdm(g(), desc='a')"),
    (False, "y = log('a')", "y = log('b')"),
])  # fmt: skip
def test_words_that_are_only_shown_do_not_count(same, statement, other):
    assert (essence(f"def f(x):\n {statement}") == essence(f"def f(x):\n {other}")) == same


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, *COMPREHENSIONS, ast.Lambda, ast.ClassDef)
# The part of each node that is a name of its scope.
NAMES = {ast.Name: "id", ast.arg: "arg", ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name",
         ast.MatchMapping: "rest"} | dict.fromkeys(FUNCTIONS, "name")  # fmt: skip


class Uses:
    """The local names of a statement by the scopes that bind them, as Python's compiler finds them."""

    def __init__(self, statement: ast.stmt):
        self._outside: set[ast.AST] = set()  # parts of a scope's node that the surrounding scope evaluates
        self.every: list[tuple[ast.AST, str, ast.AST]] = []  # node, name, and the scope that binds the name
        self.kept: set[tuple[ast.AST, str]] = set()  # names that count
        lines = itertools.count(2)  # one per scope, by which its code is found
        _number(statement, 1, lines)
        code = compile(ast.Module([statement], []), "", "exec", dont_inherit=True)
        self.codes = {each.co_firstlineno: each for each in _codes(code)}
        self.keywords = {node.arg for node in ast.walk(statement) if isinstance(node, ast.keyword)}
        read = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(statement)}
        self.reads_names, self.reads_parameters = "__name__" in read, "signature" in read
        self.reads_locals = "_getframe" in read or any(_evaluates(each) for each in ast.walk(statement))
        self._visit(statement, ())

    def _owner(self, name: str, scopes: tuple[ast.AST, ...]) -> ast.AST | None:
        for scope in reversed(scopes):
            if (code := self.codes.get(scope.lineno)) is None:  # from 3.12 on, a comprehension within a function
                continue
            if not isinstance(scope, ast.ClassDef) and name in code.co_varnames + code.co_cellvars:
                return scope
            if name not in code.co_freevars:
                return None
        return None

    def _use(self, node: ast.AST, name: str | None, scopes: tuple[ast.AST, ...], keep: bool = False) -> None:
        if name and (owner := self._owner(name, scopes)):
            self.every.append((node, name, owner))
            self.kept |= {(owner, name)} if keep or self.reads_locals else set()

    def _visit(self, node: ast.AST, scopes: tuple[ast.AST, ...]) -> None:
        inside, outside = (*scopes, node) if isinstance(node, SCOPES) else scopes, []
        if isinstance(node, COMPREHENSIONS):
            outside = [node.generators[0].iter]
        elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
            decorators = getattr(node, "decorator_list", [])
            outside = [*decorators, *node.args.defaults, *filter(None, node.args.kw_defaults)]
            public = decorators or (not isinstance(node, ast.Lambda) and (
                not scopes or isinstance(scopes[-1], ast.ClassDef)))  # fmt: skip
            for each in node.args.args + node.args.kwonlyargs:
                given = each in node.args.kwonlyargs or each.arg in self.keywords or node.args.kwarg
                self._use(each, each.arg, inside, keep=bool(public or given or self.reads_parameters))
        elif isinstance(node, ast.ClassDef):
            outside = [*node.decorator_list, *node.bases, *node.keywords]
            self._use(node, node.name, scopes, keep=True)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                self._use(node, each.asname or each.name.partition(".")[0], scopes, keep=True)
        elif isinstance(node, ast.Nonlocal):
            for name in node.names:
                self._use(node, name, scopes)
        if isinstance(node, FUNCTIONS):
            self._use(node, node.name, scopes, keep=bool(node.decorator_list) or self.reads_names)
        elif type(node) in NAMES:
            self._use(node, getattr(node, NAMES[type(node)]), inside)
        for each in outside:
            self._visit(each, scopes)
        self._outside.update(outside)
        for child in ast.iter_child_nodes(node):
            if child not in self._outside:
                self._visit(child, inside)

    def rename(self, draws: random.Random) -> int:
        """Rename all names that do not count, equally in other scopes. Return their number."""
        free = {(owner, name): None for _, name, owner in self.every if (owner, name) not in self.kept}
        numbers = draws.sample(range(len(free)), len(free))
        new = {key: f"renamed{number}" for key, number in zip(free, numbers, strict=True)}
        for node, name, owner in self.every:
            if (owner, name) in new and isinstance(node, ast.Nonlocal):
                node.names[node.names.index(name)] = new[owner, name]
            elif (owner, name) in new:
                setattr(node, NAMES[type(node)], new[owner, name])
        return len(free)


def _evaluates(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("eval", "exec")


def _number(node: ast.AST, line: int, lines: Iterator[int]) -> None:
    line = next(lines) if isinstance(node, SCOPES) else line
    if "lineno" in node._attributes:
        node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, line, 0, 0
    for child in ast.iter_child_nodes(node):
        _number(child, line, lines)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _not_counted(statement: ast.stmt) -> set[ast.AST]:
    """Return the nodes of annotations, and of expressions that are only evaluated for a message."""
    parts = [getattr(node, part, None) for node in ast.walk(statement) for part in ("annotation", "returns", "msg")]
    parts += [node for node in ast.walk(statement) if isinstance(node, ast.Raise)]
    return {each for part in parts if part is not None for each in ast.walk(part)}


def project(share: float) -> list[ast.stmt]:
    """Return the functions, classes and constants of a share of the project's modules."""
    paths = sorted((ROOT / "src/retable").rglob("*.py"))
    paths = random.Random(1).sample(paths, round(share * len(paths)))
    nodes = (node for path in paths for node in ast.parse(path.read_text(encoding="utf-8")).body)
    return [node for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Assign))]


@pytest.mark.parametrize("share", [0.1, pytest.param(1, marks=pytest.mark.long)])
def test_renaming_every_local_name_of_the_project_changes_no_digest(share):
    draws, n_renamed = random.Random(1), 0
    for statement in project(share):
        before, uses = Essence(statement), Uses(statement)
        names, imported = {each.partition(".")[0] for each in before.names}, set()
        for node, name, _ in uses.every:
            imported |= {name} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        shown = {node.id for node in _not_counted(statement) if isinstance(node, ast.Name)}
        read = {step.argval for code in uses.codes.values() for step in dis.get_instructions(code)
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}  # fmt: skip
        assert names <= read | imported, ast.unparse(statement)
        assert read <= names | shown | {"__name__", "__annotations__"}, ast.unparse(statement)
        n_renamed += uses.rename(draws)
        after = Essence(statement)
        assert (after.text, after.names) == (before.text, before.names), ast.unparse(statement)
    assert n_renamed > 5_000 * share


def test_another_local_name_in_one_place_changes_the_digest():
    places = []
    for statement in project(0.1):
        uses, shown = Uses(statement).every, _not_counted(statement)
        for node, name, owner in uses:
            others = {each for _, each, bound_by in uses if bound_by is owner} - {name}
            if others and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in shown:
                places.append((statement, node, sorted(others)))
    draws = random.Random(1)
    for statement, node, others in draws.sample(places, 200):
        before, name = Essence(statement).text, node.id
        node.id = draws.choice(others)
        assert Essence(statement).text != before, (name, node.id, ast.unparse(statement))
        node.id = name


def test_every_version_of_python_finds_the_same_one(small):
    """3.12 and 3.13 write syntax trees differently. Without this, the whole project would be stale with another
    version.
    """
    assert fingerprint(small) == "3909ce605eb09aba17c13007ab7f2ad9c05ea54a8ccd27656819f50cb80d986f"


def test_a_definition_that_moves_keeps_it(small):
    before = fingerprint(small)
    edit(small / "numbers.py", "def half(x):\n    return x / BASE\n", "")
    (small / "parts.py").write_text("from small.numbers import BASE\n\n\ndef half(x):\n    return x / BASE\n")
    edit(small / "layers.py", "from small.numbers import *", "from small.parts import half")
    assert fingerprint(small) == before


def test_what_is_imported_inside_a_function_counts(small):
    edit(small / "stage.py", "    return x - 1", "    from small.numbers import fifth\n\n    return fifth(x)")
    before = fingerprint(small, "small.stage.unused")
    edit(small / "numbers.py", "OTHER = 5", "OTHER = 6")
    assert fingerprint(small, "small.stage.unused") != before


def test_a_name_that_nothing_defines_is_told(small):
    with pytest.raises(UnknownName, match=r"small\.stage\.walk"):
        fingerprint(small, "small.stage.walk")


def test_what_a_part_of_a_large_text_is_made_by_counts():
    code = Code({"pipelines": ROOT / "pipelines", "retable": ROOT / "src/retable"})
    assert ("retable.data.parts", "write_part") in code.reached(["pipelines.tokenize_text.tokenize"])
    of_files = code.reached(["retable.corpora.collection.write_collection"])
    assert ("retable.corpora.collection", "write_part") in of_files


def fingerprints(folder):
    code = Code({"pipelines": folder / "pipelines", "retable": folder / "src/retable"})
    return {system: code.fingerprint(names) for system, names in SYSTEMS.items()}


# For each edit of the project's code, what it makes stale.
EDITS: list[tuple[dict[str, tuple[str, str]], set[str]]] = [
    (
        {
            "src/retable/models/bert.py": ("super().__init__()", "super().__init__()\n        self.edited = 1"),
            "src/retable/models/ngram.py": ("class KneserNey(", "class KneserNey(object, "),
        },
        {"bert", "kn5"},
    ),
    ({"src/retable/objectives/causal_lm.py": ("super().__init__()", "super().__init__(); 1")}, {"lstm", "gpt"}),
    ({"src/retable/grammar/english.yaml": ("dog cat", "cat dog")}, {"grammar"}),
    ({"src/retable/nn/fused.c": ("BLOCK 4096", "BLOCK 8192")}, {"lstm", "gpt", "bert"}),
    ({"src/retable/training/optimizers.py": ("def adamw(", "def adamw(\n    *_, ")}, {"lstm", "gpt", "bert"}),
]


@pytest.mark.long
def test_edits_of_the_project_make_their_own_systems_stale(tmp_path):
    for name in ("pipelines", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    unchanged = fingerprints(ROOT)
    for edits, stale in EDITS:
        for file, (old, new) in edits.items():
            edit(tmp_path / file, old, new)
        after = fingerprints(tmp_path)
        for file in edits:
            shutil.copyfile(ROOT / file, tmp_path / file)
        assert {system for system in SYSTEMS if unchanged[system] != after[system]} == stale, edits
    edit(tmp_path / "src/retable/nn/fused.c", "/* Adds to sums", "/* Sums up into sums")
    edit(tmp_path / "src/retable/grammar/english.yaml", "# The English lexicon", "# A lexicon")
    for path in tmp_path.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace('"""\n', ' Edited."""\n').replace("\n\n\n", "\n\n\n# edited\n"), encoding="utf-8")
    assert fingerprints(tmp_path) == unchanged
