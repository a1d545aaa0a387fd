import pytest
import torch
from safetensors.torch import load_file, save_file

from retable.core.errors import UsageError
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.training.weights import load_weights, matrix_parameters, save_weights

V, D, T = 11, 8, 6


def gpt(seed: int = 0, d_model: int = D, tie: bool = True) -> CausalLM:
    torch.manual_seed(seed)
    return CausalLM(GPT(V, d_model, 2, 2, T, 0.0), V, tie, bias=False, reduction="mean")


def lstm(seed: int = 0) -> CausalLM:
    torch.manual_seed(seed)
    return CausalLM(LSTM(V, D, 2, 0.0, init_range=0.1), V, tie=False, bias=True, reduction="mean")


@pytest.mark.parametrize("make", [gpt, lstm])
def test_the_same_weights_give_the_same_bytes_and_come_back(make, tmp_path):
    save_weights(make(), tmp_path / "first")
    save_weights(make(), tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    whole, backbone = make(seed=1), make(seed=1)
    load_weights(whole, tmp_path / "first")
    load_weights(backbone.model, tmp_path / "first", prefix="model.")
    for other, taken in ((whole, make()), (backbone.model, make().model)):
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), taken.parameters(), strict=True))


def test_tied_weights_are_kept_once_and_stay_tied(tmp_path):
    save_weights(gpt(), tmp_path / "model.safetensors")
    assert "head.weight" not in load_file(tmp_path / "model.safetensors")
    other = gpt(seed=1)
    load_weights(other, tmp_path / "model.safetensors")
    assert other.head.weight is other.model.embedding.weight


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(gpt(), path)
    whole = path.read_bytes()
    for content in (b"", whole[:7], whole[:100], whole[:-1], b"no weights at all"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"model.safetensors is damaged .*dvc repro"):
            load_weights(gpt(), path)


def test_another_models_files_are_refused_and_change_nothing(tmp_path):
    path = tmp_path / "model.safetensors"
    fewer = dict(list(gpt().state_dict().items())[:-2])
    for foreign in (lstm().state_dict(), gpt(d_model=16).state_dict(), gpt(tie=False).state_dict(), fewer):
        save_file({name: tensor.clone() for name, tensor in foreign.items()}, path)
        objective = gpt()
        with pytest.raises(UsageError, match="has weights that do not fit the model CausalLM"):
            load_weights(objective, path)
        assert all(torch.equal(a, b) for a, b in zip(objective.parameters(), gpt().parameters(), strict=True))


def test_matrix_parameters_leave_out_what_is_looked_up():
    blocks = 2 * (3 * D * D + D * D + 4 * D * D + 4 * D * D)
    assert matrix_parameters(gpt()) == blocks + V * D  # the tied softmax
    assert matrix_parameters(gpt(tie=False)) == blocks + V * D
    assert matrix_parameters(gpt().model) == blocks
    assert matrix_parameters(lstm()) == 2 * (4 * D * D + 4 * D * D) + V * D
