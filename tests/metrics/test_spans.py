import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.metrics.intervals import bootstrap
from retable.metrics.spans import (
    Chunk,
    chunks,
    convert,
    span_counts,
    span_counts_by_type,
    span_f1,
    span_metrics,
    write_tags,
)

# Labels, predictions, and the correct, found and labelled chunks of conlleval: its rules startOfChunk and endOfChunk,
# counted in Perl. A property test below covers all combinations of tags B, I and O.
GOLDEN = {
    # IOB2
    "too long": ("B-NP O O", "B-NP I-NP O", (0, 1, 1)),
    "nothing there": ("O O", "O O", (0, 0, 0)),
    "I behind O": ("O B-NP I-NP", "O I-NP I-NP", (1, 1, 1)),
    "I of another type": ("B-NP I-VP O", "B-NP B-VP O", (2, 2, 2)),
    "IOB1 against IOB2": ("I-PER O I-LOC I-ORG", "B-PER O B-LOC B-ORG", (3, 3, 3)),
    # E as the script knows it from IOE: a chunk ends before E, I and O
    "E before I": ("I-NP E-NP I-NP E-NP", "I-NP E-NP I-NP E-NP", (2, 2, 2)),
    "E before E": ("E-NP E-NP", "E-NP E-NP", (2, 2, 2)),
    "E alone behind O": ("O B-NP O", "O E-NP O", (1, 1, 1)),
    "B before E": ("B-NP E-NP", "B-NP I-NP", (1, 1, 1)),
    # IOBES without neighbours of the same type, for which the script reads S by its type
    "IOBES": ("S-PER O B-LOC I-LOC E-LOC S-PER", "S-PER O B-LOC I-LOC E-LOC S-PER", (3, 3, 3)),
    "IOBES against IOB2": ("S-PER O B-LOC E-LOC", "B-PER O B-LOC I-LOC", (2, 2, 2)),
    "IOBES left open": ("B-LOC E-LOC O", "B-LOC I-LOC O", (1, 1, 1)),
    "IOBES never begun": ("O B-LOC I-LOC E-LOC", "O I-LOC I-LOC E-LOC", (1, 1, 1)),
    "IOBES type changes": ("B-LOC I-LOC E-LOC", "B-LOC I-PER E-LOC", (0, 3, 1)),
    "no types": ("B I O I", "B I O B", (2, 2, 2)),
    "hyphens in types": ("B-C-ARG1 I-C-ARG1", "B-C-ARG1 B-R-ARG1", (0, 2, 1)),
}
SCHEMES = ["IOB1", "IOB2", "IOBES"]
ENDS = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}  # conlleval's endOfChunk for tags of the same type
STARTS = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}  # conlleval's startOfChunk

