"""Test the figure and table of ELMo's scalar mixes, from the weights that stage train saves."""

from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM
from retable.models.elmo_tagger import ELMoTagger
from retable.objectives.classification import Classification
from retable.objectives.tagging import Tagging
from retable.reporting.mixes import mixes_figures, mixes_frame
from retable.reporting.results import read_result
from retable.training.weights import save_weights
from tests.reporting.charts import marks, table, texts
from tests.reporting.specifications import of_rows

WORDS = ["<unk>", "<eos>", "dog", "barks"]
ELMO = partial(ELMo, d_model=2, d_cell=3, n_layers=2, dropout=0.0, filters=[(1, 2)], d_character=2, n_highway=1)


@pytest.fixture
def write(write_run):
    """Write a cell whose mix has these weights, before the softmax, and this scale."""

    def build(corpus, task, system, seed, weights, gamma, layers=None):
        if corpus == "grammar_pos":
            trained = Tagging(ELMoTagger(4, WORDS, ELMO, 2, 2, [(1, 2)], 4, 1, 0.0), ["A", "B"], 0.0, False, None)
        else:
            trained = Classification(ELMoBiLSTM(WORDS, ELMO, 2, 4, 1, layers=layers), 2, dropout=0.0)
        with torch.no_grad():
            trained.model.mix.weights.copy_(torch.tensor(weights))
            trained.model.mix.gamma.fill_(gamma)
        folder = write_run("finetune", f"{corpus}/{task}-{system}-{seed}", system, seed, {}, task=task)
        (folder / "config.yaml").write_text(f"model: {{layers: {'null' if layers is None else layers}}}\n")
        save_weights(trained, folder / "model.safetensors")
        return folder

    return build


@pytest.fixture
def folders(write):
    return [
        write("glue", "sst5", "bilstm_elmo", 1, [0.0, 0.0, 0.0], 0.5),
        write("glue", "cola", "bilstm_elmo", 1, [0.0, 1.0, 0.0], 1.0),
        write("glue", "cola", "bilstm_elmo", 2, [0.0, 2.0, -1.0], 2.0),
        write("grammar_pos", "grammar_pos", "elmo_tagger", 1, [3.0, 0.0, 0.0], 1.0),
        write("glue", "cola", "bilstm_elmo_last", 1, [0.7], 3.0, layers=[2]),
    ]


def shares_of(*weights):
    return np.exp(weights) / np.exp(weights).sum()


def frame_of(folders):
    return mixes_frame(map(read_result, folders))


def test_shares_are_read_from_the_weights_and_averaged_over_seeds(folders, write):
    frame = frame_of(folders)
    cola = frame[frame["task"] == "cola"].sort_values("layer")
    of_seeds = np.stack([shares_of(0, 1, 0), shares_of(0, 2, -1)])
    np.testing.assert_allclose(cola["share"], of_seeds.mean(axis=0))
    np.testing.assert_allclose(cola["share_std"], of_seeds.std(axis=0, ddof=1))
    assert cola["layer"].tolist() == [0, 1, 2] and set(cola["gamma"]) == {1.5} and set(cola["n"]) == {2}
    assert "bilstm_elmo_last" not in set(frame["system"])  # this system uses a single layer
    single = read_result(folders[-1]).tables["mix"]
    assert single.to_dict("list") == {"layer": [2], "share": [1.0], "gamma": [3.0]}
    frame = frame_of([write("grammar", "sentiment", "some", 1, [1.0, 0.0], 1.0, layers=[2, 0])])
    assert frame.set_index("layer")["share"][[2, 0]].tolist() == pytest.approx(shares_of(1, 0))


def test_the_figure_has_a_square_a_task_and_layer(folders):
    figures = mixes_figures(frame_of(folders))
    assert [*figures] == ["glue", "grammar_pos"]
    cola = (shares_of(0, 1, 0) + shares_of(0, 2, -1)) / 2
    squares = table(figures["glue"], "apart").pivot(index="system", columns="column", values="apart")
    np.testing.assert_allclose(squares.loc["CoLA", ["layer 0", "layer 1", "layer 2"]], cola - 1 / 3, rtol=1e-4)
    np.testing.assert_allclose(squares.loc["sst5", ["layer 0", "layer 1", "layer 2"]], 0, atol=1e-12)
    (square,) = marks(figures["glue"].to_dict(), "rect")
    low, middle, high = square["encoding"]["color"]["scale"]["domain"]
    assert low == -high and middle == 0 and high == pytest.approx(abs(cola - 1 / 3).max())
    shown = texts(figures["glue"])
    assert shown.index("layer 0") < shown.index("layer 1") < shown.index("layer 2") < shown.index("γ")
    assert shown.index("CoLA") < shown.index("sst5")
    numbers = [*(f"{share:.2f}" for share in cola), "1.50", "0.33", "0.33", "0.33", "0.50"]
    assert sorted(text for text in shown if text[0].isdigit()) == sorted(numbers)


def test_cells_without_a_mixture_have_no_row(write, write_run):
    folder = write("glue", "cola", "bilstm", 1, [0.0, 0.0, 0.0], 1.0)
    save_weights(torch.nn.Linear(2, 2), folder / "model.safetensors")
    plain = write_run("finetune", "glue/rte-bilstm-1", "bilstm", 1, {}, task="rte")
    assert frame_of([folder, plain]).empty and of_rows("scalar-mix", frame_of([folder])) == []
    assert mixes_figures(frame_of([folder])) == {}
    (folder / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(UsageError, match="is damaged"):
        read_result(folder)
