"""Test a user's task from the user's files, with one YAML, as in docs/howto/add-a-task.md."""

import io
import itertools
import json
import re
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax

import retable
from pipelines.config.project import CONF
from retable.core.errors import UsageError

PAGE = (CONF.parent / "docs/howto/add-a-task.md").read_text(encoding="utf-8")
TASK = PAGE.partition("```yaml\n")[2].partition("```")[0]
ROWS = [("Is it, so?", "Yes", "good"), ("Who?", "No", "bad"), ("Where?", 'In "the" sea', "fair")] * 8


@pytest.fixture(scope="module")
def own(project):
    """Return a project with the task, its files, and a tokenizer of their words."""
    folder = project.folder / "mine"
    (folder / "task").mkdir(parents=True)
    (folder / "task/mine.yaml").write_text(TASK)
    frame = pd.DataFrame(ROWS, columns=["question", "answer", "verdict"])
    frame.to_csv(folder / "train.csv", index=False)
    frame.drop(columns="verdict")[:5].to_csv(folder / "new.csv", index=False)
    project.succeed("prepare", "--config-dir=mine", "corpus=glue", "corpus.tasks=[mine]", "out=mine")
    project.succeed("tokenize", "corpus=glue", "text=mine", "out=mine/word")
    return project


def train(own, *overrides):
    return own.run("finetune", "--config-dir=mine", "task=mine", "corpus=glue", "tokens=mine/word", *overrides)


def test_it_is_learnt_and_predicted(own):
    small = "recipe=encoders/bilstm", "model.d_embedding=8", "model.d_model=8"
    done = train(own, *small, "out=mine/bilstm-1", "patience=1", "examples=12")
    assert done.returncode == 0, done.stderr
    cell = own.folder / "outputs/from_scratch/mine/bilstm-1"
    units = pd.read_csv(cell / "units.csv", dtype=str, keep_default_na=False)
    assert units.groupby("split").size().to_dict() == {"test": 5, "validation": 6}
    assert set(units.loc[units["split"] == "test", "label"]) == {""}
    metrics = json.loads((cell / "metrics.json").read_text())
    assert {"mine/validation/accuracy", "mine/validation/f1"} <= set(metrics)
    assert [name for name in metrics if name.startswith("mine/test")] == ["mine/test/overlap_examples"]
    run = json.loads((cell / "run.json").read_text())
    assert {"mine/train.csv", "mine/new.csv"} <= set(run["digests"]) and run["shortened"]["train"] == 0
    assert run["protocol"] == "12 labels" and "of class" not in done.stderr


def test_what_is_wrong_is_said_in_one_line(own):
    done, columns = train(own, "task.label=gold"), "'question', 'answer', 'verdict'"
    said = f"mine/train.csv has no column 'gold'; set task.sentences and task.label to its columns: {columns}"
    assert (done.returncode, done.stderr.strip()) == (2, f"error: {said}")


def test_a_reserved_word_in_a_row_is_refused_by_file_and_line(own):
    for split, place in (("train", 2), ("validation", 25), ("test", 9)):
        rows = [*ROWS]
        rows[place - 2] = ("Who <eos> came?", "No", "bad")
        pd.DataFrame(rows, columns=["question", "answer", "verdict"]).to_csv(own.folder / "mine/eos.csv", index=False)
        line = own.refuse("finetune", "--config-dir=mine", "task=mine", "corpus=glue", "tokens=mine/word",
                          "out=mine/eos-1", f"task.files.{split}=mine/eos.csv")  # fmt: skip
        assert line.startswith(f"error: mine/eos.csv, line {place}: 'Who <eos> came?' contains <eos>, which"), line


def _files(parts):
    return [
        f"{'+' * name.startswith('+')}task.files.{name.lstrip('+')}=mine/{file}.csv" for name, file in parts.items()
    ]


