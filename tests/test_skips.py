"""What tests skip where a library is missing is installed by `make env`: a comparison that never runs is none."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
LOCK = (TESTS.parent / "requirements.lock").read_text(encoding="utf-8")
LOCKED = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)}
# Of modules that are called otherwise.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "lm_eval": "lm-eval", "rouge_score": "rouge-score"}


def skipped() -> list[str]:
    """The first names of the modules that some test asks for by `importorskip`."""
    names = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                names.add(ast.literal_eval(node.args[0]).partition(".")[0])
    return sorted(names)


def test_libraries_that_tests_ask_for_are_in_the_lock():
    names = skipped()
    assert {"gensim", "transformers"} <= {*names}
    assert [name for name in names if DISTRIBUTIONS.get(name, name) not in LOCKED] == []
