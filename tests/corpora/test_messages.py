"""Test the error messages of readers of users' files: one line that names the file and the place."""

import json
import os
import re
from functools import partial
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora.benchmarks import write_lm1b, write_wikitext
from retable.corpora.columns import read_tagged
from retable.corpora.conllu import read_conllu
from retable.corpora.coreference import DocumentFiles, read_documents
from retable.corpora.cut import write_cut
from retable.corpora.json_lines import parse, read_records
from retable.corpora.minimal_pairs import BLiMP
from retable.corpora.multiple_choice import read_choices
from retable.corpora.propbank import read_propositions
from retable.corpora.questions import HellaSwag, Labelled, Lambada
from retable.corpora.squad import read_squad, read_triples
from retable.corpora.text import LONGEST, read_lines, write_corpus
from retable.corpora.text8 import write_text8
from retable.models.arpa import read_arpa
from retable.models.vector_files import read_vectors
from retable.tasks.table import read_table
from retable.tasks.tagged import TaggedFiles
from retable.tokenizers.pretrained import load

WORDS = {"0": "bad", "1": "good"}
CONTEXT = "Ada met Ada’s tutor in May 1833. In May they met again."
GOOD = {"ctx": "x", "endings": ["a", "b"], "label": 0}
ROOF = {"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": list("wxyz"), "label": 3}
PAIR = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "field": "morphology",
        "linguistics_term": "binding", "UID": "regular"}  # fmt: skip
BEGIN, END = "#begin document (d); part 000\n", "#end document\n"


BY_PATH = [
    lambda path: [*read_lines(path)], lambda path: [*read_lines(path, "utf-16")], read_squad, read_arpa, read_vectors,
    lambda path: write_cut(path.parent, str(path), 0.8, 0.1), lambda path: write_text8(path.parent, str(path)),
    lambda path: read_table(path).rows, lambda path: read_table(path.with_suffix(".parquet")),
    lambda path: load([], str(path.with_suffix(".json"))),
]  # fmt: skip


@pytest.mark.parametrize("read", BY_PATH)
def test_a_path_of_another_kind_is_named_as_what_it_is(tmp_path, read):
    """A folder; a pipe, on which a reader would wait without end; and a path that does not exist."""
    for suffix in ("", ".parquet", ".json"):
        os.mkfifo(tmp_path / f"pipe{suffix}")
        (tmp_path / f"folder{suffix}").mkdir()
    kinds = {
        "pipe": "is a pipe or a device", "folder": "is a folder|has no tokenizer", "nothing": "does not exist|no file",
    }  # fmt: skip
    for name, match in kinds.items():
        with pytest.raises(UsageError, match=f"{name}.* ({match}).*; (write|set|put|give|let) "):
            read(tmp_path / name)


@pytest.mark.parametrize("read", [read_tagged, read_conllu])
def test_a_sentence_without_an_end_is_named_by_its_line(tmp_path, read):
    row = "{}\ta\t_\tDET\t_\t_\t_\t_\t_\t_\n" if read is read_conllu else "a\tDET\n"
    (path := tmp_path / "a.txt").write_text("".join(row.format(i) for i in range(1, LONGEST + 1)))
    assert len(read(path)[0].words) == LONGEST
    with path.open("a") as file:
        file.write(row.format(LONGEST + 1))
    with pytest.raises(UsageError, match=f"^{path}, line {LONGEST + 1}: the text has {LONGEST + 1} words; write"):
        read(path)


def lines(*records: object) -> str:
    return "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)


def without(record: dict, key: str) -> dict:
    return {name: value for name, value in record.items() if name != key}


def squad(*answers: dict, **changes: object) -> str:
    entry = {"id": "q1", "question": "When?", "answers": list(answers)} | changes
    return json.dumps({"data": [{"title": "Ada", "paragraphs": [{"context": CONTEXT, "qas": [entry]}]}]})


def answer(text: str, start: int = 3) -> dict:
    return {"text": text, "answer_start": start}


def rows(*ids: str) -> str:
    return "".join(f"{i}\t" + "\t".join("abcdefghi") + "\n" for i in ids)


def twice(content: str) -> str:
    changed = json.loads(content)
    changed["data"][0]["paragraphs"][0]["qas"] *= 2
    return json.dumps(changed)


