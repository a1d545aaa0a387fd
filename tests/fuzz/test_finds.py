"""What fuzzing has found beyond corpora (tests/corpora/test_damaged.py): refused in one line that names the file."""

import json
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora.questions import Question
from retable.evaluation.prompting import Prompted
from retable.evaluation.similarity import read_pairs
from retable.exchange.checkpoint import Checkpoint
from retable.models.arpa import read_arpa
from retable.models.word2vec_format import read_word2vec
from retable.tokenizers import byte_bpe, unigram, wordpiece
from retable.tokenizers.pretrained import read_tokenizer
from tests.fuzz import kinds


@pytest.mark.parametrize(
    "content",
    [b"1000000000000 100\n", b"0 2\n", b"1 2\ncat nan 1\n", b"1 2\ncat 1e400 1\n", b"1 2\n\xc2\xa0 1 2\n 1 2\n"],
)
def test_vectors_that_no_stage_could_use(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.txt"):
        read_word2vec(tmp_path / "a.txt")


@pytest.mark.parametrize("content", [b"caf\xe9 bird 3\n", b"cat bird nan\n", b"cat bird 1e400\n"])
def test_pairs_of_another_encoding_or_without_a_score(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.txt"):
        read_pairs(tmp_path / "a.txt")


def test_an_arpa_file_with_a_probability_above_one(tmp_path):
    path = tmp_path / "a.arpa"
    path.write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n0.5\ta\n-0.5\t</s>\n\n\\end\\\n")
    with pytest.raises(UsageError, match="above one"):
        read_arpa(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.txt", b"a\nb\n[SEP]\n"), ("vocab.txt", b"\xff\n"), ("tokenizer_config.json", b"[1"),
        ("tokenizer_config.json", b'{"do_lower_case": "x"}'),
    ],
)  # fmt: skip
def test_tokenizer_files_that_are_damaged(tmp_path, name, content):
    for file, whole in kinds.older("bert").items():
        (tmp_path / file).write_bytes(whole)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=r"vocab\.txt|tokenizer_config\.json"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("n_layer", 10**12), ("n_layer", "x"), ("n_head", 12), ("activation_function", []), ("n_embd", None)],
)
def test_a_checkpoint_of_impossible_settings(tmp_path, setting, value):
    for file, whole in kinds.files_of("gpt2", *kinds.CHECKPOINT).items():
        (tmp_path / file).write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text()) | {setting: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"config\.json"):
        Checkpoint(str(tmp_path)).model  # noqa: B018


@pytest.mark.parametrize("index", ["[]", "{", '{"weight_map": {"a": "../../x"}}', '{"weight_map": {"a": 1}}'])
def test_an_index_of_weights_that_leads_elsewhere(tmp_path, index):
    for file, whole in kinds.older("gpt2").items():
        (tmp_path / file).write_bytes(whole)
    (tmp_path / "pytorch_model.bin.index.json").write_text(index)
    with pytest.raises(UsageError, match=r"index\.json"):
        Checkpoint(str(tmp_path)).weights  # noqa: B018


@pytest.mark.parametrize(
    "train",
    [
        lambda lines: byte_bpe.train(lines, 270),
        lambda lines: unigram.train(lines, 130),
        lambda lines: wordpiece.train(lines, 60, lowercase=True),
    ],
)
def test_one_word_of_a_megabyte_is_learnt_from_in_parts(train):
    tokenizer = train([*kinds.LINES, "abcde" * 200_000])
    assert tokenizer.encode(kinds.LINES[0])


def test_answers_that_the_model_does_not_know(tmp_path):
    class Asked:
        inputs = (Path("asked.tsv"),)

        def read(self):
            return [Question({"text": line}, ("cat", "splendid"), 0) for line in kinds.LINES]

    with pytest.raises(
        UsageError, match=r"vocabulary lacks 'splendid', and so an answer to each question of asked\.tsv"
    ):
        Prompted("own", kinds.tokens(), Asked(), "{text} :")(kinds.counted(), tmp_path)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"quotes": True, "delimiter": "||"}, "delimiter"), ({"pattern": "("}, "pattern"),
        ({"encoding": "nope"}, "encoding"), ({"encoding": 3}, "encoding"), ({"columns": "label"}, "columns"),
    ],
)  # fmt: skip
def test_forms_of_files_that_there_are_not(tmp_path, monkeypatch, form, said):
    monkeypatch.chdir(tmp_path)
    for name, content in kinds.in_splits(kinds.of_rows(*kinds.ROWS, delimiter="\t"), "tsv").items():
        Path(name).write_bytes(content)
    with pytest.raises(UsageError, match=f"task.form.{said}="):
        kinds.sentences("tsv", form)(None)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"label": []}, "label"), ({"labels": {"good": None}}, "labels"),
        ({"labels": None, "scores": [5, 1]}, "scores"), ({"labels": None, "scores": [1]}, "scores"),
        ({"files": {"train": 0.5, "validation": 0.5}}, "files.train"),
        ({"files": {"train": {"x": 1}, "validation": 0.5}}, "files.train"),
        ({"files": {"train": ".", "validation": 0.5}}, "files.train"),
    ],
)  # fmt: skip
def test_tasks_that_there_are_not(own, said):
    with pytest.raises(UsageError, match=f"task.{said}"):
        kinds.sentences("tsv", **own)(None)


def test_a_message_is_one_short_printable_line():
    said = str(UsageError("a\nb\x1b[31m\u202e" + "x" * 10_000))
    assert said.isprintable() and len(said) < 1000 and said.startswith("a b")
