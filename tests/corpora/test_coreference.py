from retable.corpora.coreference import Document, read_documents, write_documents

# An invented document with the relevant columns of CoNLL-2012, nested mentions, and a second part.
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


def test_documents_that_are_written_are_read(tmp_path):
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
