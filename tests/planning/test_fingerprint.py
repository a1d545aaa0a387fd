"""Kinds of edits, and what they make stale: on a small package, and on the project's own code."""

import shutil
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("changes", "file", "old", "new"),
    [
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
        (True, "layers.py", "triple(self.x)", "double(self.x)"),  # a method counts, whoever calls it
        (True, "numbers.py", "BASE = 2", "BASE = 3"),
        (True, "numbers.py", "x / BASE", "x // BASE"),
        (True, "numbers.py", "BASE = 2\n", "import os\n\nBASE = 2\nos.environ.setdefault('X', '1')\n"),
    ],
)
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("double as first\nfrom small.numbers import half as", "half as first\nfrom small.numbers import double as"),
        ("floor as whole", "ceil as whole"),
        ("from statistics import mean", "from numpy import mean"),
        ("import tools.fast", "import others as tools"),
    ],
)
def test_what_a_name_stands_for_counts(small, old, new):
    (small / "a.py").write_text(BINDINGS)
    before = fingerprint(small, "small.a.run")
    edit(small / "a.py", old, new)
    assert fingerprint(small, "small.a.run") != before


def test_every_version_of_python_finds_the_same_one(small):
    """Else a project would be stale as a whole to whoever has another: 3.12 and 3.13 write syntax trees otherwise."""
    assert fingerprint(small) == "354696725bc1286be1e75375a95b119c27899e4753946d5206a41c26dbec5406"


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
    """Other processes call it by its name."""
    code = Code({"pipelines": ROOT / "pipelines", "retable": ROOT / "src/retable"})
    assert ("retable.data.parts", "write_part") in code.reached(["pipelines.tokenize_text.tokenize"])
    of_files = code.reached(["retable.corpora.collection.write_collection"])
    assert ("retable.corpora.collection", "write_part") in of_files


def fingerprints(folder):
    code = Code({"pipelines": folder / "pipelines", "retable": folder / "src/retable"})
    return {system: code.fingerprint(names) for system, names in SYSTEMS.items()}


# Of each edit of the project's own code, what it makes stale.
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
    """And no docstring and no comment makes anything stale."""
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
