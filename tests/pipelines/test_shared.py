"""Two processes that measure, decode and predict together find what one finds."""

import json

import pandas as pd
import pytest

from retable.core.artifacts import read_record
from retable.core.digests import DIGESTS
from tests.pipelines.conftest import GPT, SHORT, TINY

RECORDS = ("run.json", "config.yaml", DIGESTS)  # which say how a cell was made
CHOICES = {
    "perplexity": ["evaluate", "benchmark=perplexity"],
    "held_out": ["evaluate", "benchmark=held_out", "tokenizer=word_marked"],
    "mixed": ["evaluate", "benchmark=perplexity", "stage=mix"],
    "gradients": ["evaluate", "benchmark=gradients", "benchmark.gradients.length=16",
                  "benchmark.gradients.distances=8", "benchmark.gradients.windows=70"],
    "top_p": ["generate", "decoding=top_p", "n_prompts=9", "++decoding.batch_size=2"],
    "beam": ["generate", "decoding=beam", "n_prompts=9", "++decoding.batch_size=2"],
}  # fmt: skip
CELLS = {
    "gpt": [*GPT, "tokenizer=word", "batches.batch_size=4"],
    "rows": ["recipe=recurrent/lstm", "model.d_model=8", "scorer.rows=4", "batches.batch_size=4"],
    "kn3": ["recipe=counted/kn3"],
    "bert": [
        "recipe=bert/bert", "tokenizer=word_marked", "model.d_model=16", "model.n_layers=1", "model.n_heads=2",
        "batches.batch_size=4",
    ],
}  # fmt: skip
TAGGER = [
    "task=grammar_pos", "recipe=taggers/bilstm_crf", "model.d_embedding=8", "model.d_model=8",
    "task.sentences.text.words={train: 600, validation: 200, test: 200}", "epochs=0.2", "finetuning.lr=1e-9",
    "finetuning.batch_size=8", TINY,
]  # fmt: skip


def on(devices: int) -> list[str]:
    return ["trainer.accelerator=cpu", f"trainer.devices={devices}"]


def made(project, cell: str, choice: str, devices: int):
    """The folder of what was measured of a cell by so many processes."""
    for part in ["gpt", "kn3"] if cell == "both" else [cell]:
        if not (project.folder / f"outputs/pretrain/grammar_tiny/{part}_shared-1").exists():
            short = SHORT if part != "kn3" else SHORT[:1]
            if part == "bert":
                project.succeed("tokenize", TINY, "tokenizer=word_marked")
            project.succeed("pretrain", *short, *CELLS[part], f"system={part}_shared")
    processes = project.forked if devices > 1 else project
    if cell == "both":
        cells = "cells=[pretrain/grammar_tiny/gpt_shared-1,pretrain/grammar_tiny/kn3_shared-1]"
        processes.succeed("mix", TINY, cells, "system=both_shared", *on(devices))
    stage, *settings = CHOICES[choice]
    if stage == "evaluate":
        settings += ["corpus=grammar_tiny"]
    out = f"grammar_tiny/{cell}-{choice}-{devices}"
    processes.succeed(
        stage, *settings, f"cell=grammar_tiny/{cell}_shared-1", *on(devices), f"out={out}",
    )  # fmt: skip
    return project.folder / "outputs" / stage / out


@pytest.mark.parametrize(
    ("cell", "choice", "rounding"),
    [
        ("gpt", "perplexity", 0),
        ("bert", "held_out", 1e-6),  # metrics of halves of a batch
        pytest.param("gpt", "top_p", 0, marks=pytest.mark.long),
        pytest.param("both", "mixed", 0, marks=pytest.mark.long),
        pytest.param("gpt", "gradients", 0, marks=pytest.mark.long),
        pytest.param("gpt", "beam", 0, marks=pytest.mark.long),
        pytest.param("rows", "perplexity", 1e-6, marks=pytest.mark.long),  # fewer rows are multiplied at a time
    ],
)
def test_two_processes_find_what_one_finds(project, cell, choice, rounding):
    one, two = (made(project, cell, choice, devices) for devices in (1, 2))
    files = [each.relative_to(one) for each in sorted(one.rglob("*")) if each.is_file() and each.name not in RECORDS]
    assert len(files) > 1
    for file in files:
        if not rounding:
            assert (two / file).read_bytes() == (one / file).read_bytes(), file
        elif file.suffix == ".csv":
            ours, theirs = (pd.read_csv(folder / file) for folder in (two, one))
            pd.testing.assert_frame_equal(ours, theirs, rtol=rounding)
        else:
            ours, theirs = (json.loads((folder / file).read_text()) for folder in (two, one))
            assert ours == pytest.approx(theirs, rel=rounding)
    assert [read_record(cell)["devices"] for cell in (one, two)] == [1, 2]


def test_what_is_counted_stays_with_one_process(project):
    assert read_record(made(project, "kn3", "perplexity", 2))["devices"] == 1


@pytest.mark.long
def test_two_processes_tag_as_one(project):
    """A tagger is measured where it was trained. Its rate is so low that two trainings leave the same weights."""
    for devices in (1, 2):
        project.forked.succeed("finetune", *TAGGER, *on(devices), f"system=tagger_{devices}")
    one, two = (project.folder / f"outputs/from_scratch/grammar_pos/tagger_{devices}-1" for devices in (1, 2))
    assert (one / "units.csv").read_bytes() == (two / "units.csv").read_bytes()
