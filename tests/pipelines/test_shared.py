"""Two processes that measure, decode and predict together find what one finds."""

import json

import pandas as pd
import pytest

from retable.artifacts import read_record
from retable.digests import DIGESTS
from tests.pipelines.conftest import GPT, SHORT

RECORDS = ("run.json", "config.yaml", DIGESTS)  # which say how a cell was made
CHOICES = {
    "perplexity": ["evaluate", "benchmark=perplexity"],
    "gradients": ["evaluate", "benchmark=gradients", "benchmark.gradients.length=16",
                  "benchmark.gradients.distances=8", "benchmark.gradients.windows=70"],
    "top_p": ["generate", "decoding=top_p", "n_prompts=9", "++decoding.batch_size=2"],
    "beam": ["generate", "decoding=beam", "n_prompts=9", "++decoding.batch_size=2"],
}  # fmt: skip
CELLS = {
    "gpt": [*GPT, "tokenizer=word", "batches.batch_size=4"],
    "rows": ["recipe=recurrent/lstm", "model.d_model=8", "scorer.rows=4", "batches.batch_size=4"],
    "kn3": ["recipe=counted/kn3"],
}


def made(project, cell: str, choice: str, devices: int):
    """The folder of what was measured of a cell by so many processes."""
    if not (project.folder / f"outputs/pretrain/grammar_tiny/{cell}_shared-1").exists():
        short = SHORT if cell != "kn3" else SHORT[:1]
        project.succeed("pretrain", *short, *CELLS[cell], f"system={cell}_shared")
    stage, *settings = CHOICES[choice]
    if stage == "evaluate":
        settings += ["corpus=grammar_tiny"]
    out = f"grammar_tiny/{cell}-{choice}-{devices}"
    project.succeed(
        stage, *settings, f"cell=grammar_tiny/{cell}_shared-1", f"devices={devices}", "accelerator=cpu", f"out={out}",
    )  # fmt: skip
    return project.folder / "outputs" / stage / out


@pytest.mark.parametrize(
    ("cell", "choice", "rounding"),
    [
        ("gpt", "perplexity", 0),
        ("gpt", "gradients", 0),
        ("gpt", "top_p", 0),
        ("gpt", "beam", 0),
        ("rows", "perplexity", 1e-6),  # fewer rows are multiplied at a time
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
