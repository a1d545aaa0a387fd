import json
import re
from datetime import datetime

import pyarrow
import pyarrow.parquet
import pytest

from retable.core.errors import TextError, UsageError
from retable.tasks.table import placed, read_table


def fields(path, **form) -> list[dict]:
    return [row.fields for row in read_table(path, **form).rows]


def places(path, **form) -> list[str]:
    return [row.place for row in read_table(path, **form).rows]


@pytest.fixture
def write(tmp_path):
    def writer(name: str, content: str, encoding: str = "utf-8"):
        (tmp_path / name).write_bytes(content.encode(encoding))
        return tmp_path / name

    return writer


def test_quotes_are_characters_of_a_tsv_and_hold_fields_of_a_csv_together(write):
    path = write("a.tsv", 'id\ttext\r\n1\t"quoted, as it stands\n\n2\t\u2028é, a "b" ""c  \n')
    assert fields(path) == [{"id": "1", "text": '"quoted, as it stands'}, {"id": "2", "text": '\u2028é, a "b" ""c  '}]
    assert places(path) == ["line 2", "line 4"]
    path = write("a.csv", 'id,text\n1,"a, b"\n2,"says ""no""\nand goes"\n\n3,plain\n')
    texts = ["a, b", 'says "no"\nand goes', "plain"]
    assert fields(path) == [{"id": f"{i}", "text": text} for i, text in enumerate(texts, 1)]
    assert places(path) == ["line 2", "line 3", "line 6"]
    path = write("sts.csv", 'news\t5.0\tsays "no\tand, so\n')
    row = {"genre": "news", "score": "5.0", "a": 'says "no', "b": "and, so"}
    assert fields(path, columns=["genre", "score", "a", "b"], delimiter="\t", quotes=False) == [row]
    assert fields(write("b.txt", "x;y\n'1';\"2;3\"\n"), delimiter=";", quotes=True) == [{"x": "'1'", "y": "2;3"}]


@pytest.mark.parametrize(("name", "content"), [("a.tsv", "x\n1\n"), ("a.csv", "x\n1\n"), ("a.jsonl", '{"x": "1"}\n')])
def test_a_byte_order_mark_is_no_text(write, name, content):
    path = write(name, content, "utf-8-sig")
    assert read_table(path).columns == ["x"] and fields(path) == [{"x": "1"}]


def test_json_lines(write):
    rows = [{"text": "a \u2028 b", "label": 1, "sure": True}, {"text": None, "label": 2.5, "more": ["x"]}]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_table(path).columns == ["text", "label", "sure"]
    assert fields(path) == [
        {"text": "a \u2028 b", "label": "1", "sure": "true"},
        {"text": None, "label": "2.5", "more": '["x"]'},
    ]
    assert read_table(write("b.jsonl", "")).columns == []


