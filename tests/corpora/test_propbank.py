import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.propbank import read_propositions
from retable.metrics.spans import Chunk, chunks, write_tags

# A made-up sentence in the columns of CoNLL-2012: two predicates, then a sentence with none.
CONLL_2012 = """#begin document (nw/made/up_0001); part 000
nw/made/up_0001 0 0 She PRP (TOP(S* - - - - * (ARG0*) (ARG0*) (1)
nw/made/up_0001 0 1 tried VBD * try 01 - - * (V*) * -
nw/made/up_0001 0 2 to TO * - - - - * (ARG1* * -
nw/made/up_0001 0 3 wake VB * wake 01 - - * * (V* -
nw/made/up_0001 0 4 up RP * - - - - * * *) -
nw/made/up_0001 0 5 Kim NNP * - - - - (PERSON) *) (ARG1*) (2)
nw/made/up_0001 0 6 . . *)) - - - - * * * -

nw/made/up_0001 0 0 Oh UH * - - - - * -

#end document
"""
WORDS = ["She", "tried", "to", "wake", "up", "Kim", "."]
# CoNLL-2005's words beside its props: the target's lemma, then a column for each target.
CONLL_2005 = """He     -       (A0*)
did    -       *
n't    -       (AM-NEG*)
say    say     (V*)
why    -       (A1*)

Yes    -
"""


def write(tmp_path, content: str):
    (tmp_path / "train.conll").write_text(content, encoding="utf-8")
    return tmp_path / "train.conll"


def test_columns_of_conll_2012(tmp_path):
    assert read_propositions(write(tmp_path, CONLL_2012), word=3, first=11, behind=1) == [
        TaggedSentence(WORDS, ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "I-ARG1", "O"], 1),
        TaggedSentence(WORDS, ["B-ARG0", "O", "O", "B-V", "I-V", "B-ARG1", "O"], 3),
    ]


def test_columns_of_conll_2005(tmp_path):
    assert read_propositions(write(tmp_path, CONLL_2005), word=0, first=2) == [
        TaggedSentence(["He", "did", "n't", "say", "why"], ["B-A0", "O", "B-AM-NEG", "B-V", "B-A1"], 3)
    ]


roles = st.sampled_from(["A0", "A1", "C-A1", "AM-TMP"])


@given(parts=st.lists(st.tuples(roles | st.just(""), st.integers(1, 3)), max_size=4), place=st.integers(0, 4))
def test_brackets_are_the_chunks(parts, place, tmp_path_factory):
    """Spans with lengths, "" outside of any, and a predicate among them, written as brackets."""
    parts = [*parts[:place], ("V", 1), *parts[place:]]
    fields, found, length = [], [], 0
    for role, size in parts:
        inner = ["*"] * size
        if role:
            inner[0], inner[-1] = f"({role}{inner[0]}", f"{inner[-1]})" if size > 1 else f"({role}*)"
            found.append(Chunk(role, length, length + size))
        fields, length = fields + inner, length + size
    path = tmp_path_factory.getbasetemp() / "brackets.txt"
    path.write_text("".join(f"w {field}\n" for field in fields))
    (proposition,) = read_propositions(path, word=0, first=1)
    assert proposition.tags == write_tags(found, length, "IOB2")
    assert chunks(proposition.tags) == found
    assert proposition.tags[proposition.predicate] == "B-V"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a (V*)\nb (A0*\n", r"line 2: \(A0\* of column 1 is still open where the sentence ends"),
        ("a (V*)\nb *)\n", r"line 2: column 1 has '\*\)' outside of brackets; write \*, \(A0\*, \*\) or \(A0\*\)"),
        ("a (A0*\nb (V*)\n", r"line 2: column 1 has '\(V\*\)' inside of \(A0\*"),
        ("a (V*)\nb O\n", r"line 2: column 1 has 'O' outside of brackets"),
        ("a (A0(V*))\n", r"line 1: column 1 has '\(A0\(V\*\)\)'"),
        ("x *\n\na (A0*)\nb *\n", r"line 1: column 1 of the sentence marks 0 predicates; it has to have one \(V\*\)"),
        ("a (V*)\nb (V*)\n", r"line 1: column 1 of the sentence marks 2 predicates"),
        ("a (V*)\nb\n", r"line 2: 1 columns where the sentence's first line has 2"),
        ("a\n\nb\n", r"marks no predicates; first=1 and behind=0 have to name"),
        ("#begin document (x); part 000\n", r"marks no predicates"),
    ],
)
def test_a_mistake_is_named_with_its_line(content, message, tmp_path):
    with pytest.raises(UsageError, match=rf"train\.conll.*{message}"):
        read_propositions(write(tmp_path, content), word=0, first=1)
