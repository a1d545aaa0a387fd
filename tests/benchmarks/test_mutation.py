"""Test the page on mutants, made from results in mutmut's format. No mutant is run."""

import json
from importlib import import_module

import pytest

from benchmarks import mutation
from benchmarks.mutation import OPEN, UNREACHED, Mutant, read, read_reasons, reason, settled, survivors, table

METHOD, FUNCTION = "retable.metrics.units.xǁMeasuredǁtext", "retable.nn.crf.x__may_follow"
ZIP = "`strict=` of zip is only a check, and the lengths are equal"
DTYPE = "A dtype that changes no number"
WORDS = "Words of an error message"


def mutant(status: str, before: str = "a", after: str = "b", name: str = FUNCTION) -> Mutant:
    return Mutant(f"{name}__mutmut_7", status, before, after)


def test_names_are_those_of_the_code():
    assert mutant("killed").function == "retable.nn.crf._may_follow"
    assert mutant("killed", name=METHOD).function == "retable.metrics.units.Measured.text"
    made = mutant("killed", name="retable.nn.lstm.xǁ_Layerǁ__init__")
    assert (made.function, made.module, made.package) == ("retable.nn.lstm._Layer.__init__", "retable.nn.lstm", "nn")


@pytest.mark.parametrize(("before", "after", "heading"), [
    ("for a, b in zip(c, d, strict=True):", "for a, b in zip(c, d, ):", ZIP),
    ("for a, b in zip(c, d, strict=True):", "for a, b in zip(c, d, strict=None):", ZIP),
    ("for a, b in zip(c, d, strict=True):", "for a, b in zip(d, strict=True):", OPEN),
    ("return np.array(rows, dtype=np.int64)", "return np.array(rows, )", DTYPE),
    ('return np.array(rows, dtype="<i8")', "return np.array(rows, dtype=None)", DTYPE),
    ("generator.random(9, dtype=np.float32)", "generator.random(9, )", OPEN),  # it would draw other numbers
    ("torch.arange(n, device=ids.device)", "torch.arange(n, device=None)",
     "`device=` on a machine that has only one device"),
    ("nn.Linear(2, 1, bias=False)", "nn.Linear(2, 1, bias=None)",
     "None instead of False, where only the truth value is used"),
    ("nn.Linear(2, 1, bias=False)", "nn.Linear(2, 1, )", OPEN),
    ('raise UsageError(f"{path} is empty")', "raise UsageError(None)", WORDS),
    ('"write objective=causal_lm"', '"XXwrite objective=causal_lmXX"', WORDS),
    ('"write recipe=BERT or another"', '"WRITE RECIPE=BERT OR ANOTHER"', WORDS),
    ('if letter in "OBS":', 'if letter in "XXOBSXX":', OPEN),
    ('kind="stable"', 'kind="STABLE"', OPEN),
    ("if n > 1:", "if n >= 1:", OPEN),
])  # fmt: skip
def test_what_lives_has_a_reason_by_its_lines(before, after, heading):
    assert reason(mutant("survived", before, after), {}) == heading


def test_what_was_read_by_someone_goes_before_the_rules():
    reasons = {"retable.nn.crf._may_follow: b": "Both are right", "retable.metrics.units.Measured.text": "Elsewhere"}
    assert reason(mutant("survived"), reasons) == "Both are right"
    assert reason(mutant("unreached", after="c", name=METHOD), reasons) == "Elsewhere"
    assert reason(mutant("survived", after="c", name=METHOD), reasons) == OPEN
    assert reason(mutant("unreached", after="c"), reasons) == UNREACHED


def test_every_function_that_a_reason_names_is_there():
    for known in read_reasons():
        named = known.partition(":")[0].split(".")
        found = import_module(".".join(named[:3]))
        for part in named[3:]:
            found = getattr(found, part)


FOUND = [
    *[mutant("killed")] * 4, mutant("timeout"), mutant("survived", "zip(a, b, strict=True)", "zip(a, b, )"),
    mutant("survived", "n > 1", "n > 2"), mutant("unreached"), *[mutant("killed", name=METHOD)] * 2,
]  # fmt: skip