def test_parquet_with_dates(tmp_path):
    table = pyarrow.table({"text": ["a\tb", None, "c"], "label": [1, 0, None]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    assert read_table(tmp_path / "a.parquet").columns == ["text", "label"]
    assert [[*row.values()] for row in fields(tmp_path / "a.parquet")] == [["a\tb", "1"], [None, "0"], ["c", None]]
    assert places(tmp_path / "a.parquet") == ["row 1", "row 2", "row 3"]
    table = pyarrow.table({"text": ["a"], "time": [datetime(2020, 5, 17)], "raw": [b"x"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert fields(tmp_path / "a.parquet") == [{"text": "a", "time": '"2020-05-17 00:00:00"', "raw": "\"b'x'\""}]


def test_lines_that_follow_a_pattern_or_are_incomplete(write):
    path = write("a.label", "NUM:date When was caf\xe9\xf0 ?\nHUM:ind Who: me ?\n", "latin-1")
    form = {"pattern": r"(?P<label>\w+):\w+ (?P<question>.*)", "encoding": "latin-1"}
    assert read_table(path, **form).columns == ["label", "question"]
    found = [[*row.values()] for row in fields(path, **form)]
    assert found == [["NUM", "When was café\xf0 ?"], ["HUM", "Who: me ?"]]
    path = write("qqp.tsv", 'id\tq\tlabel\n1\ta\t0\n2\tWho was he?\n"\tWhat is\t0\t1\n3\tb\t1\n')
    found = [[*row.values()] for row in fields(path, skip_incomplete=True)]
    assert found == [["1", "a", "0"], ["3", "b", "1"]]
    with pytest.raises(UsageError, match=r"line 2: byte 4 of the line is not UTF-8 \(0xe9\)"):
        fields(write("a.tsv", "x\ncafé\n", "latin-1"))


def test_gold_comes_from_a_second_file(write):
    data, gold = write("a.txt", "board\tRoom\ncarry\tYou\n"), write("g.txt", "F\nT\n")
    assert fields(data, columns=["word", "text"], gold=str(gold)) == [
        {"word": "board", "text": "Room", "gold": "F"},
        {"word": "carry", "text": "You", "gold": "T"},
    ]
    for content, how in (("F\n", "fewer"), ("F\nT\nT\n", "more")):
        with pytest.raises(UsageError, match=rf"g.txt has {how} lines than .*a.txt has rows"):
            fields(data, columns=["word", "text"], gold=str(write("g.txt", content)))


@pytest.mark.parametrize(("name", "content", "form", "message"), [
    ("a.tsv", "x\ty\n1\t2\n3\n", {}, "line 3: expects 2 fields but got 1"),
    ("a.tsv", "x\ty\n1\t2\t3\n", {}, "line 2: expects 2 fields but got 3"),
    ("a.csv", 'x,y\n1,"2\n3,4\n', {}, r"line 2: .*write task.form=\{quotes: false\}"),
    ("a.jsonl", '{"x": 1}\n{"x": \n', {}, "line 2: not JSON"),
    ("a.jsonl", "[1]\n", {}, "line 1: not a JSON object"),
    ("a.txt", "a b\n", {"pattern": "(?P<x>c)"}, r"line 1 does not match task.form.pattern=\(\?P<x>c\)"),
    ("a.parquet", "no", {}, "a.parquet cannot be read"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(write, name, content, form, message):
    path = write(name, content)
    with pytest.raises(UsageError, match=message) as caught:
        fields(path, **form)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path):
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.parquet"):
        with pytest.raises(UsageError, match=rf"{name} does not exist; set RETABLE_DATA"):
            fields(tmp_path / name)


# The second row is of the text; the first has the same word in another column, which is not read.
TABLE = [("x <EOS> y", "a cat sat"), ("two", 'a "dog" <eos> ran'), ("three", "an <eos> is here")]
CONTENTS = {
    "a.tsv": "id\ttext\n" + "".join(f"{id}\t{text}\n" for id, text in TABLE),
    "a.csv": "id,text\n" + "".join('{},"{}"\n'.format(id, text.replace('"', '""')) for id, text in TABLE),
    "a.jsonl": "\n" + "".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in TABLE),
    "a.txt": "a <eos>\n\n" + "".join(f"{text}\n" for _, text in TABLE[1:]),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "utf-32-be"])
def test_a_text_that_is_refused_is_found_in_its_file(name, encoding, tmp_path):
    other, path = tmp_path / "b.txt", tmp_path / name
    other.write_text("no such word\nbut one <eos>\n")
    path.write_bytes(("é" * (encoding == "latin-1") + CONTENTS[name]).encode(encoding))
    (tmp_path / "tokenizer.json").write_text('{\n"<eos>": 0\n}\n')  # the text was not made with this tokenizer
    text = 'a "dog" <eos> ran'
    with (
        pytest.raises(UsageError, match=rf"^{re.escape(str(path))}, line 3: refused$"),
        placed([tmp_path / "tokenizer.json", other, path]),
    ):
        raise TextError("refused", text, "<eos>")


def test_a_text_that_is_refused_is_found_in_a_row_or_named_by_its_file(tmp_path):
    rows = pyarrow.table({"id": [id for id, _ in TABLE], "text": [text for _, text in TABLE]})
    pyarrow.parquet.write_table(rows, path := tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"a\.parquet, row 2: refused$"), placed([path]):
        raise TextError("refused", TABLE[1][1], "<eos>")
    with pytest.raises(UsageError, match=r"a\.parquet: refused$"), placed([path]):
        raise TextError("refused", "a [SEP]", "[SEP]")
    with pytest.raises(UsageError, match=r"^another$"), placed([path]):
        raise UsageError("another")


def test_the_first_of_equal_lines_is_named(write):
    path = write("a.tsv", "label\ttext\n" + "0\ta cat\n" * 7 + "0\ta <eos>\n" * 5)
    with pytest.raises(UsageError, match=r"a\.tsv, line 9: refused$"), placed([path, path.with_name("none.tsv")]):
        raise TextError("refused", "a <eos>", "<eos>")
