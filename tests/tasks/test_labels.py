import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.tasks.labels import Classes, Scores, missing_classes


def test_classes_are_read_by_list_or_mapping():
    classes = Classes([0, 1, "x"])
    assert classes.names == ["0", "1", "x"]
    assert [classes.read(text) for text in ("x", "0", "1")] == [2, 0, 1]
    classes = Classes({0: "negative", "1": "negative", 2: None, 3: "positive", True: "positive"})
    assert classes.names == ["negative", "positive"]
    assert [classes.read(text) for text in ("0", "1", "2", "3", "true")] == [0, 0, None, 1, 1]
    with pytest.raises(ValueError, match=r"label 'fair' is not one of 'bad', 'good'; add it to task.labels"):
        Classes({"bad": "a", "good": "b", "-": None}).read("fair")
    with pytest.raises(ValueError, match=r"YAML reads label 'yes' as true or false; write it in quotes in task.labels"):
        Classes({True: "good", False: "bad"}).read("yes")


def test_scores_are_numbers_of_a_range_and_labels_are_written_as_files_have_them():
    scores = Scores(0, 5)
    assert [scores.read(text) for text in ("0", "5.000", "2.5")] == [0.0, 5.0, 2.5]
    for text in ("5.1", "-1", "nan", "inf", "good", ""):
        with pytest.raises(ValueError, match=f"score '{text}' is not a number from 0 to 5, the range in task.scores"):
            scores.read(text)
    classes = Classes({0: "negative", 1: "negative", 2: None, 3: "positive"})
    assert [classes.write(place) for place in (0, 1.0)] == ["0", "3"]
    assert [Scores(0, 5).write(score) for score in (2.5, -0.2, 7)] == ["2.500", "0.000", "5.000"]


PARTS = {"train": "train (a.csv)", "validation": "validation (0.25 of a.csv)", "test": "test (b.csv)"}
PLACES = st.lists(st.sampled_from([0, 1, 2, None]), max_size=6)


@given(st.fixed_dictionaries(dict.fromkeys(PARTS.values(), PLACES)))
def test_a_line_for_each_part_of_one_class_and_each_class_that_another_part_lacks(labels):
    """Each line names class and part, and the class's number of rows in all parts; parts without labels give no
    line.
    """
    names = ["bad", "good", "fair"]
    known = {part: [names[each] for each in its if each is not None] for part, its in labels.items()}
    known = {part: its for part, its in known.items() if its}
    single = [part for part, its in known.items() if len({*its}) == 1]
    lines = missing_classes(names, labels)
    for part in single:
        assert sum(line.startswith(f"all {len(known[part])} rows of {part} are of class {known[part][0]!r}")
                   for line in lines) == 1  # fmt: skip
    several = {part: its for part, its in known.items() if part not in single}
    absent = {name: [part for part, its in several.items() if name not in its] for name in names}
    for name, parts in absent.items():
        about = [line for line in lines if line.startswith("no row of ") and f"is of class {name!r}" in line]
        assert len(about) == bool(parts)
        for line in about:
            before, after = line.split(" is of class ")
            assert {part for part in PARTS.values() if part in before} == {*parts}
            assert all(f"{its.count(name)} in {part}" in after for part, its in known.items() if name in its)
    assert len(lines) == len(single) + sum(map(bool, absent.values()))


def test_of_many_absent_classes_the_first_have_a_line_and_the_rest_are_counted():
    lines = missing_classes([str(i) for i in range(400)], {"train": range(400), "test": range(300)})
    assert [line.split("class ")[1].split(";")[0] for line in lines[:-1]] == [repr(str(i)) for i in range(300, 305)]
    assert lines[-1] == "95 more classes have no row in one part or another"


def test_one_class_in_all_is_no_fault():
    assert missing_classes(["only"], {"train": [0, 0], "test": [0]}) == []
