import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.corpora.coreference import Document, DocumentFiles, read_documents, write_documents

# A made-up document in the columns of CoNLL-2012 that matter, with mentions inside of mentions, and a second part.
EXAMPLE = """#begin document (bc/made/00/up_0000); part 000
up 0 0 The (7
up 0 1 mother -
up 0 2 of -
up 0 3 Kim (2)|7)
up 0 4 left -

up 0 0 She (7)
up 0 1 saw -
up 0 2 him (2)

#end document
#begin document (bc/made/00/up_0000); part 001
up 1 0 It (0|(0
up 1 1 rains 0)
up 1 2 . 0)

#end document
"""


def write(tmp_path, content: str):
    (tmp_path / "dev.conll").write_text(content, encoding="utf-8")
    return tmp_path / "dev.conll"


def test_clusters_of_mentions(tmp_path):
    sentences = [["The", "mother", "of", "Kim", "left"], ["She", "saw", "him"]]
    assert read_documents(write(tmp_path, EXAMPLE)) == [
        Document("bc/made/00/up_0000", 0, sentences, [[(0, 4), (5, 6)], [(3, 4), (7, 8)]]),
        Document("bc/made/00/up_0000", 1, [["It", "rains", "."]], [[(0, 2), (0, 3)]]),
    ]


spans = st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 3))  # cluster, first word, words


def crosses(mention, others) -> bool:
    """Whether it begins inside of another of its cluster and ends behind it, which brackets can't tell."""
    return any(c == mention[0] and (a < mention[1] < b < mention[2] or mention[1] < a < mention[2] < b)
               for c, a, b in others)  # fmt: skip


@given(given_spans=st.lists(spans, max_size=6, unique=True))
def test_mentions_that_are_written_are_read(given_spans, tmp_path_factory):
    mentions: list[tuple[int, int, int]] = []
    for cluster, start, size in given_spans:
        mention = (cluster, start, min(start + size, 6))
        if mention not in mentions and not crosses(mention, mentions):
            mentions.append(mention)
    lines = []
    for place in range(6):
        closing = [f"{c})" for c, a, b in mentions if b == place + 1 != a + 1]
        single = [f"({c})" for c, a, b in mentions if a == place and b == a + 1]
        opening = [f"({c}" for c, a, b in mentions if a == place and b > a + 1]
        lines.append(f"w{place} {'|'.join(closing + single + opening) or '-'}\n")
    path = tmp_path_factory.getbasetemp() / "clusters.txt"
    path.write_text("#begin document (d); part 003\n" + "".join(lines) + "\n#end document\n")
    (document,) = read_documents(path, word=0)
    expected = {c: sorted((a, b) for d, a, b in mentions if d == c) for c, _, _ in mentions}
    assert document == Document("d", 3, [[f"w{i}" for i in range(6)]], sorted(expected.values()))


def test_documents_that_are_written_are_read(tmp_path):
    """With mentions inside of mentions of their own cluster, and side by side."""
    documents = [
        Document("a/b_0", 0, [["a", "(1)", "c"], [*"d#f"]], [[(0, 1), (0, 2), (0, 3)], [(3, 6), (4, 5), (4, 6)]]),
        Document("a/b_0", 12, [["x", "y"]], [[(0, 1), (1, 2)]]),
        Document("none", 0, [["x"]], []),
    ]  # fmt: skip
    write_documents(tmp_path / "written.conll", documents)
    assert read_documents(tmp_path / "written.conll") == documents
    lines = (tmp_path / "written.conll").read_text().split("\n")
    assert lines[0] == "#begin document (a/b_0); part 000" and lines[4] == "" and lines[8:10] == ["", "#end document"]
    assert lines[1] == "a/b_0\t0\t0\ta\t-\t-\t-\t-\t-\t-\t-\t(0)|(0|(0"
    assert lines[2].endswith("\t-\t0)") and lines[6].endswith("\t(1)|(1")


def test_a_file_a_split(tmp_path):
    paths = [tmp_path / name for name in ("train", "dev", "test")]
    for path in paths:
        write_documents(path, [Document(path.name, 0, [["x"]], [])])
    files = DocumentFiles(*map(str, paths))
    assert files.inputs == paths
    assert {split: [each.name for each in found] for split, found in files.splits().items()} == {
        "train": ["train"],
        "validation": ["dev"],
        "test": ["test"],
    }
    write_documents(paths[1], [Document("empty", 3, [], [])])
    with pytest.raises(UsageError, match="dev: empty, part 003 has no words; take it out"):
        files.splits()