iob_tags = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), max_size=12)
all_tags = st.lists(st.sampled_from(["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in "xy")]), max_size=12)


def conlleval(labels: list[list[str]], predictions: list[list[str]]) -> tuple[int, int, int]:
    """Return the counts of the script, computed as in the script: one pass without chunks, an O between sentences."""

    def at_boundary(before, tag, pairs, changed):
        (last, last_type), (letter, kind) = before, tag
        return last + letter in pairs or (changed(last, letter) and last_type != kind)

    def ends(before, tag):
        return at_boundary(before, tag, ENDS, lambda last, letter: last != "O")

    def starts(before, tag):
        return at_boundary(before, tag, STARTS, lambda last, letter: letter != "O")

    correct = found = labelled = 0
    inside, before = False, (("O", ""), ("O", ""))
    stream = [pair for rows in zip(labels, predictions, strict=True) for pair in [*zip(*rows, strict=True), ("O", "O")]]
    for pair in stream:
        true, guessed = (tag.partition("-")[::2] for tag in pair)
        if inside:
            true_ends, guessed_ends = ends(before[0], true), ends(before[1], guessed)
            if true_ends and guessed_ends and before[0][1] == before[1][1]:
                inside, correct = False, correct + 1
            elif true_ends != guessed_ends or true[1] != guessed[1]:
                inside = False
        if starts(before[0], true) and starts(before[1], guessed) and true[1] == guessed[1]:
            inside = True
        labelled, found = labelled + starts(before[0], true), found + starts(before[1], guessed)
        before = true, guessed
    return correct, found, labelled


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_cases(name):
    labels, predictions, expected = GOLDEN[name]
    assert span_counts([labels.split()], [predictions.split()]).tolist() == [list(expected)]
    assert conlleval([labels.split()], [predictions.split()]) == expected


@given(st.lists(st.tuples(iob_tags, iob_tags), max_size=4))
def test_counts_equal_conllevals_on_anything_of_b_i_and_o(pairs):
    labels, predictions = [a[: len(b)] for a, b in pairs], [b[: len(a)] for a, b in pairs]
    assert tuple(span_counts(labels, predictions).sum(axis=0)) == conlleval(labels, predictions)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tags=all_tags)
def test_a_scheme_holds_all_that_was_read(scheme, tags):
    converted = convert(tags, scheme)
    assert chunks(converted) == chunks(tags)
    assert convert(converted, scheme) == converted
    assert [tag == "O" for tag in converted] == [tag == "O" for tag in tags]


def test_sequences_in_three_schemes():
    found = [Chunk("PER", 0, 2), Chunk("PER", 2, 3), Chunk("LOC", 3, 6), Chunk("PER", 7, 8)]
    written = {scheme: " ".join(write_tags(found, 8, scheme)) for scheme in SCHEMES}
    assert written == {
        "IOB1": "I-PER I-PER B-PER I-LOC I-LOC I-LOC O I-PER",
        "IOB2": "B-PER I-PER B-PER B-LOC I-LOC I-LOC O B-PER",
        "IOBES": "B-PER E-PER S-PER B-LOC I-LOC E-LOC O S-PER",
    }
    assert all(chunks(tags.split()) == found for tags in written.values())
    written = {scheme: " ".join(convert(["O", "B", "I", "O", "B", "B"], scheme)) for scheme in SCHEMES}
    assert written == {"IOB1": "O I I O I B", "IOB2": "O B I O B B", "IOBES": "O B E O S S"}
    # Cases for which the Perl script has no rule: IOBES, and S where E is expected.
    tags = ["B-x", "E-x", "B-x", "E-x", "S-x", "S-x", "B-x", "S-x", "I-x"]
    places = [(0, 2), (2, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]
    assert chunks(tags) == [Chunk("x", start, end) for start, end in places]


BILOU, BMES, BMEWO = {"E": "L", "S": "U"}, {"I": "M"}, {"I": "M", "S": "W"}


@pytest.mark.parametrize("letters", [BILOU, BMES, BMEWO], ids=["BILOU", "BMES", "BMEWO"])
@given(tags=all_tags)
def test_other_schemes_are_iobes_in_other_letters(letters, tags):
    assert chunks([letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]) == chunks(tags)


def test_a_tag_without_its_letter_first_is_refused_with_all_letters():
    """A type first, only a type, another character instead of the hyphen, small letters, nothing: all give an error."""
    letters = "BIESMLUW"
    firsts = {f"PER-{letter}": f"{letter}-PER" for letter in letters} | {"C-ARG1-B": "B-C-ARG1", "PER": "B-PER"}
    others = {tag: f"B-{tag}" for tag in ("PER-O", "PER-X", "B_PER", "b-PER", "o", "BI-PER", "MISC-")}
    for tag, instead in (firsts | others | {"": "B-NP"}).items():
        with pytest.raises(UsageError) as refused:
            chunks(["O", tag])
        line = str(refused.value)
        assert line.startswith(f"{tag!r} is not a chunk tag; write O or, as in {instead},"), line
        assert {*letters} <= {*line.partition(", one of ")[2]}, line


def test_metrics_by_hand_and_of_nothing():
    labels = [row.split() for row in ("B-NP I-NP O B-VP", "B-NP O B-PP O")]
    predictions = [row.split() for row in ("B-NP I-NP O B-PP", "B-NP B-NP B-PP O")]
    assert span_counts(labels, predictions).tolist() == [[1, 2, 2], [2, 3, 2]]
    expected = {"precision": 3 / 5, "recall": 3 / 4, "f1": 2 * 0.6 * 0.75 / 1.35}
    assert span_metrics(labels, predictions) == pytest.approx(expected)
    by_type = {kind: counts.tolist() for kind, counts in span_counts_by_type(labels, predictions).items()}
    assert by_type == {"NP": [2, 3, 2], "PP": [1, 2, 1], "VP": [0, 0, 1]}
    assert span_metrics([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert span_metrics([["B-x"]], [["B-x"]]) == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    counts = np.array([[1, 2, 2], [3, 3, 4], [0, 1, 0], [2, 2, 2]])
    replicates = bootstrap(counts[None], span_f1, resamples=50)
    assert replicates.shape == (50,) and ((replicates > 0) & (replicates <= 1)).all()


def test_mistakes_are_named():
    with pytest.raises(UsageError, match=r"'NN' is not a chunk tag; .* B-NN"):
        chunks(["O", "NN"])
    with pytest.raises(UsageError, match=r"unknown scheme=BILOU; write one of IOB1, IOB2, IOBES"):
        convert(["O"], "BILOU")
    with pytest.raises(ValueError, match="sequence 1 has 1 labels but 2 predictions"):
        span_counts([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="1 labelled sequences but 2 predictions"):
        span_counts([["O"]], [["O"], ["O"]])