def test_the_table_counts_by_package_and_survivors_stand_under_their_reasons():
    assert table(FOUND, {}).splitlines()[2:] == [
        "| metrics | 2 | 2 | 0 | 0 | 0 | 0 | 100.0 % | 100.0 % |",
        "| nn | 8 | 4 | 1 | 2 | 1 | 1 | 62.5 % | 71.4 % |",
        "| all | 10 | 6 | 1 | 2 | 1 | 1 | 70.0 % | 77.8 % |",
    ]
    lines = [line for line in survivors([*FOUND, FOUND[5]], {}).splitlines() if line]
    assert [line for line in lines if line.startswith("## ")] == [f"## {ZIP} (2)", f"## {UNREACHED} (1)", "## Open (1)"]
    assert lines[-1] == "- `retable.nn.crf._may_follow`: `n > 1` → `n > 2`"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Write a folder of results in mutmut's format. The first test reaches every function; some have a second test."""
    monkeypatch.setattr(mutation, "with_lines", lambda mutant, folder, source: mutant)
    codes = {"a__mutmut_7": 1, "a__mutmut_17": 0, "b__mutmut_7": 0, "b__mutmut_8": 1, "b__mutmut_27": 255,
             "c__mutmut_7": 33, "c__mutmut_17": None, "c__mutmut_27": -11}  # fmt: skip
    package = tmp_path / "mutants/src/retable/nn"
    package.mkdir(parents=True)
    meta = {"exit_code_by_key": {f"retable.nn.crf.x_{name}": code for name, code in codes.items()}}
    (package / "crf.py.meta").write_text(json.dumps(meta))
    reached = {"retable.nn.crf.x_a": ["tests/data/test_x.py::test_1"],
               "retable.nn.crf.x_b": ["tests/data/test_x.py::test_1", "tests/nn/test_crf.py::test_2"]}  # fmt: skip
    seconds = {"tests/data/test_x.py::test_1": 9.0, "tests/nn/test_crf.py::test_2": 2.0}
    stats = {"tests_by_mangled_function_name": reached, "duration_by_test": seconds}
    (tmp_path / "mutants/mutmut-stats.json").write_text(json.dumps(stats))
    (tmp_path / "tests/nn").mkdir(parents=True)
    (tmp_path / "tests/nn/test_crf.py").touch()
    return tmp_path


def test_of_the_mutants_with_a_digit_those_count_that_were_tried(results):
    found = {each.name.rpartition("x_")[2]: each.status for each in read(results, "7")}
    assert found == {"a__mutmut_7": "killed", "a__mutmut_17": "survived", "b__mutmut_7": "survived",
                     "b__mutmut_27": "unsure", "c__mutmut_7": "unreached", "c__mutmut_27": "killed"}  # fmt: skip
    assert len([*read(results, "78")]) == 7


@pytest.mark.parametrize("status", ["killed", "survived", "timeout"])
def test_what_a_forked_server_can_not_tell_is_run_again(results, status):
    given = []

    def again(*asked) -> str:
        given.append(asked)
        return status

    found = {each.name.rpartition("x_")[2]: each.status for each in settled(read(results, "7"), results, again)}
    # Mutants of code that runs at import, unsure mutants and mutants that no test seems to reach are run again with the
    # tests of their module.
    own = "tests/nn/test_crf.py"
    assert [(name.rpartition("x_")[2], tests, limit) for name, _, tests, limit in given] == [
        ("a__mutmut_17", [own], 60 + 20),
        ("b__mutmut_27", [own, f"{own}::test_2"], 60 + 20),
        ("c__mutmut_7", [own], 60 + 20),
    ]
    assert found["a__mutmut_17"] == found["b__mutmut_27"] == status
    assert found["c__mutmut_7"] == ("unreached" if status == "survived" else status)
    assert found["b__mutmut_7"] == "survived" and found["a__mutmut_7"] == "killed"
