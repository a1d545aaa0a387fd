"""Test cells, archives and settings from others: nothing runs, needs unlimited memory, or is written outside."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from retable.core import settings
from retable.core.artifacts import record_file, write_json, write_record
from retable.core.errors import UsageError
from retable.core.escaping import in_one_line, visible
from retable.core.publishing import publish
from retable.corpora import text8
from retable.exchange.card import Card, Result, write_card
from retable.inference.load import load
from retable.planning.conf import Conf
from retable.tokenizers.word import train

ROOT = Path(__file__).parent.parent.parent
LSTM = {"_target_": "retable.models.recurrent.LSTM", "d_model": 8}


def bomb(within: str) -> str:
    """Return YAML of ten lines that stands for a thousand million settings."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join([*lines, f"{within}: *a8"])


@pytest.fixture
def cell(tmp_path):
    train(["a b c"]).save(tmp_path / "tokenizer.json")
    (tmp_path / "model.safetensors").touch()
    return tmp_path


@pytest.mark.parametrize("text", [
    bomb("model"), bomb("objective"), bomb("model: {_target_: retable.models.recurrent.LSTM, d_model: *a8}\nx"),
    "model: &x\n  _target_: retable.models.recurrent.LSTM\n  d_model: *x\n", "model: &x [*x]\n",
    "model: ${oc.env:HOME}\n", "model: {_target_: retable.models.recurrent.LSTM, d_model: '${oc.decode:8}'}\n",
    "model: {_target_: retable.models.recurrent.LSTM, d_model: '${eval:8}'}\n",
])  # fmt: skip
def test_settings_that_stand_for_others(cell, text):
    objective = "" if "objective" in text else "objective: {_target_: x}\n"
    (cell / "config.yaml").write_text(f"{text}\ntokens: c/word\n{objective}")
    with pytest.raises(UsageError) as refusal:
        load(cell)
    said = str(refusal.value)
    assert len(said) < 500 and "\n" not in said and os.environ["HOME"] not in said


