import pytest

from retable.errors import UsageError
from retable.tasks.table import Example, read_examples


def read(tmp_path, content: str, labels=("bad", "good")) -> list[Example]:
    (tmp_path / "train.tsv").write_text(content, encoding="utf-8", newline="")
    return read_examples(tmp_path / "train.tsv", "text", "label", labels)


def test_columns_go_by_name_and_labels_by_place(tmp_path):
    content = 'id\tlabel\ttext\r\n1\tgood\t"quoted, as it stands\n2\tbad\t\u2028é  \n'
    assert read(tmp_path, content) == [Example('"quoted, as it stands', 1), Example("\u2028é  ", 0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\tline\ngood\ta\n", r"no column 'text'; its header names 'label', 'line'.*task.sentence"),
        ("text\ta\ngood\ta\n", "no column 'label'"),
        ("", "no column 'text'; its header names nothing"),
        ("label\ttext\ngood\ta\ngood\n", "line 3: 1 fields where the header has 2"),
        ("label\ttext\ngood\ta\tb\n", "line 2: 3 fields where the header has 2"),
        ("label\ttext\ngood\ta\nfair\tb\n", "line 3: label 'fair' is none of 'bad', 'good'"),
        ("label\ttext\n", "holds a header and no examples"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content, message, tmp_path):
    with pytest.raises(UsageError, match=message) as caught:
        read(tmp_path, content)
    assert "train.tsv" in str(caught.value)
