"""Test what all benchmarks share: the table with one row per comparison, and a command line that rejects invalid
values.
"""

from functools import partial

import pytest

from benchmarks import __main__ as every
from benchmarks import scale
from benchmarks.ratio import HEAD, Ratio, command_line, in_turns, precisions, show


def test_a_row_has_the_ratio_and_the_heads_columns():
    row = str(Ratio("GPT", "transformers", "tokens/s", 3000.0, 2000.0, "as said"))
    assert row == "| GPT | transformers | tokens/s | 3,000 | 2,000 | 1.50 | as said |"
    assert row.count("|") == HEAD.splitlines()[0].count("|")


def test_a_row_of_rounds_has_the_median_ratio_and_its_range():
    row = Ratio.of("GPT", "a plain GPT", "tokens/s", 100, [1.0, 2.0, 1.0], [2.0, 2.0, 1.5])
    assert str(row) == "| GPT | a plain GPT | tokens/s | 100 | 50 | 1.50 (1.00–2.00) |  |"


def test_sides_take_turns(monkeypatch):
    order, clock = [], iter(range(100))

    def steps(name):
        while True:
            order.append(name)
            yield

    monkeypatch.setattr("benchmarks.ratio.time.perf_counter", lambda: next(clock))
    assert in_turns({"a": steps("a"), "b": steps("b")}, 1, 2, 2) == {"a": [1, 1], "b": [1, 1]}
    assert order == ["a", "b", *4 * ["a", "b"]]


def of_one(precise: bool = False) -> None:
    parser = command_line("About.", ["GPT"], rounds=3)
    show(precisions(parser) if precise else parser, lambda arguments: [])


@pytest.mark.parametrize(("run", "given", "message"), [
    (of_one, ["--rounds", "0"], "0"),
    (of_one, ["--threads", "-1"], "-1"),
    (of_one, ["--rounds", "many"], "many"),
    (of_one, ["--systems", "GTP"], "GTP"),
    (partial(of_one, True), ["--precisions", "x"], "fp32"),
    (every.main, ["ngrams"], "unknown benchmark ngrams; choose among"),
    (scale.main, [], "nothing to measure; write --corpora 2 20 200"),
    (scale.main, ["--corpora", "1"], "--corpora must be 2 MB or more"),
    (scale.main, ["--cells", "1"], "--cells must be 2 or more"),
    (scale.main, ["--writers", "0"], "0 is below 1; write 1 or more"),
])  # fmt: skip
def test_nonsense_is_refused(run, given, message, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmark", *given])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_the_page_has_a_row_a_comparison(monkeypatch, tmp_path, capsys):
    printed = [HEAD, Ratio("GPT", "transformers", "tokens/s", 3000.0, 2000.0), "a warning"]
    script = "\n".join(f"print({str(line)!r})" for line in printed)

    class Python(every.subprocess.Popen):
        def __init__(self, command, **options):
            super().__init__([command[0], "-c", script], **options)

    monkeypatch.setattr(every.subprocess, "Popen", Python)
    monkeypatch.setattr(every, "PAGE", tmp_path / "ratios.md")
    monkeypatch.setattr("sys.argv", ["benchmarks", "generate", "contextual"])
    every.main()
    _, made, table = every.PAGE.read_text(encoding="utf-8").strip().split("\n\n")
    assert made.startswith("`python -m benchmarks generate contextual`, 2") and "torch 2" in made
    assert table.splitlines() == [*HEAD.splitlines(), *2 * [str(printed[1])]]
