"""Test the command `retable` as a new user runs it: help, completion, mistakes; and commands that read no cell."""

import os
import re
import subprocess
import sys

import pytest

from pipelines.cli.main import app
from tests.pipelines.conftest import ENVIRONMENT, Project


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_systems_of_a_study_and_two_studies_are_compared(command):
    code, shown, _ = command("compare", "lstm", "elman", "--study", "history", "--metric", "test/perplexity_word")
    (row,) = [line for line in shown.splitlines() if line.startswith("| LSTM")]
    assert code == 0 and [part.strip() for part in row.split("|")][-3:-1] == ["9/9", "better"]
    code, shown, page = command("compare", "smoke", "history")
    assert code == 0 and re.search(r"^Of \d+ numbers: .*\d+ new", shown, re.MULTILINE)
    assert page == "wrote work/compare/smoke-against-history.html\n"


def test_help_names_every_command(command):
    code, shown, _ = command()
    assert code == 0 and command("--help") == (code, shown, "")
    names = re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert len(names) == len(app.registered_commands) > 15
    for name in names:
        code, shown, _ = command(name, "-h")
        assert code == 0 and shown.startswith(f"Usage: retable {name} ")


@pytest.mark.parametrize(("arguments", "message"), [
    (["stdies"], "No such command 'stdies'. Did you mean 'studies'?"),
    (["repro", "--jbs", "2"], "No such option: --jbs (Possible options: --jobs)"),
    (["repro", "--jobs", "two"], "Invalid value for '--jobs': "),
    (["repro", "histry"], "no study 'histry' and no folder histry with a study.yaml; write history"),
    (["show"], "Missing argument 'CELL'."),
    (["show", "gpt-1"], "no cell 'gpt-1': outputs/ has no trained system here; run `retable repro` first"),
    (["why", "lstn-1", "--study", "history"], "lstn-1 is not a cell of study history; write lstm-1"),
    (["compare", "lstm", "elmann", "--study", "history"], "no measured cell or system elmann; write elman"),
    (["compare", "history", "nosuchcommit"], "nosuchcommit is not a commit; write a commit, or the name of a"),
    (["compare", "smoke", "history", "--metric", "test/f1"], "--metric applies to systems and cells; remove --metric"),
    (["tables", "histry"], "no study 'histry' and no folder histry with a study.yaml; write history"),
    (["bands", "ptb_larg"],
     "no study 'ptb_larg' and no folder ptb_larg with a study.yaml; write ptb_large"),
    (["describe", "grammar_tiny", "wrd"], "TOKENIZER: unknown tokenizer 'wrd'; write word"),
    (["describe", "ptb", "word", "--other", "grammer"], "--other: unknown corpus 'grammer'; write grammar"),
    (["generate", "gpt-1", "--strategy", "sample", "--n", "0"],
     "Invalid value for '--n': Input should be greater than"),
    (["neighbours", "skipgram-1", "--k", "-2", "cat"], "Invalid value for '--k': Input should be greater than"),
    (["submit", "bilstm", "--test", "SST2"], "--test SST2 is not a test set of GLUE; write SST-2"),
    (["new", "mine", "corpus=ptbb"], "unknown corpus 'ptbb'; write ptb"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(command, arguments, message):
    code, printed, error = command(*arguments)
    (line,) = error.splitlines()
    assert code == 2 and not printed and line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    ("typed", "choices"), [("retable repr", ["repro"]), ("retable repro --j", ["--jobs"]), ("retable sc", ["score"])]
)
def test_completion(typed, choices, tmp_path):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_RETABLE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "pipelines.cli.main"]
    done = subprocess.run(command, env=os.environ | ENVIRONMENT | words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == choices


def test_a_tokenizer_is_described(project, command, monkeypatch):
    monkeypatch.chdir(project.folder)
    code, printed, error = command("describe", "grammar_tiny", "word", "kligrernly", "a\x1b[2J", "--characters", "2000")
    assert code == 0 and "\x1b" not in printed and "\na\\x1b[2J\n" in printed, error
    lines = printed.splitlines()
    assert lines[0].startswith("outputs/tokenize/grammar_tiny/word/tokenizer.json: ")
    rows = {line[:24].strip(): line[24:].split() for line in lines if line.startswith("grammar_tiny ")}
    assert [*rows] == [f"grammar_tiny {split}" for split in ("train", "validation", "test")]
    assert all(len(row) == 8 and 50 < int(row[0].replace(",", "")) < 600 for row in rows.values())
    assert "\nkligrernly\n" in printed


def test_letters_that_an_output_has_not_are_written_out(tmp_path):
    (tmp_path / "study.yaml").touch()
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.md").write_text("Kneser–Ney ± 0.1\n", encoding="utf-8")
    environment = os.environ | ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "pipelines.cli.main", "tables"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Kneser\\u2013Ney \\xb1 0.1\n"), done.stderr


@pytest.fixture(scope="module")
def own_text(tmp_path_factory, forks):
    """Return the folder of a study of a user's text: its cells, tables, and their records."""
    made = Project.new(tmp_path_factory.mktemp("text"), forks)
    folder = made.folder
    (folder / "conf/corpus").mkdir(parents=True)
    (folder / "conf/corpus/mine.yaml").write_text(
        "unit: line\nwrite: {_target_: retable.corpora.cut.write_cut, source: text.txt, train: 0.8, test: 0.1}\n"
    )
    (folder / "study.yaml").write_text("corpus: mine\nsystems: [{of: kn3}]\nbenchmarks: {perplexity: all}\n")
    (folder / "text.txt").write_text("the cat sees a bird\na bird sees the cat\n" * 40)
    for command in (["prepare"], ["tokenize"], ["pretrain", "recipe=counted/kn3"]):
        made.succeed(*command, "corpus=mine")
    made.succeed("evaluate", "corpus=mine", "cell=mine/kn3-1")
    for path in (folder / "outputs").rglob("run.json"):
        if (place := path.parent.relative_to(folder / "outputs")).parts[0] != "plan":
            (record := folder / "records" / f"{place}.json").parent.mkdir(parents=True, exist_ok=True)
            record.write_text("{}")
    (folder / "results").mkdir()
    (folder / "results/report.md").write_text("| a table |\n")
    return folder


@pytest.mark.parametrize("arguments", [["tables"], ["show", "kn3-1"], ["show", "evaluate/mine/kn3-1"],
                                       ["register", "pretrain/mine/kn3-1"]])  # fmt: skip
def test_a_text_that_has_changed_is_named_on_standard_error(arguments, own_text, command, monkeypatch):
    """Nevertheless the table, the cell or the model is returned."""
    monkeypatch.chdir(own_text)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{own_text}/mlflow.db")
    code, printed, stderr = command(*arguments)
    assert code == 0 and "stale" not in stderr
    text = (own_text / "text.txt").read_text()
    try:
        (own_text / "text.txt").write_text(text[: len(text) // 2])
        code, again, stderr = command(*arguments)
    finally:
        (own_text / "text.txt").write_text(text)
    (line,) = [line for line in stderr.splitlines() if "stale" in line]
    assert code == 0 and line.startswith("stale: text.txt has changed since prepare/mine was made; ")
    assert again == printed or (arguments[0] == "register" and "mine-kn3-1" in again)
