from collections import Counter

import pytest

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.conllu import read_conllu

# The format's own examples: a contraction, an empty node, a form with a space.
EXAMPLE = """# sent_id = 1
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


def write(tmp_path, content: str):
    (tmp_path / "dev.conllu").write_text(content, encoding="utf-8", newline="")
    return tmp_path / "dev.conllu"


def test_words_are_the_syntactic_ones_with_the_tags_of_a_column(tmp_path):
    assert read_conllu(write(tmp_path, EXAMPLE)) == [
        TaggedSentence(["vamos", "nos", "a", "el", "mar"], ["VERB", "PRON", "ADP", "DET", "NOUN"]),
        TaggedSentence(["Sue", "likes", "20 000", "#"], ["PROPN", "VERB", "NUM", "SYM"]),
    ]
    crlf = EXAMPLE.replace("\n", "\r\n")
    assert [s.tags for s in read_conllu(write(tmp_path, crlf), "deprel")] == [
        ["root", "obj", "case", "det", "obl"],
        ["nsubj", "root", "obj", "punct"],
    ]
    with pytest.raises(UsageError, match="no column 'pos'; write one of id, form, lemma, upos"):
        read_conllu(write(tmp_path, EXAMPLE), "pos")


@pytest.mark.real
def test_english_ewt(data_dir):
    for split, n_sentences, n_words in (("dev", 2001, 25147), ("test", 2077, 25094)):
        read = read_conllu(data_dir / "ud_english_ewt" / f"en_ewt-ud-{split}.conllu")
        assert (len(read), sum(len(sentence.words) for sentence in read)) == (n_sentences, n_words)
        tags = Counter(tag for sentence in read for tag in sentence.tags)
        assert len(tags) == 17 and "_" not in tags
