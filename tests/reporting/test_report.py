import csv
import html
import json
import math
import re
import shutil

import pandas as pd
import pytest

from retable.core.artifacts import record_file, write_record
from retable.core.errors import UsageError
from retable.reporting import verdicts
from retable.reporting.provenance import Making
from retable.reporting.report import judged
from retable.reporting.results import AFTERWARDS
from tests.reporting.conftest import writes_likelihoods, writes_runs
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS
from tests.reporting.written import write_report


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return the folder of the project, which contains the records."""
    root = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DVC_ROOT", str(root))
        yield root


@pytest.fixture(scope="module")
def folders(root):
    write_run = writes_runs(root)
    write_likelihood = writes_likelihoods(write_run)
    pretrained = write_run("pretrain", "ptb/lstm_small-1", "lstm_small", 1, {"steps": 200}, {"git_dirty": True})
    (pretrained / "curve.csv").write_text("step,metric,value\n0,validation/loss,6.0\n100,validation/loss,5.0\n")
    evaluated = write_likelihood(
        "evaluate", "ptb/lstm_small-1", "lstm_small", 1, [10 * math.log(118)] * 5,
        made_from=["pretrain/ptb/lstm_small-1", "tokenize/ptb/word"], record={"hardware": "<cores> & more"},
    )  # fmt: skip
    kn5 = write_likelihood("evaluate", "ptb/kn5-1", "kn5", 1, [10 * math.log(141)] * 5)
    record_file(kn5.parent).unlink()
    shutil.rmtree(root / "work/made")
    return {"prepare": [], "pretrain": [pretrained], "evaluate": [evaluated, kn5]}


COMMAND = "python -m pipelines.evaluate cell=ptb/lstm_small-1 seed=7"
FACTS = {
    "makings": {"evaluate/ptb/lstm_small-1": Making(COMMAND, "evaluate@lstm_small-1", {"seed": "7"})},
    "remote": "git@github.com:o/retable.git", "about": "What <a> study shows.",
}  # fmt: skip


@pytest.fixture(scope="module")
def results(folders, root):
    """Return the folder of the report."""
    write_report("ptb & <co>", folders, root / "results", SPECIFICATIONS, **FACTS)
    return root / "results"


@pytest.fixture(scope="module")
def report(results):
    return (results / "report.html").read_text(encoding="utf-8")


def entry(page: str, cell: str) -> str:
    """Return the text of a cell on the page, without marks."""
    section = re.search(rf'<details class=cell id="{cell}">.*?</dl>', page, re.DOTALL)[0]
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", section)).split())


def test_numbers_lead_to_their_cells_and_those_to_what_made_them(report):
    assert re.search(r'<a href="#run-evaluate-ptb-lstm_small-1"[^>]*>(<strong>)?118\.00', report)
    cell = entry(report, "run-evaluate-ptb-lstm_small-1")
    for part in (
        f"evaluate/ptb/lstm_small-1 Command {COMMAND} Copy",
        "dvc repro --single-item evaluate@lstm_small-1 Copy", "Commit c0ffeec0ff Run",
        "MLflow a1b2c3", "Made from pretrain/ptb/lstm_small-1 , tokenize/ptb/word Differs from its recipe seed=7",
        "12.5 s, 321 MiB at most, <cores> & more", "abababababab", "Versions python 3.12.1",
    ):  # fmt: skip
        assert part in cell, part
    assert 'href="https://github.com/o/retable/commit/c0ffee' in report
    assert "200 steps" in entry(report, "run-pretrain-ptb-lstm_small-1")
    assert "with uncommitted changes" in entry(report, "run-pretrain-ptb-lstm_small-1")
    assert "Commit unknown" in entry(report, "run-evaluate-ptb-kn5-1")
    line = "3 cells; 2 runs, 25 seconds in total, from commit c0ffeec0ff; 1 of them with uncommitted changes; 1 of the"
    assert line in report


def test_runs_stand_in_a_table_for_programs(results):
    with (results / "runs.csv").open(encoding="utf-8") as file:
        rows = {row.pop("cell"): row for row in csv.DictReader(file)}
    assert rows["evaluate/ptb/lstm_small-1"] == {
        "system": "lstm_small", "corpus": "ptb", "task": "", "seed": "1", "mlflow_run_id": "a1b2c3",
        "git_commit": "c0ffee" * 6, "git_dirty": "False", "seconds": "12.5", "startup_seconds": "2.5",
        "peak_memory_mib": "321", "hardware": "<cores> & more",
        "made_from": "pretrain/ptb/lstm_small-1 tokenize/ptb/word",
    }  # fmt: skip
    assert rows["evaluate/ptb/kn5-1"]["mlflow_run_id"] == rows["evaluate/ptb/kn5-1"]["seconds"] == ""


def test_verdicts_are_counted_and_failures_named(report, results):
    assert "Study ptb &amp; &lt;co&gt;" in report
    failure = "LSTM, small on ptb, test perplexity_word: 118.00, published 114.5 ± 0 (Zaremba et al. 2014"
    assert failure in report
    # KN5's 142 differs from 141.2 by more than counts can. All units are equal, so the test's interval has no width.
    summary = (results / "report.md").read_text(encoding="utf-8")
    others = REFERENCES[(REFERENCES["corpus"] == "ptb") & (REFERENCES["beside"] != "run")]
    unrun = (others["not_run"] != "").sum()
    elsewhere = len(others) - unrun - 3
    counts = "\nPublished numbers: 0 within the tolerance of the published number; 1 outside the tolerance; "
    counts += (
        f"2 outside the tolerance, with too few seeds for a verdict; {unrun} published, but not run in any study; "
    )
    counts += f"{elsewhere} published, and run only in another study"
    assert counts in summary and failure in summary and f'<li class="unrun"><b>{unrun}</b>' in report
    assert "| Kneser–Ney 5-gram (modified) (`kn5`) " in summary
    assert "\n- 1 cell: unknown commit\n" in summary
    assert "\n- 1 cell: commit c0ffeec0ff with uncommitted changes; python 3.12.1; two cores\n" in summary
    assert "What &lt;a&gt; study shows." in report
    assert "\nWhat &lt;a&gt; study shows.\n" in summary


def test_verdicts_are_counted_by_kind(write_likelihood, perplexity_of, tmp_path):
    """The tolerance of maximum entropy was set after its run."""
    folders = [
        write_likelihood("evaluate", f"ptb/{name}-1", name, 1, [perplexity_of(value)] * 5)
        for name, value in (("kn5", 141.2), ("maxent", 142.1), ("gt3", 200))
    ]
    for n, failures in ((2, 0), (3, 1)):
        write_report("two", {"evaluate": folders[:n]}, out := tmp_path / str(n), SPECIFICATIONS)
        page = (out / "report.html").read_text(encoding="utf-8")
        assert (f'<li class="fail"><b>{failures}</b>' in page) == (failures > 0)  # 0 failures are not coloured
        assert ("<li><b>0</b>outside the tolerance" in page) == (failures == 0)
        summary = (out / "report.md").read_text(encoding="utf-8")
        counts = "; ".join(f"{count} {verdicts.MEANINGS[each]}" for each, count in
                           (("pass", 1), ("agrees", 1), ("fail", failures)))  # fmt: skip
        assert f"\nPublished numbers: {counts}; " in summary
        rows = {line.split(" | ")[0].strip("| "): line for line in summary.splitlines() if line.startswith("| ")}
        assert (
            AFTERWARDS in rows["Maximum-entropy 5-gram (`maxent`)"]
            and AFTERWARDS not in rows["Kneser–Ney 5-gram (modified) (`kn5`)"]
        )


def test_several_benchmarks_of_a_cell_are_one_run(write_likelihood, perplexity_of, tmp_path):
    """There is one table per benchmark; numbers in all of them lead to the row of the cell that measured them."""
    cell = "grammar/lstm-1-measured-phenomena"
    likelihoods = write_likelihood("evaluate", cell, "lstm", 1, [perplexity_of(50)] * 5)
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
    assert page.count('id="run-evaluate-grammar-lstm-1-measured-phenomena"') == 1
    for name in ("perplexity", "phenomena-grammar"):
        table = page.partition(f'id="table-{name}"')[2].partition("</section>")[0]
        assert 'href="#run-evaluate-grammar-lstm-1-measured-phenomena"' in table


OVERLAP = "Share of the test data that also occurs in the training data: "


def overlaps(folder):
    return [line for line in (folder / "report.md").read_text().splitlines() if line.startswith(OVERLAP)]


def test_a_table_notes_test_data_that_occur_in_training_data(results, write_run, write_likelihood, tmp_path):
    """The note has the shares of its corpora and tasks, if stages measured them."""
    folders = {"prepare": [write_run("prepare", "c", "oracle", 0, {"test/lines": 9})], "finetune": []}
    folders["evaluate"] = [write_likelihood("evaluate", "c/kn5-1", "kn5", 1, [10.0] * 5)]
    write_report("own", folders, tmp_path / "plain", SPECIFICATIONS)
    assert overlaps(results) == overlaps(tmp_path / "plain") == []
    for corpus, lines in (("ptb", 0.017), ("wikitext2", 0.25)):
        metrics = {"test/lines": 9, "test/overlap_lines": lines, "test/overlap_13grams": 0.0106}
        folders["prepare"].append(write_run("prepare", corpus, "oracle", 0, metrics))
        folders["evaluate"].append(write_likelihood("evaluate", f"{corpus}/kn5-1", "kn5", 1, [10 * math.log(141)] * 5))
    for seed, drawn in ((1, 0.02), (2, 0.03)):  # each has other training examples
        shares = {"accuracy": 0.9, "overlap_examples": drawn, "overlap_contradicted": 0.01}
        metrics = {f"sst2/validation/{name}": share for name, share in shares.items()}
        folders["finetune"].append(write_run("finetune", f"glue/sst2-bert-{seed}", "bert", seed, metrics))
    write_report("own", folders, tmp_path / "results", SPECIFICATIONS)
    of_texts, of_tasks = overlaps(tmp_path / "results")
    assert "ptb (test) 1.70 % of lines, 1.06 % of 13-grams; wikitext2 (test) 25.00 % of lines, 1.06 %" in of_texts
    assert "sst2 (validation) 2.00 to 3.00 % of examples, 1.00 % of examples only with other answers. " in of_tasks
    assert "overlap" not in "".join(path.read_text() for path in (tmp_path / "results").glob("*.csv"))


@pytest.mark.parametrize(("other", "noted"), [
    (0.941, "cola: 94.10 % of test tokens, 80.00 % of test types."),
    (0.5, "BiLSTM, GloVe vectors and GPT on cola: 94.10 % of test tokens, 80.00 % of test types; "
          "LSTM on cola: 50.00 % of test tokens, 80.00 % of test types."),
])  # fmt: skip
def test_a_note_names_systems_only_if_their_shares_differ(write_run, tmp_path, other, noted):
    runs = []
    for system, share in (("bilstm_glove", 0.941), ("gpt", 0.941), ("lstm", other)):
        of_run = {"tokens": {"test": share}, "types": {"test": 0.8}}
        cell, metrics = f"cola/{system}-1", {"cola/test/accuracy": 0.9}
        runs.append(write_run("finetune", cell, system, 1, metrics, task="cola", coverage=of_run))
    write_report("own", {"finetune": runs}, tmp_path / "results", SPECIFICATIONS)
    (line,) = [line for line in (tmp_path / "results/report.md").read_text().splitlines() if "vectors: " in line]
    assert line.partition("vectors: ")[2] == noted


def test_a_table_notes_words_that_have_a_pretrained_vector(write_run, tmp_path):
    runs = [write_run("finetune", "cola/bilstm-1", "bilstm", 1, {"cola/test/accuracy": 0.9})]
    for seed, share in ((1, 0.941), (2, 0.951)):
        of_run = {"tokens": {"train": 1.0, "test": share}, "types": {"test": 0.8}}
        cell, metrics = f"cola/bilstm_glove-{seed}", {"cola/test/accuracy": 0.9}
        runs.append(write_run("finetune", cell, "bilstm_glove", seed, metrics, task="cola", coverage=of_run))
    write_report("own", {"finetune": runs}, tmp_path / "results", SPECIFICATIONS)
    lines = (tmp_path / "results/report.md").read_text().splitlines()
    assert [line for line in lines if "pretrained vectors" in line] == [
        "Share of the words that have a vector in the file of pretrained vectors: cola: "
        "94.10 to 95.10 % of test tokens, 80.00 % of test types."
    ]


def test_dvc_gets_the_scores_by_system(results):
    assert json.loads((results / "metrics.json").read_text()) == {
        "kn5": {"test/perplexity_word": pytest.approx(141)},
        "lstm_small": {"test/perplexity_word": pytest.approx(118)},
    }
    assert "kn5,test/perplexity_word,141.0\n" in (results / "metrics.csv").read_text()


def test_dvc_gets_what_systems_are_judged_by():
    """Other measured numbers would be thousands of columns of `dvc exp show`."""
    rows = [
        ("gpt", "", "test", "perplexity_word", 9.0),
        ("gpt", "", "test", "bits_per_byte", 0.5),
        ("gpt", "", "validation", "perplexity_word", 10.0),
        ("gpt", "cola", "validation", "matthews", 0.25),  # its test split has no labels
        ("gpt", "sentiment", "validation", "accuracy", 0.75),
        ("gpt", "sentiment", "test", "accuracy", 0.5),
        ("bpe", "tokenizer", "test", "fertility", 1.5),
    ]
    frame = pd.DataFrame(rows, columns=["system", "task", "split", "metric", "mean"]).assign(corpus="ptb", n=1)
    scores = {"test/perplexity_word": 9.0, "cola/validation/matthews": 0.25, "sentiment/test/accuracy": 0.5}
    assert judged(frame) == {"gpt": scores}
    both = pd.concat([frame, frame.assign(corpus="grammar")])
    assert {*judged(both)["gpt"]} == {f"{corpus}/{name}" for corpus in ("grammar", "ptb") for name in scores}


def test_a_missing_cell_writes_nothing(folders, tmp_path):
    gone = {"evaluate": [*folders["evaluate"], tmp_path / "outputs" / "evaluate" / "ptb" / "gpt-1"]}
    with pytest.raises(UsageError, match=r"stage evaluate makes it: .* evaluate/ptb/gpt-1"):
        write_report("ptb", folders | gone, tmp_path / "results", SPECIFICATIONS)
    assert not (tmp_path / "results").exists()


def test_the_same_numbers_give_the_same_bytes_whenever_they_were_made(folders, results, tmp_path):
    for folder in (each for listed in folders.values() for each in listed):
        cell = folder.parent if folder.name == "measured" else folder
        made = {"mlflow_run_id": "fedcba", "seconds": 99, "git_commit": "ad" * 20, "hardware": "?"}
        write_record(cell, made | {"environment": {}})
    write_report("ptb & <co>", folders, tmp_path, SPECIFICATIONS, **FACTS)
    files = sorted(path.name for path in results.iterdir() if path.is_file())
    assert {"report.html", "report.md", "perplexity.csv", "perplexity-ptb.svg", "runs.csv"} <= set(files)
    first, second = ({name: (folder / name).read_bytes() for name in files} for folder in (results, tmp_path))
    differing = {name for name in files if first[name] != second[name]}
    assert differing == {"runs.csv", "report.html", "report.md"}  # these have the commit and the machine
    assert "- 3 cells: commit adadadadad; " in (tmp_path / "report.md").read_text(encoding="utf-8")


ABLATION = {
    "title": "BERT without pairs", "claim": "BERT is better with pairs.", "metric": "cola/test/matthews",
    "better": "higher", "systems": ["bert", "no_pairs"], "holds": [["bert", "no_pairs"]],
}  # fmt: skip
LABELS = {"claim": "Better.", "pretrained": "bert_pre", "scratch": "bert", "metrics": {"sentiment": "accuracy"}}


def test_every_comparison_and_figure_is_in_the_report(
    write_run, write_vectors, write_neighbours, write_plane, tmp_path
):
    """One report has everything that a study can request; committed results have comparisons of tasks and
    likelihoods.
    """

    def trained(corpus, metric, **systems):
        for system, values in systems.items():
            for seed, value in enumerate(values, 1):
                out = f"{corpus}/{metric.split('/')[0]}-{system}-{seed}"
                folders["finetune"].append(write_run("finetune", out, system, seed, {metric: value}))

    words = {"grammar": {"train/words": 1e6, "vocab_size": 9}}
    words |= {"grammar_3m": {"train/words": 3e6, "test/fertility": 1.0}}
    probes = {"probes/layer_0/number": 0.5, "probes/layer_0/number_control": 0.25, "probes/majority/number": 0.5}
    folders = {
        "tokenize": [write_run("tokenize", f"{name}/word", "word", 0, each) for name, each in words.items()],
        "prepare": [write_run("prepare", "grammar", "oracle", 0, {"sentiment/test/accuracy": 0.9})],
        "finetune": [],
        "evaluate": [
            write_vectors("grammar", "skipgram", 1, 60),
            write_vectors("grammar_3m", "skipgram", 1, 80),
            write_neighbours("grammar/skipgram-1-neighbours", "skipgram", 1, {("a", "1"): ["b"]}),
            write_plane("grammar/skipgram-1-capitals", "skipgram", 1, [((1, 2), (3, 4)), ((0, 1), (2, 2))]),
            write_run("evaluate", "grammar/gpt-1-probes", "gpt", 1, probes | {"probes/words/number": 480}),
            *(
                write_run("evaluate", f"grammar/gpt-1-{n}", "gpt", 1, {f"prompted_toy_{n}/validation/accuracy": 0.5})
                for n in (0, 4)
            ),
        ],
    }
    trained("grammar", "cola/test/matthews", bert=(0.61, 0.62, 0.63), no_pairs=(0.41, 0.42, 0.43), gpt=(0.3,))
    trained("grammar", "sentiment/test/accuracy", bert_100_labels=(0.6, 0.64), bert_pre_100_labels=(0.7, 0.75))
    trained("glue", "rte/validation/accuracy", bert=(0.5, 0.6), no_pairs=(0.6, 0.7))
    more = {"ablations": {"pairs": ABLATION}, "label_efficiency": LABELS, "baseline": "bert"}
    tables = write_report("all", folders, tmp_path / "results", SPECIFICATIONS, **more)
    names = [table.name for table in tables]
    assert {*names} == {
        "glue", "glue-differences", "ablation-pairs", "label-efficiency-grammar", "tasks", "probes", "prompted",
        "analogies", "neighbours-grammar", "tokenizers",
    }  # fmt: skip
    files = {path.name: path for path in (tmp_path / "results").iterdir()}
    figures = {"analogies-regular-grammar", "analogies-total-grammar", "plane-grammar", "probes-grammar"}
    figures |= {"label-efficiency-grammar-sentiment", "shots-grammar-toy"}
    assert {f"{name}.svg" for name in figures} == {name for name in files if name.endswith(".svg")}
    assert {f"{name}.{suffix}" for name in names for suffix in ("csv", "md")} <= files.keys()
    text = {name: path.read_text(encoding="utf-8") for name, path in files.items() if not name.endswith(".svg")}
    for name in ("report.html", "report.md", "ablation-pairs.md"):
        assert "Holds (higher is better): BERT minus" in text[name], name
    assert text["report.html"].count("<figure ") == len(figures)
    assert "<figcaption>Label efficiency, grammar-sentiment <" in text["report.html"]
    assert "finetune/grammar/cola-bert-1 finetune/grammar/cola-bert-2" in text["ablation-pairs.csv"]
    assert len(pd.read_csv(files["glue-differences.csv"])) == 1 + 1  # one task and the average
    means = json.loads(text["metrics.json"])["skipgram"]
    assert means["grammar/analogies/total/accuracy"] == 0.6 and means["grammar_3m/analogies/total/accuracy"] == 0.8
    assert "grammar_3m" in text["tokenizers.csv"]
    assert "grammar,tokenizer" not in text["tokenizers.csv"]  # one of the two measured nothing