@pytest.mark.parametrize("trusted", ["", "other", "pkg_of_cell2"])
def test_a_package_that_a_cell_names_is_not_imported(cell, tmp_path_factory, monkeypatch, canary, trusted):
    (package := tmp_path_factory.mktemp("site") / "pkg_of_cell").mkdir()
    (package / "__init__.py").write_text(f"import os\nos.system({canary.command!r})\n")
    (package / "models.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("RETABLE_PACKAGES", trusted)
    (cell / "config.yaml").write_text("model: {_target_: pkg_of_cell.models.Tiny}\ntokens: c/word\nobjective: null\n")
    with pytest.raises(UsageError, match=f"if you trust its code, set RETABLE_PACKAGES={trusted}.*pkg_of_cell$"):
        load(cell)
    with pytest.raises(UsageError, match="package pkg_of_cell is not trusted"):
        Conf(cell).class_attribute("pkg_of_cell.models.Tiny", "reads_words")


def test_a_part_is_bounded(cell):
    part = LSTM | {"d_model": yaml.load(bomb("x"), yaml.CSafeLoader)["x"]}
    with pytest.raises(UsageError, match="a part has more than 100000 settings"):
        settings.build(part, "model")
    assert settings.shown(part["d_model"]).endswith("…")


def test_code_is_sought_once_in_each_part():
    from pipelines.study.code_reached import entry_points_of

    own = yaml.load(bomb("x"), yaml.CSafeLoader) | {"objective": None, "model": LSTM}
    assert entry_points_of("pretrain", own) == ["pipelines.pretrain.count", LSTM["_target_"]]


@pytest.mark.parametrize("name", ["../text8", "/text8", "a/text8", "..\\text8", None, "text8"])
def test_an_archive_is_read_only_where_it_is_text8(tmp_path, monkeypatch, name):
    """No member is written anywhere, and no member is unpacked if it is too long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text8, "SIZE", 100)
    for words in (50, 51):
        with zipfile.ZipFile("text8.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            if name:
                archive.writestr(name, "a " * words)
        if (name, words) == ("text8", 50):
            assert text8.read_text8("text8.zip") == "a " * 50
        else:
            with pytest.raises(UsageError, match="is not text8"):
                text8.read_text8("text8.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["text8.zip"]


def test_a_record_is_written_through_no_link(tmp_path):
    (outside := tmp_path / "outside").write_text("as it was")
    (cell := tmp_path / "lstm-1").mkdir()
    write_json(cell / "run.json", {})
    for link in (record_file(cell), tmp_path / "lstm-1.record.json.begun"):
        link.symlink_to(outside)
    write_record(cell, {"seconds": 1})
    assert outside.read_text() == "as it was" and not record_file(cell).is_symlink()


def test_a_cell_with_links_is_replaced_without_what_they_lead_to(tmp_path):
    (outside := tmp_path / "outside").mkdir()
    (outside / "kept").write_text("as it was")
    (out := tmp_path / "outputs/lstm-1").mkdir(parents=True)
    (out / "folder").symlink_to(outside)
    (out / "config.yaml").symlink_to(outside / "kept")
    with publish(out, tmp_path / "work/partial", tmp_path / "work/aside") as folder:
        (folder / "config.yaml").write_text("a: 1\n")
    assert (outside / "kept").read_text() == "as it was" and not (out / "config.yaml").is_symlink()
    assert {path.name for path in out.iterdir()} == {"config.yaml", "digests.json"}


def test_a_model_card_shows_names_as_they_are(tmp_path):
    name = "x\n---\n<script>alert(1)</script> [a](javascript:alert(1)) {{ 7 * 7 }} {% raw %}"
    card = Card(name, "", results=[Result(name, 1.0, name, name)])
    write_card(card, tmp_path / "README.md", "GPT2LMHeadModel", None, [])
    _, said, text = (tmp_path / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(said)["model-index"][0]["name"] == in_one_line(name)
    assert "<script>" not in text and "\\[a\\](" in text and "\\{\\{ 7" in text


MARKS = ["[MASK] a", "<extra_id_0>", "<s> </s>", "<eos>", "<unk>", "<|endoftext|>", "[CLS]", "\x00"]


@pytest.mark.parametrize("text", MARKS)
def test_marks_in_a_prompt_are_words_of_it(text):
    """At most a mark becomes the vocabulary's mark, which a corpus may contain too; no prompt is empty or ends
    because of it.
    """
    tokenizer = train(["a b c", "b <unk> c"])
    if text == "<eos>":
        with pytest.raises(UsageError, match="contains <eos>, which this tokenizer reserves"):
            tokenizer.encode(f"a {text} b")
        return
    ids = tokenizer.encode(f"a {text} b")
    known = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    assert (ids[0], ids[-1]) == known and len(ids) == 2 + len(text.split()) and max(ids) < tokenizer.vocab_size


def test_what_is_not_seen_is_written_out():
    assert visible("a\tb\n\x1b[31m\x07\x9b\r\x7f\u202e\ud800") == "a\tb\n\\x1b[31m\\x07\\x9b\\r\\x7f\\u202e\\ud800"
    for text in ("naïve", "日本　語", "a\u00a0b", "👩‍👩‍👧", "−1 ± 2"):
        assert visible(text) == text


def data_link(folder, name):
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "data-link"]
    environment = os.environ | {"RETABLE_DATA": name}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_folder_of_data_is_no_command(tmp_path, canary):
    """`make` passes RETABLE_DATA to the shell."""
    for name in (f'x"; {canary.command}; "', f"$({canary.command})", f"`{canary.command}`", "-s", "it's $HOME"):
        (tmp_path / name).mkdir(parents=True)
        data_link(tmp_path, name)
        assert os.readlink(tmp_path / "data") == name


@pytest.mark.parametrize("name", ["RETABLE_DATA", "STUDY", "JOBS", "ENGINE", "PYTHON"])
def test_a_variable_of_make_test_is_not_one_of_the_tests_own_makes(name):
    """`make test NAME=value` passes it to every `make` of a test, over the test's value; tests/conftest.py removes
    it.
    """
    makefile = f"{name} = a test\nshow:\n\t@echo '$({name})'\n"
    run = f"subprocess.run(['make', '-s', '-f', '-', 'show'], input={makefile!r}, text=True)"
    given = {"MAKEFLAGS": f" -- {name}=make", "MAKEOVERRIDES": "${-*-command-variables-*-}", "MFLAGS": ""}
    own = os.environ | given | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-c", f"import subprocess, tests.conftest; {run}"]
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)
    assert done.stdout == "a test\n", done.stderr


def test_a_data_folder_is_there_and_no_link_to_itself(tmp_path):
    done = data_link(tmp_path, "sats")
    assert done.returncode == 2 and done.stderr.startswith("error: RETABLE_DATA=sats is no folder")
    assert not os.path.lexists(tmp_path / "data")
    (tmp_path / "sets").mkdir()
    names = ["data", "data/", "./data", f"{tmp_path}/data", f"{tmp_path}/data/"]
    for name in names:
        data_link(tmp_path, name)
        assert not os.path.lexists(tmp_path / "data")
    (tmp_path / "data").symlink_to("sets")
    for name in names:
        data_link(tmp_path, name)
        assert os.readlink(tmp_path / "data") == "sets"
