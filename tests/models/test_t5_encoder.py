import torch

from retable.models.t5 import T5
from retable.models.t5_encoder import T5Encoder
from retable.training.weights import load_weights, save_weights

SIZES = {"vocab_size": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
LENGTHS = torch.tensor([4, 1, 6])


def ids() -> torch.Tensor:
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(1))


def test_it_is_the_encoder_of_a_t5_of_the_same_settings(tmp_path):
    torch.manual_seed(1)
    whole = T5(**SIZES).eval()
    torch.manual_seed(1)
    ours, theirs = T5Encoder(**SIZES).eval().state_dict(), whole.state_dict()
    assert ours.keys() == {name for name in theirs if not name.startswith("decoder.")}
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())  # of the same seed
    other = T5Encoder(**SIZES).eval()
    save_weights(whole, tmp_path / "model.safetensors")
    assert not torch.equal(other(ids(), LENGTHS), whole.memory(ids(), LENGTHS))
    for name, part in other.pretrained.items():
        load_weights(part, tmp_path / "model.safetensors", prefix=name)
    assert torch.equal(other(ids(), LENGTHS), whole.memory(ids(), LENGTHS))
