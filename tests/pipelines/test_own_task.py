"""A task of one's own, from files of one's own, by one YAML: as docs/howto/add-a-task.md has it."""

import json

import pandas as pd
import pytest

from pipelines.config.project import CONF

PAGE = (CONF.parent / "docs/howto/add-a-task.md").read_text(encoding="utf-8")
TASK = PAGE.partition("```yaml\n")[2].partition("```")[0]
ROWS = [("Is it, so?", "Yes", "good"), ("Who?", "No", "bad"), ("Where?", 'In "the" sea', "fair")] * 8


@pytest.fixture(scope="module")
def own(project):
    """A project with the task, its files, and a tokenizer of their words."""
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
    assert run["protocol"] == "12 labels"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.label=gold", "mine/train.csv has no column 'gold'; it has 'question', 'answer', 'verdict'"),
        ("~task.labels.fair", "mine/train.csv, line 4: label 'fair' is none of 'good', 'bad'"),
        ("task.files.validation=mine/none.csv", "mine/none.csv does not exist"),
        ("task.metrics=[pearson]", "task.metrics=['pearson']: for these labels write some of accuracy, matthews, f1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(own, override, message):
    done = train(own, override)
    assert done.returncode == 2 and done.stderr.strip().startswith("error: ") and message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
