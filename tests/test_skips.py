"""Test that `make env` installs every library without which tests are skipped; otherwise some comparisons would
never run.
"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
LOCK = (TESTS.parent / "requirements.lock").read_text(encoding="utf-8")
LOCKED = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)}
# Modules whose package has another name.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "lm_eval": "lm-eval", "rouge_score": "rouge-score"}


def skipped() -> list[str]:
    """Return the first names of the modules that tests request with `importorskip`."""
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
