import torch

from retable.models.t5 import T5
from retable.models.t5_encoder import T5Encoder
from retable.training.weights import load_weights, save_weights

SIZES = {"vocab_size": 11, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
LENGTHS = torch.tensor([4, 1, 6])


def encoder(seed: int = 0) -> T5Encoder:
    torch.manual_seed(seed)
    return T5Encoder(**SIZES).eval()


def ids() -> torch.Tensor:
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(1))


def test_it_is_the_encoder_of_a_t5_of_the_same_settings(tmp_path):
    torch.manual_seed(1)
    whole, ours = T5(**SIZES).eval(), encoder()
    save_weights(whole, tmp_path / "model.safetensors")
    assert not torch.equal(ours(ids(), LENGTHS), whole.memory(ids(), LENGTHS))
    for name, part in ours.pretrained.items():
        load_weights(part, tmp_path / "model.safetensors", prefix=name)
    assert torch.equal(ours(ids(), LENGTHS), whole.memory(ids(), LENGTHS))
    names = {name for name, _ in whole.named_parameters() if not name.startswith("decoder.")}
    assert {name for name, _ in ours.named_parameters()} == names


def test_it_begins_as_the_encoder_of_a_t5_of_the_same_seed():
    ours = encoder(seed=3).state_dict()
    torch.manual_seed(3)
    theirs = T5(**SIZES).state_dict()
    assert ours.keys() <= theirs.keys()
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