# Maps a file name, and a word if a reader has settings, to the reader.
READERS = {
    "a.txt": read_tagged,
    "a.txt task": lambda path: TaggedFiles(str(path), str(path), str(path)).splits(),
    "a.txt tag=2": partial(read_tagged, tag=2),
    "a.txt word=-3": partial(read_tagged, word=-3),
    "a.conllu": read_conllu,
    "a.conll": partial(read_documents, word=0),
    "a.conll word=1": partial(read_documents, word=1),
    "a.conll task": lambda path: DocumentFiles(*[str(path)] * 3).splits(),
    "a.props": partial(read_propositions, word=0, first=1),
    "a.jsonl": lambda path: read_choices(path, "ctx", "endings", "label"),
    "a.json": read_squad,
    "a.json triples": read_triples,
    "a.jsonl hellaswag": lambda path: HellaSwag(str(path)).read(),
    "a.jsonl lambada": lambda path: Lambada(str(path)).read(),
    "a.txt lambada": lambda path: Lambada(str(path)).read(),
    "a.jsonl records": lambda path: [*read_records(path, texts=("a",))],
    "a.jsonl parse": lambda path: parse(path.read_text(), path, 3),
    "a.jsonl labelled": lambda path: Labelled(str(path), "label", WORDS).read(),
    "a.csv labelled": lambda path: Labelled(str(path), "label", WORDS).read(),
    "a.tsv labelled": lambda path: Labelled(str(path), "label", WORDS).read(),
    "a.tsv gold": lambda path: Labelled(str(path), "gold", WORDS).read(),
    "a.jsonl blimp": lambda path: BLiMP(str(path.parent)).read(),
    "a.txt lines": lambda path: [*read_lines(path)],
    "a.raw": lambda path: write_corpus(path.parent, *[str(path)] * 3),
    "text8": lambda path: write_text8(path.parent, str(path)),
    "a.cut": lambda path: write_cut(path.parent, str(path), 0.8, 0.2),
}
MISTAKES: dict[str, list[tuple[str | bytes, str]]] = {
    "a.txt": [
        ("a B\nb\n", r"line 2: expects 2 columns, as in line 1, but got 1; write the same columns in each line"),
        ("-DOCSTART- O\n\na B\n\nb c O\n", r"line 5: expects 2 columns, as in line 3, but got 3"),
        ("# two words\na B\n", r"line 2: expects 3 columns, as in line 1, but got 2; .* and no comments"),
        ("a X Y B\n# id = 1\n", r"line 2: the line is a comment; remove the comments"),
        ("a B\nb\rc B\n", r"line 2: a carriage return \(CR\) is inside the line; remove it, or end the line"),
        ("a B\rb B\nc B\n", r"line 1: a carriage return \(CR\) is inside the line"),
        ("a B\nb\r B\n", r"line 2: a carriage return \(CR\) is inside the line"),
        ("", r"has no sentences; write one word per line"),
        ("\n\n", r"has no sentences; write one word per line"),
        ("-DOCSTART- O\n", r"has no sentences"),
        (b"a B\n\xff B\n", r"line 2: byte 1 of the line is not UTF-8"),
    ],
    "a.txt task": [
        ("a\nb\n", r": the words and the tags are the same column; separate the columns of the file by spaces"),
        ("a,B\n", r": the words and the tags are the same column"),
    ],
    "a.txt tag=2": [
        ("a B\n", r"line 1: tag=2 does not exist; the line has 2 columns: write 0 to 1, or −1 for the last column")
    ],
    "a.txt word=-3": [("a B\n", r"line 1: word=-3 does not exist; the line has 2 columns")],
    "a.conllu": [
        (rows("1", "3"), r"line 2: expects word number 2 but got '3'"),
        (rows("1", "2", "1"), r"line 3: expects word number 3 but got '1'; .* a blank line after each sentence"),
        (rows("0"), r"line 1: expects word number 1 but got '0'"),
        (rows("1", "1-"), r"line 2: expects word number 2 but got '1-'"),
        ("# c\n1 a b c d e f g h i\n", r"line 2: expects ten columns separated by tabs, but got 1"),
        (rows("1")[:-3] + "\n", r"line 1: expects ten columns .* got 9"),
        ("# only a comment\n\n", r"has no sentences; write the file in CoNLL-U format"),
        (rows("1-2"), r"has no sentences; write the file in CoNLL-U format"),
    ],
    "a.conll": [
        (f"{BEGIN}a (1\n\n{END}", r"line 3: the sentence ends within a mention of cluster 1; end the mention in this"),
        (f"{BEGIN}a (1\n{END}", r"line 3: the sentence ends within a mention of cluster 1; end the mention in this"),
        (f"{BEGIN}a 1)\n{END}", r"line 2: '1\)' ends a mention of cluster 1, but no such mention has begun"),
        (f"{BEGIN}a (1|2)\n{END}", r"line 2: '\(1\|2\)' ends a mention of cluster 2, but no such mention has begun"),
        (f"{BEGIN}a 1\n{END}", r"line 2: '1' is malformed; write, for example, \(12, 12\) or \(12\)"),
        (f"{BEGIN}a (x)\n{END}", r"line 2: '\(x\)' is malformed"),
        (f"{BEGIN}a -\n{BEGIN}", r"line 3: a document begins within another document; write #end document before it"),
        (f"{BEGIN}a -\n", r"line 2: the last document does not end; write #end document after it"),
        (f"a -\n{BEGIN}", r"line 1: text outside a document; write before it #begin document \(name\); part 000"),
        (f"{BEGIN}{END}{END}", r"line 3: text outside a document; write before it #begin document \(name\); part 000"),
        (f"#begin document d\n{END}", r"line 1: malformed; write #begin document \(name\); part 000"),
        ("\n", r"has no documents"),
    ],
    "a.conll task": [(f"{BEGIN}{END}", r"d, part 000 has no words; remove the part")],
    "a.conll word=1": [(f"{BEGIN}a -\n\nb - -\nc\n{END}", r"line 5: word=1 does not exist; the line has 1 columns")],
    "a.props": [
        ("a (V*)\nb (A0*\n", r"line 2: \(A0\* in column 1 is not closed in its sentence; close it with \*\)"),
        ("a (V*)\nb *)\n", r"line 2: column 1 has '\*\)' outside brackets; write \*, \(A0\*, \*\) or \(A0\*\)"),
        ("a (A0*\nb (V*)\n", r"line 2: column 1 has '\(V\*\)' inside \(A0\*"),
        ("a (V*)\nb O\n", r"line 2: column 1 has 'O' outside brackets"),
        ("a (A0(V*))\n", r"line 1: column 1 has '\(A0\(V\*\)\)'"),
        ("x *\n\na (A0*)\nb *\n", r"line 1: column 1 of the sentence marks 0 predicates; write one \(V\*\)"),
        ("a (V*)\nb (V*)\n", r"line 1: column 1 of the sentence marks 2 predicates"),
        ("a (V*)\nb\n", r"line 2: expects 2 columns, as in the sentence's first line, but got 1"),
        ("a\n\nb\n", r"has no predicates in columns from first=1 on, without the last behind=0"),
        ("#begin document (x); part 000\n", r"has no predicates"),
    ],
    "a.jsonl": [
        (lines(GOOD, "{"), r"line 2: not JSON, .* at column 2"),
        (lines(GOOD, "[1]"), r"line 2: not a JSON object"),
        (lines(GOOD, {"ctx": "x"}), r"line 2: no field 'endings'; write one of 'ctx'"),
        (lines(without(GOOD, "label")), r"line 1: no field 'label'; write one of 'ctx', 'endings'"),
        (lines(GOOD | {"ctx": 3}), r"line 1: field 'ctx' must be a string"),
        (lines(GOOD | {"endings": ["a"]}), r"line 1: 'endings' must be two or more strings"),
        (lines(GOOD | {"endings": "ab"}), r"line 1: 'endings' must be two"),
        (lines("", GOOD | {"label": 2}), r"line 2: label 2 must be a number from 0 to 1"),
        (lines(GOOD | {"label": ""}), r"line 1: label '' must be a number from 0 to 1"),
        ("", r"has no examples"),
    ],
    "a.json": [
        ('{"data":\n [}', r"line 2: not JSON, .* at column 3"),
        ("[]", r"the file needs 'data', a list, as in SQuAD v1.1"),
        ('{"data": [{"title": "x"}]}', r"data\[0\] needs 'paragraphs', a list"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\] needs 'context', a string"),
        ('{"data": [{"paragraphs": []}]}', r"has no questions"),
        (squad(answer("June")), r"qas\[0\].answers\[0\], 'June', is not in the paragraph"),
        (squad(answer("")), r"answers\[0\], '', is not in"),
        (squad({"text": "May"}), r"paragraphs\[0\].qas\[0\].answers\[0\] needs 'answer_start', a number"),
        (squad(answer("May"), id=7), r"qas\[0\] needs 'id', a string"),
        (squad(is_impossible=True), r"qas\[0\] has no answer; every question needs one"),
        (twice(squad(answer("May"))), r"has 2 questions with the id 'q1'"),
        ('{"data":' * 50_000, r"not JSON"),
    ],
    "a.json triples": [
        (squad(answer("May")), r"must be a list of objects with context, question and answer; for SQuAD's"),
        (json.dumps([{"context": "x", "question": "y"}]), r"\[0\] needs 'answer', a string, as in a triple"),
        (json.dumps([{"context": "x", "question": "y", "answer": "z"}]), r"\[0\], 'z', is not in the para"),
        (json.dumps([{"context": "x y", "question": "y", "answer": " "}]), r"\[0\], ' ', is not in the par"),
        ("[]", "has no questions"),
        ('[\n{"context"]', "line 2: not JSON"),
    ],
    "a.jsonl hellaswag": [
        (lines(without(ROOF, "label")), "line 1: 'label' is missing"),
        (lines(ROOF | {"label": ""}), "label '' must be a number from 0 to 3; use a split with labels"),
        *((lines(ROOF | {"endings": each, "label": 0}), ": endings") for each in ([], ["one"], "text", [1, 2], None)),
        ("\n", "has no"),
    ],
    "a.jsonl lambada": [("\n", "has no")],
    "a.txt lambada": [("\n", "has no passages"), ("him\n", "passage 1: 'him' has only one word")],
    "a.jsonl records": [("\n", "has no"), ('{"a": 3}', "line 1: 'a' must be a string")],
    "a.jsonl parse": [
        ("[" * 100_000, "line 3: not JSON, .*recursion"),
        ("9" * 5000, "line 3: not JSON, .*4300 digits"),
        (r'{"a": "\ud800"}', "line 3: not JSON, .*surrogates not allowed"),
        ("{", "line 3: not JSON, .*column 2"),
    ],
    "a.jsonl labelled": [(rb'{"text": "\ud800"}', "")],  # half of a surrogate pair
    "a.csv labelled": [
        (b"text,label\na\rb,c\n", ""),  # a CR inside a row
        (lines("sentence,label", '"very good', 'book",1', "no"), "line 4: expects 2 fields but got 1"),
    ],
    "a.tsv labelled": [
        ("sentence\tlabel\nx\t2\n", "row 1: label '2' is not one of '0', '1'"),
        ("sentence\tlabel\nx\t1\ny\n", "line 3: expects 2 fields but got 1"),
    ],
    "a.tsv gold": [("sentence\tlabel\n", "no column 'gold'; write one of 'sentence', 'label'")],
    "a.jsonl blimp": [
        (
            lines(PAIR, without(PAIR, "sentence_bad")),
            "line 2: 'sentence_bad' is missing; the keys are sentence_good, field",
        ),
        (lines(PAIR, "{oops"), "line 2: not JSON, Expecting property name"),
        (lines(PAIR, "[1]"), "line 2: not a JSON object"),
    ],
    "a.txt lines": [(b"fine\ncaf\xe9 au lait\n", r"line 2: byte 4 .* not UTF-8 \(0xe9\).*iconv")],
    "a.raw": [(" \n\n", r"has no words; the train split")],
    "text8": [
        ("a b cccccccccc", "has no words for the validation split"),
        *((text, "is not text8") for text in ("", "A sentence.", "word")),
    ],
    "a.cut": [
        ("First:\nspeak,  speak.\n\nAll:\nNo — more.\n\n", "leave no text for validation; write other shares"),
        (b"caf\xe9\n", "byte 4 is not UTF-8"),
    ],
}
MISSING = {
    **{name: "does not exist; set RETABLE_DATA" for name in ("a.txt", "a.txt lines")},
    "a.tsv labelled": "does not exist",
    "text8": "does not exist; put text8 or text8.zip from http",
    "a.cut": "does not exist",
}
CASES = [(reader, content, message) for reader, mistakes in MISTAKES.items() for content, message in mistakes]


def refused(reader: str, path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        READERS[reader](path)
    assert path.name in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("reader", "content", "message"), CASES, ids=lambda part: str(part)[:40])
def test_a_mistake_is_named_with_its_place(reader, content, message, tmp_path):
    path = tmp_path / reader.split()[0]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert re.search(message, refused(reader, path))


@pytest.mark.parametrize("reader", MISSING)
def test_a_missing_file_is_named(reader, tmp_path):
    assert MISSING[reader] in refused(reader, tmp_path / reader.split()[0])


@pytest.mark.parametrize(("read", "message"), [
    (lambda folder: BLiMP(str(folder)), r"has no files \*.jsonl.*RETABLE_DATA"),
    (lambda folder: write_wikitext(folder, str(folder)), r"wiki.train.tokens does not exist"),
    (lambda folder: (folder / "wiki.train.tokens").write_text("\n") and write_wikitext(folder, str(folder)),
     r"has no words; the train split needs at least one line of text"),
    (lambda folder: write_lm1b(folder, str(folder), shards=100), "write 1 to 99"),
])  # fmt: skip
def test_a_folder_that_lacks_files(read, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        read(tmp_path)
