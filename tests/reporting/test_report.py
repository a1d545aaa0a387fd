import csv
import json
import re
from html.parser import HTMLParser

import pytest

from retable.artifacts import record_file, write_record
from retable.errors import UsageError
from retable.reporting.report import write_report
from tests.reporting.specifications import SPECIFICATIONS


class Page(HTMLParser):
    """Collects ids, references and unclosed elements."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.references, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "srcset", "action"):
                self.references.append(value)
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


@pytest.fixture
def folders(write_run, write_likelihood, write_curve, perplexity_of):
    pretrained = write_run("pretrain", "ptb/lstm_small-1", "lstm_small", 1, {"steps": 200}, {"git_dirty": True})
    write_curve(pretrained, [6.0, 5.0, 4.8])
    evaluated = write_likelihood(
        "evaluate", "ptb/lstm_small-1", "lstm_small", 1, [perplexity_of(118)] * 3,
        made_from=["pretrain/ptb/lstm_small-1", "encode/ptb/word"], record={"hardware": "<cores> & more"},
    )  # fmt: skip
    kn5 = write_likelihood("evaluate", "ptb/kn5-1", "kn5", 1, [perplexity_of(141)] * 3)
    record_file(kn5.parent).unlink()
    return {"prepare": [], "pretrain": [pretrained], "evaluate": [evaluated, kn5]}


@pytest.fixture
def report(folders, tmp_path):
    write_report("ptb & <co>", folders, tmp_path / "results", SPECIFICATIONS)
    return (tmp_path / "results" / "report.html").read_text(encoding="utf-8")


def test_the_page_stands_alone(report):
    page = Page(report)
    own = [reference for reference in page.references if not reference.startswith("runs.html")]
    assert own and {reference.removeprefix("#") for reference in own} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids)) and not page.open
    assert "url(http" not in report and "@import" not in report and "<script" not in report


def entry(page: str, cell: str) -> str:
    return re.search(rf"<tr id='{cell}'>.*?</tr>", page, re.DOTALL).group()


def test_numbers_lead_to_their_cells_and_those_to_what_they_are_made_from(report):
    assert re.search(r'<a href="#run-evaluate-ptb-lstm_small-1"[^>]*>(<strong>)?118\.00', report)
    cell = entry(report, "run-evaluate-ptb-lstm_small-1")
    assert "<a href='#run-pretrain-ptb-lstm_small-1'>pretrain/ptb/lstm_small-1</a>, encode/ptb/word" in cell
    assert "<a href='runs.html#run-evaluate-ptb-lstm_small-1'>evaluate/ptb/lstm_small-1</a>" in cell


def test_cells_lead_to_their_runs(report, tmp_path):
    runs = (tmp_path / "results/runs.html").read_text(encoding="utf-8")
    page, linked = Page(runs), Page(report)
    assert not page.open and len(page.ids) == len(set(page.ids)) == 3
    assert {each.partition("#")[2] for each in linked.references if each.startswith("runs.html#")} == set(page.ids)
    assert {each.removeprefix("report.html#") for each in page.references} <= set(linked.ids)
    run = entry(runs, "run-evaluate-ptb-lstm_small-1")
    for part in ("a1b2c3", "c0ffeec0ff", "12.5", "321", "abababababab", "&lt;cores&gt; &amp; more"):
        assert part in run
    assert "dirty" in entry(runs, "run-pretrain-ptb-lstm_small-1")
    assert "2 runs, 25 seconds in all, from <code>c0ffeec0ff</code>; <span class=fail>1 of them with" in runs
    assert "1 of the cells came out of a cache" in runs and "python 3.12.1: 2 cells" in runs
    with (tmp_path / "results/runs.csv").open(encoding="utf-8") as file:
        rows = {row.pop("cell"): row for row in csv.DictReader(file)}
    assert rows["evaluate/ptb/lstm_small-1"] == {
        "system": "lstm_small", "corpus": "ptb", "task": "", "seed": "1", "mlflow_run_id": "a1b2c3",
        "git_commit": "c0ffee" * 6, "git_dirty": "False", "seconds": "12.5", "startup_seconds": "2.5",
        "peak_memory_mib": "321", "hardware": "<cores> & more",
        "made_from": "pretrain/ptb/lstm_small-1 encode/ptb/word",
    }  # fmt: skip
    assert rows["evaluate/ptb/kn5-1"]["mlflow_run_id"] == rows["evaluate/ptb/kn5-1"]["seconds"] == ""


def test_verdicts_are_counted_and_failures_named(report, tmp_path):
    assert "Study ptb &amp; &lt;co&gt;" in report
    failure = "lstm_small on ptb, test perplexity_word: 118.00, published 114.5 ± 2 (Zaremba et al. 2014"
    assert failure in report
    # KN5's test within ±1.5, the LSTM's validation 118 a miss of 120.7 ± 2 too
    summary = (tmp_path / "results" / "report.md").read_text(encoding="utf-8")
    assert "Verdicts: 1 pass, 2 fail, 9 n/a." in summary and failure in summary
    assert "| kn5 " in summary


def test_several_benchmarks_of_a_cell_are_one_run(write_likelihood, perplexity_of, tmp_path):
    """With a table each, whose numbers lead to the one row of the cell that measured them."""
    cell = "grammar/lstm-1-measured-phenomena"
    likelihoods = write_likelihood("evaluate", cell, "lstm", 1, [perplexity_of(50)] * 3)
    (phenomena := likelihoods.parent / "phenomena").mkdir()
    (phenomena / "metrics.json").write_text('{"phenomena/total/excess": 0.1}')
    kinds = ("local", "agreement", "nesting", "repetition")
    rows = "".join(f"{unit},{kind},10,20,19\n" for unit in range(3) for kind in kinds)
    (phenomena / "phenomena.csv").write_text(f"unit,phenomenon,tokens,nats,true_nats\n{rows}")
    out = tmp_path / "results"
    tables = write_report("small", {"evaluate": [likelihoods, phenomena]}, out, SPECIFICATIONS)
    assert [table.name for table in tables] == ["perplexity", "phenomena-grammar"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert (out / "runs.csv").read_text(encoding="utf-8").count("evaluate/grammar/lstm-1-measured-phenomena") == 1
    assert page.count("<tr id='run-evaluate-grammar-lstm-1-measured-phenomena'>") == 1
    for name in ("perplexity", "phenomena-grammar"):
        assert "report.html#run-evaluate-grammar-lstm-1-measured-phenomena" in (out / f"{name}.html").read_text()


def test_the_same_numbers_give_the_same_bytes_whenever_they_were_made(folders, tmp_path):
    for name in ("first", "second"):
        write_report("ptb", folders, tmp_path / name, SPECIFICATIONS)
        assert (tmp_path / name / "runs.csv").exists()
        for folder in (each for listed in folders.values() for each in listed):
            cell = folder.parent if folder.name == "measured" else folder
            write_record(cell, {"mlflow_run_id": "fedcba", "seconds": 99, "git_commit": "ad" * 20, "hardware": "?"})
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert {"report.html", "report.md", "perplexity.csv", "perplexity-ptb.svg"} <= set(files)
    differing = {
        name for name in files if (tmp_path / "first" / name).read_bytes() != (tmp_path / "second" / name).read_bytes()
    }
    assert differing == {"runs.csv", "runs.html"}


def test_a_missing_cell_writes_nothing(folders, tmp_path):
    folders["evaluate"].append(tmp_path / "outputs" / "evaluate" / "ptb" / "gpt-1")
    with pytest.raises(UsageError, match=r"dvc repro graph/corpus/ptb/dvc.yaml:evaluate-gpt-1"):
        write_report("ptb", folders, tmp_path / "results", SPECIFICATIONS)
    assert not (tmp_path / "results").exists()


def test_word_vectors_bring_their_figures_and_tables(write_run, write_vectors, write_neighbours, write_plane, tmp_path):
    folders = {
        "encode": [
            write_run("encode", "grammar/word", "word", 0, {"train/words": 1e6, "vocab_size": 9}),
            write_run("encode", "grammar_3m/word", "word", 0, {"train/words": 3e6, "test/fertility": 1.0}),
        ],
        "evaluate": [
            write_vectors("grammar", "skipgram", 1, 60),
            write_vectors("grammar_3m", "skipgram", 1, 80),
            write_neighbours("grammar/skipgram-1-neighbours", "skipgram", 1, {("a", "1"): ["b"]}),
            write_plane("grammar/skipgram-1-capitals", "skipgram", 1, [((1, 2), (3, 4)), ((0, 1), (2, 2))]),
        ],
    }
    write_report("vectors", folders, tmp_path / "results", SPECIFICATIONS)
    files = {path.name for path in (tmp_path / "results").iterdir()}
    figures = {"analogies-regular-grammar.svg", "analogies-total-grammar.svg", "plane-grammar.svg"}
    tables = {"analogies.md", "neighbours-grammar.csv", "neighbours-grammar.tex", "tokenizers.md"}
    assert figures | tables <= files
    means = json.loads((tmp_path / "results" / "metrics.json").read_text())["skipgram"]
    assert means["grammar/analogies/total/accuracy"] == 0.6 and means["grammar_3m/analogies/total/accuracy"] == 0.8
    page = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg ") == 3 and "Nearest neighbours, grammar" in page
    tokenizers = (tmp_path / "results" / "tokenizers.csv").read_text()
    assert "grammar_3m" in tokenizers and "grammar,tokenizer" not in tokenizers  # one of them measured nothing
