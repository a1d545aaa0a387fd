import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.corpora.multiple_choice import Choice, read_choices


def write(folder: Path, name: str, *lines: object) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return folder / name


def test_swag(tmp_path):
    """Reads SWAG's .csv, which has quotation marks inside quoted fields."""
    path = write(
        tmp_path,
        "val.csv",
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label",
        '0,v1,0,"A man, ""Bo"", sits. He","A man, ""Bo"", sits.",He,gold,stands.,"sings, loudly.",is a cat.,melts.,1',
    )
    endings = ["ending0", "ending1", "ending2", "ending3"]
    assert read_choices(path, "startphrase", endings, "label") == [
        Choice('A man, "Bo", sits. He', ["stands.", "sings, loudly.", "is a cat.", "melts."], 1)
    ]


def test_hellaswag(tmp_path):
    example = {"ind": 24, "activity_label": "Roofing", "ctx_a": "A man is on a roof.", "ctx_b": "he",
               "ctx": "A man is on a roof. he", "split": "val", "label": 3, "endings": list("abcd")}  # fmt: skip
    path = write(tmp_path, "val.jsonl", example, example | {"label": "0"})
    expected = [Choice("A man is on a roof. he", ["a", "b", "c", "d"], label) for label in (3, 0)]
    assert read_choices(path, "ctx", "endings", "label") == expected
    assert [choice.label for choice in read_choices(path, "ctx", "endings")] == [None, None]


def test_piqa(tmp_path):
    path = write(tmp_path, "valid.jsonl", {"goal": "To dry", "sol1": "wipe.", "sol2": "wet."},
                 {"goal": "To é", "sol1": "c", "sol2": "d"})  # fmt: skip
    labels = write(tmp_path, "valid-labels.lst", "0", "1")
    expected = [Choice("To dry", ["wipe.", "wet."], 0), Choice("To é", ["c", "d"], 1)]
    assert read_choices(path, "goal", ["sol1", "sol2"], labels=labels) == expected


texts = st.text(st.characters(codec="utf-8"), max_size=8)
examples = st.tuples(texts, st.lists(texts, min_size=2, max_size=4), st.integers(0, 1))


@given(rows=st.lists(examples, min_size=1, max_size=4))
def test_what_is_written_is_read(rows, tmp_path_factory):
    choices = [Choice(*row) for row in rows]
    path = write(tmp_path_factory.getbasetemp(), "choices.jsonl", *(choice._asdict() for choice in choices))
    assert read_choices(path, "context", "endings", "label") == choices


GOOD = {"ctx": "x", "endings": ["a", "b"], "label": 0}


def test_labels_that_do_not_fit_are_named(tmp_path):
    path = write(tmp_path, "valid.jsonl", GOOD, GOOD)
    for labels, said in [
        (["0"], r"a.lst has 1 labels, but .*valid.jsonl has 2 examples"),
        (["0", "-1"], r"a.lst, line 2: label '-1' must be a number from 0 to 1"),
        (["9" * 5000, "0"], r"a.lst, line 1: label"),
    ]:
        with pytest.raises(UsageError, match=said):
            read_choices(path, "ctx", "endings", labels=write(tmp_path, "a.lst", *labels))
