import pytest

from retable.core.errors import UsageError
from retable.tasks.trees import read_trees

TREES = "(3 (2 It) (4 (2 's) (4 lovely)))\n\n(0 (1 (2 Not) (2 -LRB-)) (2 a\\/b))\n"


def rows(path, **form) -> list[tuple]:
    return [(row.place, row.fields["label"], row.fields["sentence"]) for row in read_trees(path, **form).rows]


def test_a_tree_is_a_sentence_or_its_phrases_in_the_order_in_which_they_open(tmp_path):
    (trees := tmp_path / "dev.txt").write_text(TREES, encoding="utf-8")
    assert rows(trees) == [("line 1", "3", "It 's lovely"), ("line 3", "0", "Not ( a\\/b")]
    assert read_trees(trees).columns == ["sentence", "label"]
    assert [row[1:] for row in rows(trees, phrases=True)] == [
        ("3", "It 's lovely"), ("2", "It"), ("4", "'s lovely"), ("2", "'s"), ("4", "lovely"),
        ("0", "Not ( a\\/b"), ("1", "Not ("), ("2", "Not"), ("2", "("), ("2", "a\\/b"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["(3 (2 It)", "3 It", "(3 It))", "(3 It) (2 a)", "(3 )", "()", ")"])
def test_what_is_no_tree_is_refused(tmp_path, line):
    (tmp_path / "train.txt").write_text(f"(2 a)\n{line}\n")
    with pytest.raises(UsageError, match=r"train.txt, line 2 is not a tree: its brackets do not match"):
        rows(tmp_path / "train.txt")
