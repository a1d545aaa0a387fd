"""Test faults that fuzzing found outside of corpora: a one-line error names the file. Corpora:
tests/corpora/test_damaged.py.
"""

from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora.questions import Question
from retable.evaluation.prompting import Prompted
from retable.evaluation.similarity import read_pairs
from retable.models.arpa import read_arpa
from retable.models.vector_files import read_vectors
from retable.tokenizers import byte_bpe, unigram, wordpiece
from retable.tokenizers.pretrained import read_tokenizer
from tests.fuzz import kinds

ARPA = b"\\data\\\nngram 1=2\n\n\\1-grams:\n0.5\ta\n-0.5\t</s>\n\n\\end\\\n"  # a probability above 1


@pytest.mark.parametrize(("read", "content"), [
    *((read_vectors, each) for each in (b"1000000000000 100\n", b"0 2\n", b"1 2\ncat nan 1\n")),
    *((read_vectors, each) for each in (b"1 2\ncat 1e400 1\n", b"1 2\n\xc2\xa0 1 2\n 1 2\n")),
    *((read_pairs, each) for each in (b"caf\xe9 bird 3\n", b"cat bird nan\n", b"cat bird 1e400\n")),
    (read_arpa, ARPA),
])  # fmt: skip
def test_vectors_pairs_and_n_grams_that_no_stage_could_use(tmp_path, read, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.txt"):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize(("name", "content"), [
    ("vocab.txt", b"a\nb\n[SEP]\n"), ("vocab.txt", b"\xff\n"), ("tokenizer_config.json", b"[1"),
    ("tokenizer_config.json", b'{"do_lower_case": "x"}'),
])  # fmt: skip
def test_tokenizer_files_that_are_damaged(tmp_path, name, content):
    for file, whole in kinds.older("bert").items():
        (tmp_path / file).write_bytes(whole)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=r"vocab\.txt|tokenizer_config\.json"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("train", [
    lambda lines: byte_bpe.train(lines, 270),
    lambda lines: unigram.train(lines, 130),
    lambda lines: wordpiece.train(lines, 60, lowercase=True),
])  # fmt: skip
def test_one_word_of_a_megabyte_is_learnt_from_in_parts(train):
    tokenizer = train([*kinds.LINES, "abcde" * 200_000])
    assert tokenizer.encode(kinds.LINES[0])


def test_answers_that_the_model_does_not_know(tmp_path):
    class Asked:
        inputs = (Path("asked.tsv"),)

        def read(self):
            return [Question({"text": line}, ("cat", "splendid"), 0) for line in kinds.LINES]

    with pytest.raises(UsageError, match=r"vocabulary lacks 'splendid', so each question of"):
        Prompted("own", kinds.tokens(), Asked(), "{text} :")(kinds.counted(), tmp_path)


@pytest.mark.parametrize(("own", "message"), [
    ({"form": {"quotes": True, "delimiter": "||"}}, "form.delimiter="),
    ({"form": {"pattern": "("}}, "form.pattern="),
    ({"form": {"encoding": "nope"}}, "form.encoding="),
    ({"form": {"encoding": 3}}, "form.encoding="),
    ({"form": {"columns": "label"}}, "form.columns="),
    ({"label": []}, "label"),
    ({"labels": {"good": None}}, "labels"),
    *(({"labels": None, "scores": scores}, "scores") for scores in ([5, 1], [1])),
    *(({"files": {"train": train, "validation": 0.5}}, "files.train") for train in (0.5, {"x": 1}, ".")),
])  # fmt: skip
def test_tasks_and_forms_of_files_that_there_are_not(tmp_path, monkeypatch, own, message):
    monkeypatch.chdir(tmp_path)
    for name, content in kinds.in_splits(kinds.of_rows(*kinds.ROWS, delimiter="\t"), "tsv").items():
        Path(name).write_bytes(content)
    with pytest.raises(UsageError, match=f"task.{message}"):
        kinds.sentences("tsv", **own)(None)


def test_a_message_is_one_short_printable_line():
    message = str(UsageError("a\nb\x1b[31m\u202e" + "x" * 10_000))
    assert message.isprintable() and len(message) < 1000 and message.startswith("a b")
