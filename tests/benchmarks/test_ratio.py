"""What all benchmarks share: a row a comparison, and a command line that refuses nonsense."""

import pytest

from benchmarks import __main__ as every
from benchmarks.ratio import HEAD, Ratio, command_line, precisions, show


def test_a_row_has_the_ratio_and_the_heads_columns():
    row = str(Ratio("GPT", "transformers", "tokens/s", 3000.0, 2000.0, "as said"))
    assert row == "| GPT | transformers | tokens/s | 3,000 | 2,000 | 1.50 | as said |"
    assert row.count("|") == HEAD.splitlines()[0].count("|")


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--threads", "-1"], ["--rounds", "many"], ["--systems", "GTP"]])
def test_nonsense_is_refused(given, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmark", *given])
    with pytest.raises(SystemExit) as stop:
        show(command_line("About.", ["GPT"], rounds=3), lambda arguments: [])
    assert stop.value.code == 2 and given[1] in capsys.readouterr().err


def test_of_all_benchmarks_a_name_that_is_none_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "ngrams"])
    with pytest.raises(SystemExit) as stop:
        every.main()
    assert stop.value.code == 2 and "there is no benchmark ngrams; write" in capsys.readouterr().err


def test_the_page_has_a_row_a_comparison(monkeypatch, tmp_path, capsys):
    said = [HEAD, Ratio("GPT", "transformers", "tokens/s", 3000.0, 2000.0), "a warning"]
    script = "\n".join(f"print({str(line)!r})" for line in said)

    class Python(every.subprocess.Popen):
        def __init__(self, command, **options):
            super().__init__([command[0], "-c", script], **options)

    monkeypatch.setattr(every.subprocess, "Popen", Python)
    monkeypatch.setattr(every, "PAGE", tmp_path / "ratios.md")
    monkeypatch.setattr("sys.argv", ["benchmarks", "generate", "contextual"])
    every.main()
    _, made, table = every.PAGE.read_text(encoding="utf-8").strip().split("\n\n")
    assert made.startswith("`python -m benchmarks generate contextual`, 2") and "torch 2" in made
    assert table.splitlines() == [*HEAD.splitlines(), *2 * [str(said[1])]]


def test_an_unknown_precision_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmark", "--precisions", "x"])
    with pytest.raises(SystemExit) as stop:
        show(precisions(command_line("About.", ["GPT"], rounds=3)), lambda arguments: [])
    assert stop.value.code == 2 and "fp32" in capsys.readouterr().err
