import pytest

from retable.tasks.labels import Classes, Scores


def test_classes_are_read_by_list_or_mapping():
    classes = Classes([0, 1, "x"])
    assert classes.names == ["0", "1", "x"]
    assert [classes.read(text) for text in ("x", "0", "1")] == [2, 0, 1]
    classes = Classes({0: "negative", "1": "negative", 2: None, 3: "positive", True: "positive"})
    assert classes.names == ["negative", "positive"]
    assert [classes.read(text) for text in ("0", "1", "2", "3", "true")] == [0, 0, None, 1, 1]
    with pytest.raises(ValueError, match=r"label 'fair' is none of 'bad', 'good'; add it to task.labels"):
        Classes({"bad": "a", "good": "b", "-": None}).read("fair")
    with pytest.raises(ValueError, match=r"label 'yes' is true or false to YAML, unless task.labels has it in quotes"):
        Classes({True: "good", False: "bad"}).read("yes")


def test_scores_are_numbers_of_a_range_and_labels_are_written_as_files_have_them():
    scores = Scores(0, 5)
    assert [scores.read(text) for text in ("0", "5.000", "2.5")] == [0.0, 5.0, 2.5]
    for text in ("5.1", "-1", "nan", "inf", "good", ""):
        with pytest.raises(ValueError, match=f"score '{text}' is no number from 0 to 5; these are task.scores"):
            scores.read(text)
    classes = Classes({0: "negative", 1: "negative", 2: None, 3: "positive"})
    assert [classes.write(place) for place in (0, 1.0)] == ["0", "3"]
    assert [Scores(0, 5).write(score) for score in (2.5, -0.2, 7)] == ["2.500", "0.000", "5.000"]
