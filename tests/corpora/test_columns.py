from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence, read_tagged, read_zeroed
from retable.corpora.conllu import read_conllu
from retable.metrics.spans import convert, span_counts

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
lamb NN I-NP O
. . O O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

# NN I-NP O
"""


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "train.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_words_with_their_parts_of_speech_and_chunks_of_one_type(write):
    path = write("He PRP B-NP\nreckons VBZ B-VP\n1/2 CD I-NP\n")
    assert read_tagged(path, pos=1, chunk="NP") == [
        TaggedSentence(["He/PRP", "reckons/VBZ", "1/2/CD"], ["B-NP", "O", "I-NP"])
    ]
    with pytest.raises(UsageError, match=r"line 1: pos=3 does not exist"):
        read_tagged(path, pos=3)


def test_named_entities_of_conll_2003(write):
    assert read_tagged(write(CONLL_2003), tag=3) == [
        TaggedSentence(["EU", "rejects", "lamb", "."], ["I-ORG", "O", "O", "O"]),
        TaggedSentence(["Peter", "Blackburn"], ["I-PER", "I-PER"]),
        TaggedSentence(["#"], ["O"]),
    ]
    assert read_tagged(write(CONLL_2003), tag=1)[1].tags == ["NNP", "NNP"]


def test_tabs_windows_line_ends_a_byte_order_mark_and_no_last_blank_line(write):
    content = "\ufeff1\tder\u00a0Hund\tB-X\r\n2\tbellt\tO\r\n \r\n\r\n1 so  O"
    assert read_tagged(write(content), word=1) == [
        TaggedSentence(["der\u00a0Hund", "bellt"], ["B-X", "O"]),
        TaggedSentence(["so"], ["O"]),
    ]


def test_a_document_line_ends_a_sentence_whatever_its_columns(write):
    """Its columns differ between copies of the files; a blank line before or after it may be missing."""
    content = "-DOCSTART- O\n\nEU NNP I-NP I-ORG  \n-DOCSTART-\nPeter NNP I-NP I-PER\t\n \t \n-DOCSTART- -X- O O\n"
    assert [each.words for each in read_tagged(write(content))] == [["EU"], ["Peter"]]


def test_digits_of_words_become_zeros(write):
    content = (
        "1996-08-22 CD I-NP B-X1\nB2B NN I-NP O\n\n٣ CD I-NP O\n"  # an Arabic digit stays, as in the authors' code
    )
    assert read_zeroed(write(content), tag=3) == [
        TaggedSentence(["0000-00-00", "B0B"], ["B-X1", "O"]), TaggedSentence(["٣"], ["O"])
    ]  # fmt: skip
    assert read_zeroed(write(content), word=1, tag=0)[0] == TaggedSentence(["CD", "NN"], ["1996-08-22", "B2B"])


chunked = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["O", "PER", "LOC"])), min_size=1, max_size=6)


@settings(max_examples=50)
@given(true=chunked, guessed=chunked)
def test_f1_of_iob1_files_is_that_of_any_scheme(true, guessed, tmp_path_factory):
    """Entities are written in IOB1: B only between neighbouring entities of one type. They are counted by hand."""
    path, spans = tmp_path_factory.getbasetemp() / "iob1.txt", []
    length = max(sum(n for n, _ in each) for each in (true, guessed))
    for entities in (true, guessed):
        lines, found, start, before = [], set(), 0, "O"
        for n, kind in [*entities, (length - sum(n for n, _ in entities), "O")]:
            tags = ["O"] * n if kind == "O" else [f"{'B' if kind == before else 'I'}-{kind}", *[f"I-{kind}"] * (n - 1)]
            found |= {(kind, start, start + n)} if kind != "O" else set()
            lines += [f"w X Y {tag}\n" for tag in tags]
            start, before = start + n, kind
        path.write_text("".join(lines), encoding="utf-8")
        spans.append((read_tagged(path)[0].tags, found))
    expected = [len(spans[0][1] & spans[1][1]), len(spans[1][1]), len(spans[0][1])]
    for scheme in ("IOB1", "IOB2", "IOBES"):
        gold, predicted = (convert(tags, scheme) for tags, _ in spans)
        assert span_counts([gold], [predicted])[0].tolist() == expected


words = st.text(st.characters(codec="utf-8", exclude_categories=["Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=5)
sentences = st.lists(
    st.lists(st.tuples(words.filter(lambda word: word != "-DOCSTART-"), words), min_size=1, max_size=4),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=50)
@given(sentences=sentences, separator=st.sampled_from([" ", "\t", " \t "]), blank=st.sampled_from(["\n", " \n\n"]))
def test_what_is_written_is_read(sentences, separator, blank, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "columns.txt"
    lines = ("".join(f"{word}{separator}{tag}\n" for word, tag in rows) + blank for rows in sentences)
    path.write_bytes("".join(lines).encode())
    expected = [TaggedSentence(*map(list, zip(*rows, strict=True))) for rows in sentences]
    first = expected[0].words[0]
    expected[0].words[0] = first.removeprefix("\ufeff")
    if expected[0].words[0]:
        assert read_tagged(path) == expected


@pytest.mark.real
def test_conll_2000(data_dir):
    counts = {"train": (8936, 211727), "test": (2012, 47377)}
    for split, (n_sentences, n_words) in counts.items():
        read = read_tagged(data_dir / "conll2000" / f"{split}.txt")
        assert (len(read), sum(len(sentence.words) for sentence in read)) == (n_sentences, n_words)
        assert all(convert(sentence.tags, "IOB2") == sentence.tags for sentence in read)
    assert sum(tag.startswith("B-") for sentence in read for tag in sentence.tags) == 23852  # phrases, as published


# Examples from the definition of the format: a contraction, an empty node, a form with a space.
CONLL_U = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
3\ta\ta\tADP\tS\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_

# sent_id = 2
1\tSue\tSue\tPROPN\tN\t_\t2\tnsubj\t_\t_
2\tlikes\tlike\tVERB\tV\t_\t0\troot\t_\t_
2.1\tlikes\tlike\tVERB\tV\t_\t_\t_\t0:root\t_
3\t20 000\t20 000\tNUM\tC\t_\t2\tobj\t_\t_
4\t#\t#\tSYM\t#\t_\t2\tpunct\t_\t_
"""


def test_words_are_the_syntactic_ones_with_the_tags_of_a_column(write):
    assert read_conllu(write(CONLL_U)) == [
        TaggedSentence(["vamos", "nos", "a", "el", "mar"], ["VERB", "PRON", "ADP", "DET", "NOUN"]),
        TaggedSentence(["Sue", "likes", "20 000", "#"], ["PROPN", "VERB", "NUM", "SYM"]),
    ]
    crlf = CONLL_U.replace("\n", "\r\n")
    relations = [sentence.tags for sentence in read_conllu(write(crlf), "deprel")]
    assert relations == [["root", "obj", "case", "det", "obl"], ["nsubj", "root", "obj", "punct"]]
    with pytest.raises(UsageError, match="no column 'pos'; write one of id, form, lemma, upos"):
        read_conllu(write(CONLL_U), "pos")


@pytest.mark.real
def test_english_ewt(data_dir):
    for split, n_sentences, n_words in (("dev", 2001, 25147), ("test", 2077, 25094)):
        read = read_conllu(data_dir / "ud_english_ewt" / f"en_ewt-ud-{split}.conllu")
        assert (len(read), sum(len(sentence.words) for sentence in read)) == (n_sentences, n_words)
        tags = Counter(tag for sentence in read for tag in sentence.tags)
        assert len(tags) == 17 and "_" not in tags
