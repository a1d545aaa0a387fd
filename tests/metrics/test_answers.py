import json

import pytest

from retable.core.errors import UsageError
from retable.corpora.squad import read_squad
from retable.metrics.answers import answer_metrics, answer_scores, exact_match, normalise, word_f1

WORDS = {
    "The  Denver Broncos.": ["denver", "broncos"],
    "A an the": [],
    "an-other theatre, a": ["another", "theatre"],  # articles are removed after punctuation, and only whole words
    "U.S.A. “a”": ["usa", "“", "”"],  # quotation marks beyond ASCII are not punctuation
    "\u00a0£1.5\tmillion\n": ["£15", "million"],
    "the-a": ["thea"],
}


def test_normalisation():
    assert {answer: normalise(answer) for answer in WORDS} == WORDS


def test_exact_match_and_f1_take_the_best_answer():
    assert exact_match("the Broncos!", ["Denver", "broncos"])
    assert not exact_match("Broncos Denver", ["Denver Broncos"])
    assert word_f1("the cat sat", ["cat", "sat down cat sat"]) == pytest.approx(2 * 2 / (2 + 1 + 0) / 2)
    assert word_f1("x", ["the", "y"]) == 0
    assert word_f1("b b c", ["b c c"]) == pytest.approx(2 * 2 / 6)
    assert exact_match("the", ["a"]) and word_f1("the", ["a"]) == 0


def test_scores_by_question_need_all_predictions():
    answers = {"q1": ["blue sky"], "q2": ["red"], "q3": ["one two"]}
    predictions = {"q3": "", "q1": "Blue", "q2": "the red", "q4": "of another split"}
    assert answer_scores(predictions, answers).tolist() == [[0, pytest.approx(2 / 3)], [1, 1], [0, 0]]
    assert answer_metrics(predictions, answers) == pytest.approx({"exact_match": 1 / 3, "f1": 5 / 9})
    with pytest.raises(UsageError, match=r"2 of 3 questions have no prediction, the first is 'q2'; write \"\""):
        answer_metrics({"q1": "x"}, {"q1": ["x"], "q2": ["y"], "q3": ["z"]})
    with pytest.raises(ValueError, match="of 0 questions"):
        answer_metrics({}, {})


@pytest.mark.real
@pytest.mark.parametrize(("file", "exact_match", "f1"), [
    ("BERT_(ensemble)_(Google_AI_Language).json", 86.2, 92.2),  # Devlin et al. 2019, table 2
    ("Logistic_Regression_Baseline_(Stanford_University).json", 40.1, 51.0),  # as in reporting/references.yaml
])  # fmt: skip
def test_published_predictions_of_the_development_set(file, exact_match, f1, data_dir):
    answers = {q.id: [a.text for a in q.answers] for q in read_squad(data_dir / "squad" / "dev-v1.1.rebuilt.json")}
    assert len(answers) == 10570
    predictions = json.loads((data_dir / "squad" / "reference_predictions_v1.1" / file).read_bytes())
    metrics = answer_metrics(dict.fromkeys(answers, "") | predictions, answers)  # the baseline lacks 13 answers
    assert {name: round(100 * value, 1) for name, value in metrics.items()} == {"exact_match": exact_match, "f1": f1}
