"""Test the changes between two reports, from their tables in CSV."""

import subprocess

import pytest

from retable.core.errors import UsageError
from retable.reporting.changes import aggregates, changes, changes_table, tables_at, tables_of
from retable.reporting.markup import markdown_table
from retable.reporting.results import CELL

NAMES = {"before": "main", "after": "lineage"}


def csv(rows: dict[str, tuple], corpus="grammar") -> str:
    """Return a table of test perplexities: mean and interval, by system."""
    lines = [f"{name},{corpus},,test,perplexity_word,x,{mean},{low},{high}" for name, (mean, low, high) in rows.items()]
    return "\n".join([",".join([*CELL, "protocol", "mean", "ci_low", "ci_high"]), *lines]) + "\n"


BEFORE = csv({"kn5": (17.65, 17.3, 18), "lstm": (9.27, 9.1, 9.4), "gpt": (9.01, 8.9, 9.2), "old": (1, 1, 1)})
AFTER = csv({"kn5": (17.65, 17.3, 18), "lstm": (9.5, 9.3, 9.7), "gpt": (9.1, 9, 9.3), "new": (2, 2, 2)})


def change_of(before: str, after: str) -> dict[str, str]:
    frame = changes(aggregates([before]), aggregates([after]))
    return dict(zip(frame["system"], frame["change"], strict=True))


def test_what_became_of_each_number():
    assert change_of(BEFORE, AFTER) == {
        "kn5": "the same", "lstm": "moved", "gpt": "within the interval", "old": "gone", "new": "new",
    }  # fmt: skip
    without = [csv({"lstm": (mean, "", "")}) for mean in (9.27, 9.270001, 9.271)]
    assert change_of(without[0], without[1]) == {"lstm": "the same"}
    assert change_of(without[0], without[2]) == {"lstm": "moved"}
    assert change_of(BEFORE, csv({"kn5": (18.1, 18, 19)}, corpus="again"))["kn5"] == "moved"
    several = csv({"kn5": (18.1, 18, 19)}, corpus="again") + "\n".join(BEFORE.splitlines()[1:])
    assert len(changes(aggregates([BEFORE]), aggregates([several]))) == 5
    assert len(aggregates([BEFORE, BEFORE, "system,corpus\na,b\n", "layer,share\n1,0.5\n"])) == 4
    assert aggregates([]).empty
    table = changes_table(changes(aggregates([BEFORE]), aggregates([AFTER])), NAMES)
    text = markdown_table(table, folded=False)
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows == ["LSTM (`lstm`)", "GPT (`gpt`)", "new", "old"]
    lstm = next(line for line in text.splitlines() if "| LSTM" in line)
    assert [part.strip() for part in lstm.split("|")[4:9]] == ["9.27", "9.10 to 9.40", "9.50", "+0.23", "**moved**"]
    assert "Of 5 numbers: 1 moved, 1 within the interval, 1 new, 1 gone, 1 the same." in text
    same = markdown_table(changes_table(changes(aggregates([BEFORE]), aggregates([BEFORE])), NAMES))
    assert "|" not in same and "Of 4 numbers: 4 the same." in same


def test_tables_of_a_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "results/mine").mkdir(parents=True)
    (folder / "perplexity.csv").write_text(BEFORE)
    (folder / "perplexity.md").write_text("no CSV")
    commit = ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "a commit"]
    for command in (["init", "-q", "-b", "main"], commit, ["tag", "first"], ["add", "."], commit):
        subprocess.run(["git", *command], check=True)
    (folder / "perplexity.csv").write_text(AFTER)
    place = folder.relative_to(tmp_path)
    for project in (tmp_path / "results", tmp_path):  # the first is a subfolder of its repository
        monkeypatch.chdir(project)
        assert tables_at("main", folder.relative_to(project)) == {"perplexity.csv": BEFORE}
    assert tables_of(place) == {"perplexity.csv": AFTER}
    with pytest.raises(UsageError, match="results/mine had no tables at first; write a later commit"):
        tables_at("first", place)
    with pytest.raises(UsageError, match="mian is not a commit; write a commit, or the name of a study"):
        tables_at("mian", place)
    with pytest.raises(UsageError, match="results/yours has no tables; `retable repro` of its study makes them"):
        tables_of(place.with_name("yours"))
