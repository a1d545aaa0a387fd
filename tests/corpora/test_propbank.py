from hypothesis import given
from hypothesis import strategies as st

from retable.corpora.columns import TaggedSentence
from retable.corpora.propbank import read_propositions
from retable.metrics.spans import Chunk, chunks, write_tags

# An invented document in the columns of CoNLL-2012: a sentence with two predicates, then one without.
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
# The words of CoNLL-2005, which are in a separate file, with the columns of its props: the lemma of the target, then
# one column per target.
CONLL_2005 = """He     -       (A0*)
did    -       *
n't    -       (AM-NEG*)
say    say     (V*)
why    -       (A1*)

Yes    -
"""


def test_columns_of_conll_2012_and_2005(tmp_path):
    (path := tmp_path / "train.conll").write_text(CONLL_2012)
    assert read_propositions(path, word=3, first=11, behind=1) == [
        TaggedSentence(WORDS, ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1", "I-ARG1", "O"], 1),
        TaggedSentence(WORDS, ["B-ARG0", "O", "O", "B-V", "I-V", "B-ARG1", "O"], 3),
    ]
    path.write_text(CONLL_2005)
    assert read_propositions(path, word=0, first=2) == [
        TaggedSentence(["He", "did", "n't", "say", "why"], ["B-A0", "O", "B-AM-NEG", "B-V", "B-A1"], 3)
    ]


roles = st.sampled_from(["A0", "A1", "C-A1", "AM-TMP"])


@given(parts=st.lists(st.tuples(roles | st.just(""), st.integers(1, 3)), max_size=4), place=st.integers(0, 4))
def test_brackets_are_the_chunks(parts, place, tmp_path_factory):
    """Spans of several lengths, words outside of spans (""), and a predicate inside a span, written as brackets."""
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