def test_a_part_without_a_class_and_predictions_of_one_class_are_told_once(own):
    """Messages give the rows of the class, the parts that lack it, and their files; a class without rows is named
    too.
    """
    rows = {
        "few": [*[("Who?", "No", "bad")] * 39, ("Is it, so?", "Yes", "good")],
        "one": [("Who?", "Yes", "bad")] * 3,
        "both": [("Who?", "Yes", "bad"), ("Who?", "Yes", "good")],  # equal texts have the same prediction
    }
    for name, its in rows.items():
        pd.DataFrame(its, columns=["question", "answer", "verdict"]).to_csv(
            own.folder / f"mine/{name}.csv", index=False
        )
    parts = {"train": "few", "test": "both", "+test_b": "one", "+validation_b": "both"}
    done = train(own, *SMALL, "out=mine/few-1", *_files(parts))
    assert done.returncode == 0, done.stderr
    *warned, test, validation = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    all_of = "warning: all {} are of class 'differs', so its scores do not compare classes; add rows of other classes"
    few, one = "10 rows of validation (0.25 of mine/few.csv)", "3 rows of test_b (mine/one.csv)"
    assert warned == [all_of.format(few), all_of.format(one)]
    for split, line in (("test", test), ("validation_b", validation)):
        same = f"warning: all predictions of {split} are the same, '(fits|differs)'; "
        assert re.fullmatch(f"{same}try another learning rate, or more epochs", line)
    parts = {"train": "one", "validation": "both", "test": "both"}
    classes = "~task.labels", "+task.labels={good: fits, fair: so-so, bad: differs}", "task.metrics=[accuracy]"
    done = train(own, *SMALL, "out=mine/few-2", *_files(parts), *classes)
    assert [line for line in done.stderr.splitlines() if "row" in line] == [
        all_of.format("3 rows of train (mine/one.csv)"),
        "warning: no row of validation (mine/both.csv) or test (mine/both.csv) is of class 'so-so'; no part has any; "
        "add some, or leave the class out",
    ]


SMALL = ["recipe=encoders/bilstm", "model.d_embedding=8", "model.d_model=8", "epochs=3", "finetuning.batch_size=8"]
# The page's pairs; sentences with a score, from quoted tsv; lines without a header, in a special form of the task.
KINDS = {
    "pairs": [],
    "score": ["task.sentences=[answer]", "~task.labels", "+task.scores=[0,20]", "task.metrics=[pearson]",
              "task.label=size", "task.files.train=mine/sizes.tsv", "task.files.test=mine/new_sizes.tsv",
              "+task.form={quotes: true}"],
    "lines": ["task.sentences=[answer]", "task.files.train=mine/lines.txt", "task.files.test=mine/new_lines.txt",
              "+task.form={pattern: '(?P<verdict>\\w+): (?P<answer>.*)'}"],
}  # fmt: skip


@pytest.fixture(scope="module")
def kinds(own):
    """Return a cell of each kind of task, and the rows of its test set."""
    folder, answers = own.folder / "mine", [answer for _, answer, _ in ROWS]
    sizes = pd.DataFrame({"id": range(24), "answer": answers, "size": [len(answer) for answer in answers]})
    sizes.to_csv(folder / "sizes.tsv", sep="\t", index=False)
    sizes[3:14].to_csv(folder / "new_sizes.tsv", sep="\t", index=False)
    lines = [f"{verdict}: {answer}\n" for _, answer, verdict in ROWS]
    (folder / "lines.txt").write_text("".join(lines))
    (folder / "new_lines.txt").write_text("".join(lines[:7]))
    pairs = pd.DataFrame(ROWS[:5], columns=["question", "answer", "verdict"]).drop(columns="verdict")
    tables = {"pairs": pairs, "score": sizes[3:14].drop(columns="size"), "lines": pd.DataFrame({"answer": answers[:7]})}
    for kind, settings in KINDS.items():
        done = train(own, *SMALL, f"out=mine/{kind}-1", *settings)
        assert done.returncode == 0, done.stderr
    return {kind: (own.folder / f"outputs/from_scratch/mine/{kind}-1", table) for kind, table in tables.items()}


@pytest.fixture
def command(own, command, monkeypatch):
    """Run the command in the project's folder. Return its exit code and output."""

    def in_project(*arguments: object, given: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.chdir(own.folder)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(given)))
        return command(*arguments)

    return in_project


def written(table: pd.DataFrame, form: str) -> bytes:
    if form == "parquet":
        table.to_parquet(to := io.BytesIO(), index=False)
        return to.getvalue()
    if form == "jsonl":
        return table.to_json(orient="records", lines=True).encode()
    if form == "tsv":  # in tsv, quotation marks are ordinary characters
        return "\n".join("\t".join(map(str, row)) for row in [[*table], *table.to_numpy()]).encode() + b"\n"
    return b"\xef\xbb\xbf" + table.to_csv(index=False).replace("\n", "\r\n").encode()


def read(text: str, form: str) -> pd.DataFrame:
    if form == "jsonl":
        return pd.DataFrame([json.loads(line) for line in text.splitlines()])
    quoting = {"sep": "\t", "quoting": 3} if form == "tsv" else {}
    return pd.read_csv(io.StringIO(text), **quoting)


