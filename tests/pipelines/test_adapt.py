"""Test cells that continue to learn while they read: fitted, evaluated and mixed like other systems."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import retable
from retable.core.digests import digest
from retable.core.systems import LanguageModel
from retable.corpora.text import read_units
from retable.evaluation.dynamic_evaluation import LearningLM
from retable.evaluation.neural_cache import CachedLM
from retable.inference.systems import load_system
from retable.tokenizers.tokenizer import Tokenizer, read_tokens
from tests.pipelines.conftest import TINY, TWO

pytestmark = pytest.mark.long

TRAINED, CELL = "grammar_tiny/elman-1", "cell=grammar_tiny/elman-1"
TOKENS = Path("outputs/tokenize/grammar_tiny/word")
SETTINGS = {"neural_cache": ["theta", "weight"], "dynamic": ["rate", "decay"]}  # test_plan.py runs dynamic_rms


@pytest.fixture(scope="module")
def adapted(own) -> Path:
    """Return a folder with a recurrent network that is adapted in each way, and a mixture with an adapted one."""
    own.succeed(
        "adapt", TINY, CELL, "adaptation=dynamic", "system=elman_dynamic", "adaptation.rates=[0.1,0.3]",
        "adaptation.segment=20",
    )  # fmt: skip
    own.succeed("evaluate", TINY, "stage=adapt", "cell=grammar_tiny/elman_dynamic-1")
    cells = "cells=[adapt/grammar_tiny/elman_dynamic-1,pretrain/grammar_tiny/kn3-1]"
    own.succeed("mix", TINY, cells, "system=dynamic_beside")
    return own.folder


@pytest.fixture
def inside(adapted, monkeypatch) -> Path:
    monkeypatch.chdir(adapted)
    return adapted


def metrics(cell: str) -> dict[str, float]:
    return json.loads(Path("outputs", cell, "metrics.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_best_setting_on_the_validation_text_is_recorded(name, inside):
    cell = Path(f"outputs/adapt/grammar_tiny/elman_{name}-1")
    reported = metrics(f"adapt/grammar_tiny/elman_{name}-1")
    with (cell / "tried.csv").open(encoding="utf-8") as file:
        tried = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert all([*row] == [*SETTINGS[name], "loss"] for row in tried) and len(tried) > 1
    assert len({tuple(row.values()) for row in tried}) == len(tried)
    best = min(tried, key=lambda row: row["loss"])
    assert reported == pytest.approx(
        {key: best[key] for key in SETTINGS[name]} | {"validation/loss": best["loss"]}, rel=1e-5
    )
    saved = load_file(cell / "model.safetensors")
    assert {key: float(saved[key]) for key in SETTINGS[name]} == {key: reported[key] for key in SETTINGS[name]}


def test_two_processes_find_what_one_finds(own, inside):
    """The processes divide the settings among them, and each reads the validation text in order."""
    settings = ["adaptation.rates=[0.1,0.3]", "adaptation.segment=20", "system=elman_shared"]
    own.forked.succeed("adapt", TINY, CELL, "adaptation=dynamic", *settings, "trainer=ddp", *TWO)
    cells = [Path(f"outputs/adapt/grammar_tiny/elman_{name}-1") for name in ("dynamic", "shared")]
    for file in ("tried.csv", "model.safetensors", "metrics.json"):
        assert digest(cells[0] / file) == digest(cells[1] / file), file


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_scored_like_any_system_and_better(name, inside):
    evaluation = metrics(f"evaluate/grammar_tiny/elman_{name}-1")
    loss = evaluation["validation/nats"] / evaluation["validation/tokens"]
    assert loss == pytest.approx(metrics(f"adapt/grammar_tiny/elman_{name}-1")["validation/loss"], abs=1e-5)
    plain = metrics(f"evaluate/{TRAINED}")
    assert all(
        evaluation[f"{split}/perplexity_word"] < plain[f"{split}/perplexity_word"] for split in ("validation", "test")
    )
    run = json.loads(Path(f"outputs/evaluate/grammar_tiny/elman_{name}-1/run.json").read_text())
    protocol = "carried, cache of 500" if name == "neural_cache" else "carried, dynamic"
    assert (run["system"], run["seed"], run["protocol"]) == (f"elman_{name}", 1, protocol)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_carries_the_trained_cell_as_it_was(name, inside):
    source, cell = Path("outputs/pretrain", TRAINED), Path(f"outputs/adapt/grammar_tiny/elman_{name}-1")
    names = ("config.yaml", "model.safetensors", "tokenizer.json")
    assert all(digest(source / each) == digest(cell / "parts/0" / each) for each in names)
    system = load_system(cell)
    assert isinstance(system, CachedLM if name == "neural_cache" else LearningLM)
    tokens = read_tokens(TOKENS / "test.bin", Tokenizer.load(TOKENS / "tokenizer.json").vocab_size)[:60]
    assert np.array_equal(system.log_prob(tokens), system.log_prob(tokens))
    assert np.array_equal(system.adapted.log_prob(tokens), load_system(source).log_prob(tokens))
    run = json.loads((cell / "run.json").read_text())
    assert run["made_from"] == [f"pretrain/{TRAINED}", "tokenize/grammar_tiny/word"]


def test_it_is_mixed_like_any_system(inside):
    mixture = load_system(Path("outputs/mix/grammar_tiny/dynamic_beside-1"))
    assert isinstance(mixture, LanguageModel) and isinstance(mixture.systems[0], LearningLM)
    assert mixture.protocol == "carried, dynamic + sentence-bounded"
    alone = [
        load_system(Path("outputs", cell))
        for cell in ("adapt/grammar_tiny/elman_dynamic-1", "pretrain/grammar_tiny/kn3-1")
    ]
    tokens = read_tokens(TOKENS / "test.bin", Tokenizer.load(TOKENS / "tokenizer.json").vocab_size)[:60]
    expected = mixture.weights @ np.exp([system.log_prob(tokens) for system in alone])
    np.testing.assert_allclose(np.exp(mixture.log_prob(tokens)), expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_loaded_and_asked_from_anywhere(name, inside):
    system = retable.load(f"adapt/grammar_tiny/elman_{name}-1")
    assert system.can == ("perplexity", "score", "choose")
    documents = ["\n".join(lines) for lines in read_units(Path("outputs/prepare/grammar_tiny/test.txt"), "document")]
    expected = metrics(f"evaluate/grammar_tiny/elman_{name}-1")["test/perplexity_word"]
    assert system.perplexity(documents) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("overrides", "message"), [
    (["cell=grammar_tiny/kn3-1"], "kn3-1 is not a NeuralLM, but adaptation=neural_cache needs one; set cell"),
    (["cell=grammar_tiny/nothing-1"], "nothing-1/model.safetensors is missing"),
    (["tokenizer=bpe", CELL], "was trained on grammar_tiny/word; write corpus=grammar_tiny tokenizer=word"),
    ([CELL, "adaptation.thetas=[]"], "adaptation.thetas=[] should"),
    ([CELL, "adaptation.weights=[1.0]"], "adaptation.weights=[1.0] should be less than 1"),
    ([CELL, "adaptation=dynamic", "adaptation.rows=3"], "unknown setting adaptation.rows; write"),
    ([CELL, "adaptation=dynamic_rms", "adaptation.rows=100000"], "is shorter than a batch; lower adaptation.rows"),
])  # fmt: skip
def test_what_can_not_learn_is_refused_with_one_line(own, adapted, overrides, message):
    assert message in own.refuse("adapt", TINY, *overrides, "system=refused")
    assert not list(adapted.glob("outputs/adapt/*/refused-*"))
