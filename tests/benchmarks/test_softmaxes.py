"""Test that the benchmark of output layers has the layers of study softmaxes, and reads its perplexities."""

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from benchmarks import softmaxes
from benchmarks.softmaxes import CORPORA, LAYERS, figure, objective, perplexities
from pipelines.config.project import CONF, STUDIES, STUDY
from retable.core.settings import resolve
from retable.planning.conf import Conf
from retable.planning.study import read_study
from tests.pipelines.recipes import composed
from tests.reporting.charts import tables, texts

STUDY_OF_LAYERS = read_study(Conf(CONF), STUDIES / "softmaxes" / STUDY)
PRETRAINED = [cell for cell in STUDY_OF_LAYERS.cells.values() if cell.stage == "pretrain"]
CELLS = [cell for cell in PRETRAINED if cell.settings["system"] != "unigram"]  # `unigram` is only a baseline
WORDS = {corpus: words for words, corpus in CORPORA.items()}


def test_the_study_has_every_layer_at_every_size():
    systems = {(cell.settings["system"], cell.corpus) for cell in CELLS}
    assert systems == {(layer.system, corpus) for layer in LAYERS.values() for corpus in CORPORA.values()}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.out)
def test_layers_have_the_studys_settings(cell, monkeypatch):
    said = {key: value for key, value in cell.settings.items() if key not in ("corpus", "tokenizer", "recipe")}
    cfg = composed("pretrain", "lstm_untied", *(f"{key}={value}" for key, value in said.items()))
    (name,) = (name for name, layer in LAYERS.items() if layer.system == cell.settings["system"])
    assert LAYERS[name].kind is resolve(cfg.objective._target_)
    with torch.device("meta"):
        monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
        monkeypatch.setattr(softmaxes, "CountsWords", ())  # without counts of words, which need memory
        made = objective(name, WORDS[cell.corpus])
    assert made.model.d_model == cfg.model.d_model and len(made.model.layers.all_weights) == cfg.model.n_layers
    settings = OmegaConf.to_container(cfg.objective)
    own = {"tie": False, "bias": True, "reduction": "mean", **LAYERS[name].settings(WORDS[cell.corpus])}
    assert own == {key: value for key, value in settings.items() if key != "_target_"}
    assert (cfg.batches.batch_size, cfg.batches.length) == (softmaxes.BATCH, softmaxes.LENGTH)


def test_perplexities_stand_beside_the_costs(tmp_path):
    path = tmp_path / "perplexity.csv"
    assert perplexities(path) == {}
    rows = [
        (CORPORA[10_000], "full", 33.31), (CORPORA[10_000], "hierarchical", 40.0), (CORPORA[10_000], "oracle", 17.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["corpus", "system", "mean"])
    frame = frame.assign(split="test", metric="perplexity_word", ci_low=frame["mean"] - 1, ci_high=frame["mean"] + 1)
    frame.to_csv(path, index=False)
    found = perplexities(path)
    assert found == {
        (10_000, "full softmax"): (33.31, "33.3 (32.3–34.3)"),
        (10_000, "hierarchical softmax"): (40.0, "40.0 (39.0–41.0)"),
    }
    costs = {"full softmax": 0.3, "hierarchical softmax": 0.05}
    rows = [
        {"words": 10_000, "layer": name, "seconds": seconds, "mib": 90.0, "perplexity": found[10_000, name][0]}
        for name, seconds in costs.items()
    ]
    drawn = figure(pd.DataFrame(rows))
    (points,) = tables(drawn, "seconds", "perplexity")[:1]
    assert dict(zip(points["layer"], points["seconds"], strict=True)) == costs
    assert {"10,000 words", *costs} <= {*texts(drawn)}