FORMS = ["csv", "tsv", "jsonl", "parquet", "stdin csv", "stdin tsv", "stdin jsonl"]
# Each form is converted into another one; a tsv of scores has quotes, and a file with one column is csv.
READ = [
    *(("pairs", form, out) for form, out in zip(FORMS, itertools.cycle(["tsv", "jsonl", None, "csv"]), strict=False)),
    *(("score", form, None) for form in ["own", *FORMS] if form != "tsv"),
    *(("lines", form, None) for form in ["own", *FORMS] if form != "stdin tsv"),
]


@pytest.mark.parametrize(("kind", "form", "out"), READ)
def test_a_file_is_predicted_as_the_stage_predicts_the_test_set(kind, form, out, kinds, command, tmp_path):
    """The file's other columns are kept; probabilities are the softmax of the logits."""
    cell, table = kinds[kind]
    own = {"score": "mine/new_sizes.tsv", "lines": "mine/new_lines.txt"}
    stdin, _, suffix = form.rpartition(" ")
    path = own[kind] if form == "own" else "-" if stdin else tmp_path / f"new.{form}"
    given = b"" if form == "own" else written(table, suffix)
    if isinstance(path, type(tmp_path)):
        path.write_bytes(given)
    if kind == "score" and form == "stdin tsv":
        given = table.to_csv(index=False, sep="\t").encode()
    place = [] if out is None else ["--out", tmp_path / f"predicted.{out}"]
    code, printed, said_else = command("predict", cell, path, *place, given=given)
    assert (code, said_else) == (0, ""), said_else
    wrote = out or {"own": "tsv", "parquet": "tsv"}.get(form, suffix)
    read_back = read(printed if out is None else (tmp_path / f"predicted.{out}").read_text(), wrote)
    units = pd.read_csv(cell / "units.csv").query("split == 'test'")
    assert len(read_back) == len(table) == len(units)
    for column in table:
        assert read_back[column].astype(str).tolist() == table[column].astype(str).tolist()
    system = retable.load(cell)
    if kind == "score":
        assert [*read_back][-1] == "predicted" and read_back["predicted"].tolist() == pytest.approx(
            units["prediction"], rel=1e-5
        )
        return
    assert read_back["predicted"].tolist() == [system.labels[int(place)] for place in units["prediction"]]
    examples = system.task.encode(system.objective.model, system.text, system.task.examples("test"))
    with torch.no_grad():  # one example at a time
        logits = np.vstack([system.objective(examples.pad(np.array([i]))).numpy() for i in range(len(table))])
    shares = read_back[[f"p({name})" for name in system.labels]].to_numpy()
    np.testing.assert_allclose(shares, softmax(logits, axis=1), atol=2e-6)
    np.testing.assert_allclose(read_back["probability"], shares.max(axis=1), atol=2e-6)


def test_texts_are_predicted_without_a_file(kinds, command):
    cell, table = kinds["pairs"]
    texts = [part for row in table.to_numpy() for part in ("--text", "\t".join(row))]
    assert command("predict", cell, *texts) == command("predict", cell, "-", given=written(table, "tsv"))


@pytest.mark.parametrize(("arguments", "given", "message"), [
    ([], "", "predict needs either a file or texts; write FILE, - for standard input, or --text TEXT"),
    (["new.csv", "--text", "a"], "", "predict needs either a file or texts"),
    (["none.csv"], "", "none.csv does not exist"),
    (["--text", "a"], "", "expects two texts with a tab between them"),
    (["-"], "", "input.csv has no column 'question'"),
    (["-"], "question,text\na,b\n", "input.csv has no column 'answer', which"),
    (["-"], "question,answer\n", "input.csv has no rows"),
    (["-"], "question,answer\na\n", "input.csv, line 2: expects 2 fields but got 1"),
    (["-"], '{"question": "a", "answer": null}\n', "input.jsonl, line 1 has no 'answer'"),
    (["-"], "question,answer,predicted\na,b,c\n", "has a column 'predicted', the name of a column of predictions"),
    (["-"], b"question,answer\n\xff,b\n", "input.csv, line 2: byte 1 of the line is not UTF-8"),
    (["mine/new.csv", "--out", "p.xlsx"], "", "--out p.xlsx does not end in one of .csv, .tsv"),
    (["mine/new.csv", "--out", "none/p.csv"], "", "--out none/p.csv: none does not exist"),
    (["mine/new.csv", "--out", "mine/new.csv"], "", "is the input file or a folder"),
    (["-", "--out", "p.tsv"], 'question,answer\n"a\tb",c\n', "row 1 has a tab or a line end in 'question'"),
])  # fmt: skip
def test_what_can_not_be_predicted_is_said_in_one_line_and_nothing_is_written(
    arguments, given, message, kinds, own, command
):
    before = {path: path.read_bytes() for path in (own.folder / "mine").iterdir() if path.is_file()}
    given = given if isinstance(given, bytes) else given.encode()
    code, printed, stderr = command("predict", kinds["pairs"][0], *arguments, given=given)
    *warned, error = stderr.splitlines()
    assert code == 2 and not printed and all(line.startswith("unknown to the tokenizer") for line in warned)
    assert error.startswith("error: ") and message in error and "/tmp" not in stderr.replace(str(own.folder), "")
    assert {path: path.read_bytes() for path in before} == before
    assert not [*own.folder.glob("p.*")] and not (own.folder / "none").exists()


