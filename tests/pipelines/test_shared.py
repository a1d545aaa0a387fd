"""Test that two processes that measure, decode and predict together find the same results as one process."""

import json

import pandas as pd
import pytest

from retable.core.artifacts import read_record
from retable.core.digests import DIGESTS
from tests.pipelines.conftest import CELLS, TINY

RECORDS = ("run.json", "config.yaml", DIGESTS)  # files that record how a cell was made
GRADIENTS = [f"benchmark.gradients.{each}" for each in ("length=16", "distances=8", "windows=70")]
TAGGER = CELLS["from_scratch/grammar_pos/bilstm_crf-1"]


def on(devices: int) -> list[str]:
    return ["trainer.accelerator=cpu", f"trainer.devices={devices}"]


def made(own, devices: int, cell: str, stage: str, *settings: str):
    """Return the folder that a stage makes of a cell with this many processes."""
    processes, stage_of_cell = own.forked if devices > 1 else own, []
    if cell == "mixed":
        cells = "cells=[pretrain/grammar_tiny/elman-1,pretrain/grammar_tiny/kn3-1]"
        processes.succeed("mix", TINY, cells, "system=mixed", *on(devices))
        stage_of_cell = ["stage=mix"]
    if cell == "rows" and devices == 1:
        own.succeed(*CELLS["pretrain/grammar_tiny/elman-1"], "scorer.rows=4", "system=rows")
    out = f"grammar_tiny/{cell}-{settings[0].partition('=')[2]}-{devices}"
    text = [TINY] if stage == "evaluate" else []
    processes.succeed(
        stage, *text, *settings, *stage_of_cell, f"cell=grammar_tiny/{cell}-1", *on(devices), f"out={out}"
    )
    return own.folder / "outputs" / stage / out


def long(*case):
    return pytest.param(*case, marks=pytest.mark.long)


@pytest.mark.parametrize(("rounding", "case"), [
    (0, ["gpt", "evaluate", "benchmark=perplexity", "tokenizer=bpe"]),
    (1e-6, ["bert", "evaluate", "benchmark=held_out", "tokenizer=word_marked"]),  # metrics of halves of a batch
    long(0, ["gpt", "generate", "decoding=top_p", "n_prompts=9", "++decoding.batch_size=2"]),
    long(0, ["gpt", "generate", "decoding=beam", "n_prompts=9", "++decoding.batch_size=2"]),
    long(0, ["mixed", "evaluate", "benchmark=perplexity"]),
    long(0, ["gpt", "evaluate", "benchmark=gradients", "tokenizer=bpe", *GRADIENTS]),
    long(1e-6, ["rows", "evaluate", "benchmark=perplexity"]),  # fewer rows per product
], ids=str)  # fmt: skip
def test_two_processes_find_what_one_finds(own, rounding, case):
    one, two = (made(own, devices, *case) for devices in (1, 2))
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


def test_what_is_counted_stays_with_one_process(own):
    assert read_record(made(own, 2, "kn3", "evaluate", "benchmark=perplexity"))["devices"] == 1


@pytest.mark.long
def test_two_processes_tag_as_one(own):
    """A tagger is measured in its training stage. The rate is so low that two trainings give the same weights."""
    for devices in (1, 2):
        own.forked.succeed(*TAGGER, "finetuning.lr=1e-9", *on(devices), f"system=tagger_{devices}")
    one, two = (own.folder / f"outputs/from_scratch/grammar_pos/tagger_{devices}-1" for devices in (1, 2))
    assert (one / "units.csv").read_bytes() == (two / "units.csv").read_bytes()
