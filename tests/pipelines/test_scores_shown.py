"""Test that the scores of a cell are printed by the stage that makes it, and by `retable show`."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from retable.core.artifacts import main_scores
from tests.pipelines.conftest import CELLS

TINY = "corpus=grammar_tiny"


def test_a_stage_ends_with_its_scores_and_its_folder(project):
    trained = project.succeed("pretrain", TINY, "recipe=counted/kn3", "system=shown")
    assert trained.stdout.splitlines()[-1].startswith("outputs/pretrain/grammar_tiny/shown-1: ")
    done = project.succeed("evaluate", TINY, "cell=grammar_tiny/shown-1")
    perplexity = project.read("evaluate/grammar_tiny/shown-1/metrics.json")["test/perplexity_word"]
    place, _, scores = done.stdout.splitlines()[-1].partition(": ")
    name, value, low, _, high, *_ = re.split("[ (),]+", scores)
    assert (place, name, value) == (
        "outputs/evaluate/grammar_tiny/shown-1", "test/perplexity_word", f"{perplexity:.5g}",
    )  # fmt: skip
    units = pd.read_csv(project.folder / place / "perplexity/units.csv").query("split == 'test'")
    error = stats.sem(units["nats"] - np.log(perplexity) * units["words"]) / units["words"].mean()
    assert [float(low), float(high)] == pytest.approx(
        [perplexity * np.exp(sign * 2 * error) for sign in (-1, 1)], rel=0.05
    )


def test_of_many_metrics_the_main_ones_are_those_of_the_test():
    metrics = {"test/words": 9.0, "test/nats": 3.0, "test/bits_per_byte": 2.0, "test/perplexity_word": 7.0,
               "steps": 5.0, "validation/perplexity_word": 6.0}  # fmt: skip
    assert [*main_scores(metrics).items()] == [("test/perplexity_word", 7.0), ("test/bits_per_byte", 2.0)]
    assert main_scores({"steps": 5.0, "train/loss": 1.5}) == {"train/loss": 1.5}
    assert main_scores({f"a/test/{name}": 0.5 for name in "bcdefg"}, 4).keys() == {f"a/test/{name}" for name in "bcde"}
    assert main_scores({"train/lines": 3}) == {}


@pytest.fixture
def show(cells, command, monkeypatch):
    monkeypatch.chdir(cells.folder)

    def show(cell: str) -> list[str]:
        code, printed, error = command("show", cell)
        assert code == 0, error
        return printed.splitlines()

    return show


@pytest.mark.parametrize("place", CELLS)
def test_any_cell_shows_its_scores(place, cells, show):
    metrics = json.loads((cells.folder / "outputs" / place / "metrics.json").read_text())
    shown = {line.split()[0] for line in show(place)}
    assert {*metrics} <= shown


def test_a_system_shows_its_evaluations(cells, show):
    lines = show("mix/grammar_tiny/both-1")
    (at,) = (number for number, line in enumerate(lines) if line.startswith("measured"))
    assert lines[at].endswith("outputs/evaluate/grammar_tiny/both-1")
    measured = json.loads((cells.folder / "outputs/evaluate/grammar_tiny/both-1/metrics.json").read_text())
    assert lines[at + 1].split() == ["test/perplexity_word", f"{measured['test/perplexity_word']:.6g}"]