def test_python_gives_the_same_table(kinds, own, tmp_path):
    cell, table = kinds["pairs"]
    table.to_csv(tmp_path / "new.csv", index=False)
    predicted = retable.load(cell).predict(tmp_path / "new.csv")
    assert [*predicted][:3] == ["question", "answer", "predicted"] and "predict" in retable.load(cell).can
    assert predicted["predicted"].tolist() == retable.load(cell).classify(list(map(tuple, table.to_numpy())))
    with pytest.raises(UsageError, match=r"none\.csv does not exist"):
        retable.load(cell).predict("none.csv")


@pytest.fixture(scope="module")
def in_folds(own):
    """Return a sentence task from two files, in three folds."""
    for name, word in (("bad", "No"), ("good", "Yes")):
        lines = [f"{word} {other}" for other in ("sea", "Is", "the", "Who", "it")]
        (own.folder / f"mine/{name}.txt").write_text("\n".join(lines) + "\n")
    files = ", ".join(f"{name}: mine/{name}.txt" for name in ("bad", "good"))
    (own.folder / "mine/task/folds.yaml").write_text(
        f"# @package _global_\ndefaults: [/task_type/sentences, _self_]\n"
        f"task:\n  files: {{train: {{by_class: {{{files}}}}}}}\n"
        "  sentences: [sentence]\n  label: label\n  labels: [bad, good]\n  metrics: [accuracy]\n"
        "  folds: 3\n  seed: ${seed}\n"
    )
    return own


def test_each_example_is_tested_once_by_models_of_the_other_folds(in_folds):
    done = in_folds.succeed(
        "finetune", "--config-dir=mine", "task=folds", "recipe=classifiers/nbsvm_bi", "out=mine/nbsvm"
    )
    cell = in_folds.folder / "outputs/from_scratch/mine/nbsvm"
    units = pd.read_csv(cell / "units.csv")
    assert units["unit"].tolist() == [*range(10)] and units["label"].tolist() == [0] * 5 + [1] * 5
    score = (units["label"] == units["prediction"]).mean()
    assert score > 0.7 and json.loads((cell / "metrics.json").read_text())["folds/test/accuracy"] == pytest.approx(
        score
    )
    assert (
        json.loads((cell / "run.json").read_text())["folds"] == 3 and f"folds/test/accuracy {score:.5g}" in done.stdout
    )
    assert retable.load(cell).classify(["Yes it is", "No"]) == ["good", "bad"]


@pytest.mark.long
def test_a_network_that_is_killed_in_a_fold_and_resumed_equals_an_uninterrupted_one(in_folds):
    settings = (
        "--config-dir=mine",
        "task=folds",
        "corpus=glue",
        "tokens=mine/word",
        "recipe=encoders/bag_of_words",
    )
    settings = *settings, "+task.files.validation=0.3", "patience=2", "epochs=4", "checkpoint_every=1"
    settings = *settings, "+callbacks.mortal._target_=dying.Mortal", "finetuning.batch_size=2"
    in_folds.succeed("finetune", *settings, "out=mine/whole")
    killed = in_folds.forked.run("finetune", *settings, "out=mine/killed", DIE_AT="5")
    assert killed.returncode == -signal.SIGKILL
    in_folds.succeed("finetune", *settings, "out=mine/killed")
    for name in ("units.csv", "metrics.json", "model.safetensors"):
        whole, again = ((in_folds.folder / f"outputs/from_scratch/mine/{cell}/{name}") for cell in ("whole", "killed"))
        assert whole.read_bytes() == again.read_bytes()
    assert "validation/accuracy" in json.loads(whole.with_name("metrics.json").read_text())
