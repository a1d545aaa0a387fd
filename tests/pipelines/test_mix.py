"""Test mixtures of cells: fitted, evaluated like other systems, and refused if they are invalid."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from retable.core.errors import UsageError
from retable.inference.systems import load_system
from retable.models.cache import UnigramCache
from retable.models.ngram import KneserNey
from retable.tokenizers.tokenizer import read_tokens

CELLS = ["pretrain/grammar_tiny/kn3-1", "pretrain/grammar_tiny/cache-1"]


@pytest.fixture(scope="module")
def mixed(own) -> Path:
    """Return a folder with an n-gram model, a cache and their mixture, evaluated."""
    return own.folder


@pytest.fixture
def inside(mixed, monkeypatch) -> Path:
    monkeypatch.chdir(mixed)
    return Path("outputs/mix/grammar_tiny/both-1")


def test_weights_are_the_best_for_the_validation_text(inside):
    metrics = json.loads((inside / "metrics.json").read_text())
    names = [f"weight/{cell}" for cell in CELLS]
    assert metrics.keys() == {*names, "validation/loss"}
    weights = load_file(inside / "model.safetensors")["weights"]
    assert [metrics[name] for name in names] == weights.tolist() and weights.sum() == pytest.approx(1)
    mixture = load_system(inside)
    assert [type(system) for system in mixture.systems] == [KneserNey, UnigramCache]
    tokens = read_tokens(Path("outputs/tokenize/grammar_tiny/word/validation.bin"), mixture.systems[0].vocab_size)
    own, cached = (np.exp(system.log_prob(tokens)) for system in mixture.systems)
    losses = {
        step: -np.log((weights[0] - step) * own + (weights[1] + step) * cached).mean() for step in (-0.01, 0, 0.01)
    }
    assert losses[0] == pytest.approx(metrics["validation/loss"], abs=1e-9) and losses[0] == min(losses.values())


def test_a_mixture_is_scored_like_any_system(inside):
    cell = Path("outputs/evaluate/grammar_tiny/both-1")
    metrics, run = (json.loads((cell / name).read_text()) for name in ("metrics.json", "run.json"))
    fitted = json.loads((inside / "metrics.json").read_text())
    assert metrics["validation/nats"] / metrics["validation/tokens"] == pytest.approx(fitted["validation/loss"])
    assert (run["system"], run["protocol"]) == ("both", "sentence-bounded + last 200 tokens")
    assert json.loads((inside / "run.json").read_text())["made_from"] == [*CELLS, "tokenize/grammar_tiny/word"]


def test_an_ensemble_is_the_average_of_its_systems(own, inside):
    both = f"cells=[{','.join(CELLS)}]"
    own.succeed("mix", "corpus=grammar_tiny", both, "weights=equal", "system=ensemble")
    cell = Path("outputs/mix/grammar_tiny/ensemble-1")
    metrics, ensemble = json.loads((cell / "metrics.json").read_text()), load_system(cell)
    assert [metrics[f"weight/{name}"] for name in CELLS] == ensemble.weights.tolist() == [0.5, 0.5]
    tokens = read_tokens(Path("outputs/tokenize/grammar_tiny/word/validation.bin"), ensemble.systems[0].vocab_size)
    own, cached = (np.exp(system.log_prob(tokens)) for system in ensemble.systems)
    np.testing.assert_allclose(np.exp(ensemble.log_prob(tokens)), (own + cached) / 2)
    assert metrics["validation/loss"] == pytest.approx(-np.log((own + cached) / 2).mean())


@pytest.mark.parametrize("planted", ["2", "x"])
def test_a_part_that_leads_elsewhere_is_refused(inside, tmp_path, planted):
    """Reading a link to the mixture itself would never end."""
    copied = shutil.copytree(inside, tmp_path / "mixture")
    (copied / "parts" / planted).symlink_to(copied)
    with pytest.raises(UsageError, match=rf"parts/{planted} is not part of a mixture; copy the cell again"):
        load_system(copied)


def test_a_mixture_stays_that_of_the_very_cells_that_it_was_fitted_to(inside):
    weights = Path("outputs", CELLS[1], "model.safetensors")
    before, tokens = weights.read_bytes(), np.arange(2, 40)
    expected = load_system(inside).log_prob(tokens)
    try:
        UnigramCache(9, 60).save(weights)
        assert (load_system(inside).log_prob(tokens) == expected).all()
    finally:
        weights.write_bytes(before)


@pytest.mark.parametrize(("overrides", "message"), [
    (["corpus=grammar_tiny", f"cells=[{CELLS[0]}]"], "two or more different cells"),
    (["corpus=grammar_tiny", f"cells=[{CELLS[0]},{CELLS[0]}]"], "two or more different cells"),
    ([f"cells=[{','.join(CELLS)}]"], "trained on grammar_tiny/word, not grammar/word"),
    (["corpus=grammar_tiny", f"cells=[{CELLS[0]},pretrain/grammar_tiny/nothing-1]"], "nothing-1"),
    (["corpus=grammar_tiny", f"cells=[{','.join(CELLS)}]", "weights=like"], "should be 'fitted' or 'equal'"),
], ids=["one cell", "one cell twice", "other tokens", "missing", "weights"])  # fmt: skip
def test_what_does_not_mix_is_refused_with_one_line(own, mixed, overrides, message):
    assert message in own.refuse("mix", *overrides, "system=refused")
    assert not list(mixed.glob("outputs/mix/*/refused-*"))


def test_n_gram_models_alone_have_arpa_files(own, mixed):
    own.succeed("cli.main", "export", "pretrain/grammar_tiny/kn3-1", "bigram.arpa")
    assert (mixed / "bigram.arpa").read_text().startswith("\\data\\\nngram 1=")
    assert "cache-1 is not an n-gram model" in own.refuse(
        "cli.main", "export", "pretrain/grammar_tiny/cache-1", "cache.arpa"
    )
