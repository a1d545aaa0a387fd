import json
from collections import Counter

import pytest

from retable.corpora.minimal_pairs import BLiMP, MinimalPair


def line(**more) -> str:
    record = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "field": "morphology"}
    record |= {"linguistics_term": "subject_verb_agreement", "UID": "regular", "pairID": "0"}
    return json.dumps({key: value for key, value in (record | more).items() if value is not None}) + "\n"


def test_paradigms_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b.jsonl").write_text(line() + "\n" + line(UID="other"), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(line(UID="animate", linguistics_term="s-selection"), encoding="utf-8")
    (tmp_path / "README.md").write_text("no data", encoding="utf-8")
    pairs = BLiMP(str(tmp_path))
    assert [path.name for path in pairs.inputs] == ["a.jsonl", "b.jsonl"]
    sentences = ("The cats sleep.", "The cats sleeps.")
    assert pairs.read() == [
        MinimalPair("animate", "argument_structure", *sentences),
        MinimalPair("regular", "subject_verb_agreement", *sentences),
        MinimalPair("other", "subject_verb_agreement", *sentences),
    ]


@pytest.mark.real
def test_all_of_blimp(data_dir):
    """BLiMP has 67 paradigms of 1,000 pairs, in the twelve phenomena of the paper."""
    pairs = BLiMP(str(data_dir / "blimp")).read()
    assert set(Counter(pair.paradigm for pair in pairs).values()) == {1000}
    paradigms = Counter(phenomenon for _, phenomenon in {(pair.paradigm, pair.phenomenon) for pair in pairs})
    assert paradigms == {
        "anaphor_agreement": 2, "argument_structure": 9, "binding": 7, "control_raising": 5,
        "determiner_noun_agreement": 8, "ellipsis": 2, "filler_gap_dependency": 7, "irregular_forms": 2,
        "island_effects": 8, "npi_licensing": 7, "quantifiers": 4, "subject_verb_agreement": 6,
    }  # fmt: skip
