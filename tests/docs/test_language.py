"""Test that the project's prose is plain English: patterns of `word_list.tsv` are rare in sentences, or do not
occur.

Each line of the list has a level, a pattern and what to write instead. A sentence with a `never` pattern is a mistake.
`rare` patterns may occur in a small share of a surface's sentences. Code in backticks does not count.
"""

import csv
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.docs.sentences import Sentence, docstrings, sentences

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("src", "pipelines", "benchmarks/*.py", "conf", "studies/*/study.yaml", "docs", ":(glob)*.md")
GENERATED = ("docs/api/", "docs/results/", "docs/systems/")
with Path(__file__).with_name("word_list.tsv").open(encoding="utf-8", newline="") as file:
    WORDS = [(row["level"], re.compile(row["pattern"]), row["write"])
             for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]  # fmt: skip
MOST = {"docstring": 0.03, "comment": 0.03, "message": 0.03, "help": 0.03, "yaml": 0.03, "report": 0.03, "page": 0.06}
OPENED = 0.55  # share of function docstrings that open with a verb
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text(encoding="utf-8").split())


@cache
def tracked() -> list[Path]:
    named = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in named.splitlines() if name.endswith((".py", ".yaml", ".md"))]
    return [ROOT / name for name in names if not name.startswith(GENERATED)]


@cache
def prose() -> list[Sentence]:
    return [sentence for path in tracked() for sentence in sentences(path)]


def hits(sentence: Sentence) -> list[tuple[str, str]]:
    """Return the level and the advice of each pattern that a sentence matches."""
    text = re.sub(r"`[^`]*`", "X", sentence.text)
    parts = sentence.surface in ("message", "help")  # these are not whole sentences
    return [(level, write) for level, pattern, write in WORDS
            if pattern.search(text) and not (parts and pattern.pattern.startswith("^"))]  # fmt: skip


def test_no_sentence_has_a_pattern_that_stops_readers():
    found = [
        f"{each.path.relative_to(ROOT)}:{each.line}: {each.text[:100]} → {write}"
        for each in prose()
        for level, write in hits(each)
        if level == "never"
    ]
    assert found == []


@pytest.mark.parametrize("surface", MOST)
def test_odd_sentences_are_rare(surface):
    of_surface = [each for each in prose() if each.surface == surface]
    odd = [each for each in of_surface if hits(each)]
    files = Counter(str(each.path.relative_to(ROOT)) for each in odd)
    assert len(of_surface) > 50 and len(odd) <= MOST[surface] * len(of_surface), files.most_common(10)


def test_function_docstrings_open_with_a_verb():
    first = [text.split()[0].lower().strip(".,:`") for path in tracked() for text in docstrings(path)]
    assert sum(word in VERBS for word in first) >= OPENED * len(first) > 0, Counter(first).most_common(40)
