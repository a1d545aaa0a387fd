import numpy as np
import pandas as pd
import pytest
import torch

from retable.data.encode import write_tokens
from retable.evaluation.likelihood import Carried, NeuralLM
from retable.evaluation.positions import Positions, binned, positions
from retable.models.recurrent import Elman
from retable.objectives.causal_lm import CausalLM
from retable.tokenizers import character, word
from tests.evaluation.given import Costs

DOCUMENTS = [["a b c", "a"], ["b b", "a c b", "c"]]


@pytest.fixture
def folder(tmp_path):
    tokenizer = word.train(["a b c"])
    tokenizer.save(tmp_path / "tokenizer.json")
    write_tokens(tokenizer, DOCUMENTS, True, tmp_path / "test")
    return tmp_path


def read(folder) -> dict[str, list[tuple]]:
    parts = pd.read_csv(folder / "positions.csv", index_col="where").groupby("where")
    return {name: [*part.itertuples(index=False, name=None)] for name, part in parts}


def test_sentences_and_documents_by_hand(folder, tmp_path):
    assert positions(np.array([3, 1, 2])).tolist() == [1, 2, 3, 1, 1, 2]
    # The tokens; $ is a line end: a b c $ a $ $ | b b $ a c b $ c $ $.
    assert Positions(str(folder))(Costs(lambda tokens: np.arange(len(tokens))), folder) == {}
    found = read(folder)
    assert found.keys() == {"unit", "sentence"}  # the model is not neural, so there are no windows
    sentence = [
        (1, 1, 7, (0 + 4 + 6 + 7 + 10 + 14 + 16) / 7), (2, 2, 5, (1 + 5 + 8 + 11 + 15) / 5),
        (3, 3, 3, (2 + 9 + 12) / 3), (4, 4, 2, (3 + 13) / 2),
    ]  # fmt: skip
    assert found["sentence"] == [pytest.approx(row, abs=1e-6) for row in sentence]
    assert found["unit"][0] == (1, 1, 2, 3.5)
    assert found["unit"][-1] == (9, 10, 2, 15.5)
    tokenizer = character.train(["a b c"])
    tokenizer.save(tmp_path / "tokenizer.json")
    write_tokens(tokenizer, DOCUMENTS, True, tmp_path / "test")
    Positions(str(tmp_path))(Costs(lambda tokens: np.arange(len(tokens))), tmp_path)
    assert read(tmp_path).keys() == {"unit"}


def test_bins_cover_every_place_once_and_end_at_powers_of_the_root_of_two():
    places = np.random.default_rng(0).integers(1, 129, 5000)
    values = np.sqrt(places)
    rows = binned(places, values)
    assert [last for _, last, _, _ in rows] == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128]
    assert [first for first, *_ in rows] == [1, *(last + 1 for _, last, _, _ in rows[:-1])]
    for first, last, count, mean in rows:
        inside = (first <= places) & (places <= last)
        assert (count, mean) == (inside.sum(), pytest.approx(values[inside].mean()))
    for longest in range(1, 40):  # last position of the last bin
        rows = binned(np.arange(1, longest + 1), np.ones(longest))
        assert rows[-1][1] == longest and sum(count for _, _, count, _ in rows) == longest


def test_windows_start_with_nothing_seen(folder):
    torch.manual_seed(0)
    objective = CausalLM(Elman(5, 8, 1, 0.0, init_range=0.9), 5, tie=False, bias=True, reduction="mean").eval()
    system = NeuralLM(objective, Carried(1), boundary=1)
    Positions(str(folder), window=4)(system, folder)
    tokens = np.fromfile(folder / "test.bin", "<u2").astype(int)
    stream, nats = np.append(1, tokens), []
    for i in range(len(tokens)):
        seen = torch.from_numpy(stream[i // 4 * 4 : i + 1])[None]
        nats.append(-objective.next_log_prob(seen, None)[0][0, tokens[i]].item())
    expected = [(place, place, len(nats[place - 1 :: 4]), np.mean(nats[place - 1 :: 4])) for place in (1, 2, 3, 4)]
    assert read(folder)["window"] == [pytest.approx(row, abs=1e-5) for row in expected]
