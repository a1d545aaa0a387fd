import pytest
import torch
from torch import Tensor

from retable.models.t5 import T5, OneStackT5
from retable.models.t5_encoder import T5Encoder
from retable.training.weights import load_weights, save_weights
from tests.models.t5_cases import KINDS, D, F, H, K, L, V, build, transformers_t5, widened

B, T, U = 3, 7, 5
LENGTHS = torch.tensor([7, 4, 1])


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def model(kind) -> T5:
    return build(kind)


@pytest.fixture
def one_stack(kind) -> OneStackT5:
    torch.manual_seed(0)
    return widened(OneStackT5(V, D, L, H, F, 0.1, KINDS[kind], d_head=K)).eval()


def texts() -> tuple[Tensor, Tensor]:
    """Return inputs (B, T), padded with 0 after LENGTHS, and decoder ids (B, U)."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(1, V, (B, T), generator=generator)
    return inputs * (torch.arange(T) < LENGTHS[:, None]), torch.randint(1, V, (B, U), generator=generator)


def reach(hidden_of, ids: Tensor) -> Tensor:
    """Return (T, T) bool: whether hidden state i of a text changes if id j changes."""
    before, rows = hidden_of(ids), []
    for j in range(ids.shape[1]):
        changed = ids.clone()
        changed[:, j] = (changed[:, j] + 1) % V
        rows.append((hidden_of(changed) - before).abs().amax(dim=2)[0] > 1e-6)
    return torch.stack(rows, dim=1)


@torch.no_grad()
def test_equals_transformers(model, kind):
    pytest.importorskip("transformers")
    theirs = transformers_t5(model, kind, model.embedding.weight)
    inputs, outputs = texts()
    attention_mask = (torch.arange(T) < LENGTHS[:, None]).long()
    expected = theirs(inputs, attention_mask, decoder_input_ids=outputs, output_hidden_states=True)
    memory, real = model.memory(inputs, LENGTHS), attention_mask.bool()
    assert (memory - expected.encoder_last_hidden_state)[real].abs().max() < 1e-5
    assert (model(inputs, LENGTHS, outputs) - expected.decoder_hidden_states[-1]).abs().max() < 1e-5
    far = torch.randint(1, V, (1, 160), generator=torch.Generator().manual_seed(0))
    expected = theirs(far, decoder_input_ids=far, output_hidden_states=True).decoder_hidden_states[-1]
    # Scores that are not divided by √D are large: rounding alone gives 2e-5, a wrong bucket for the longest distances
    # 0.3.
    assert (model(far, torch.tensor([160]), far) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("prefix", [[0, 0], [1, 4], [6, 3]], ids=str)
def test_a_prefix_is_seen_whole_and_the_rest_left_to_right(one_stack, prefix):
    ids = torch.randint(V, (2, 6), generator=torch.Generator().manual_seed(0))
    for row, length in enumerate(prefix):
        found = reach(lambda ids, length=length: one_stack(ids, prefix=torch.tensor([length]))[0], ids[row : row + 1])
        by_hand = [[key <= query or key < length for key in range(6)] for query in range(6)]
        assert found.tolist() == by_hand
    together = one_stack(ids, prefix=torch.tensor(prefix))[0]
    apart = [one_stack(ids[row : row + 1], prefix=torch.tensor(prefix[row : row + 1]))[0] for row in range(2)]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)


def test_a_stack_that_is_all_prefix_is_an_encoder(model, one_stack):
    """Such a stack equals transformers' encoder."""
    one_stack.stack.load_state_dict(model.encoder.state_dict())
    one_stack.embedding.load_state_dict(model.embedding.state_dict())
    inputs, _ = texts()
    memory = model.memory(inputs, LENGTHS)
    hidden, _ = one_stack(inputs, prefix=LENGTHS)
    real = torch.arange(T) < LENGTHS[:, None]
    torch.testing.assert_close(hidden[real], memory[real], atol=1e-5, rtol=1e-5)


def test_an_encoder_alone_is_that_of_a_t5_of_the_same_settings(kind, tmp_path):
    torch.manual_seed(1)
    whole = T5(V, D, L, H, F, 0.1, KINDS[kind], d_head=K).eval()
    torch.manual_seed(1)
    same, other = (T5Encoder(V, D, L, H, F, 0.1, KINDS[kind], d_head=K).eval() for _ in range(2))
    weights = {name: weight for name, weight in whole.state_dict().items() if not name.startswith("decoder.")}
    assert same.state_dict().keys() == weights.keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in same.state_dict().items())  # with the same seed
    expected, given = whole.memory(texts()[0], LENGTHS), (texts()[0], LENGTHS)
    assert not torch.equal(other(*given), expected)
    save_weights(whole, tmp_path / "model.safetensors")
    for name, part in other.pretrained.items():
        load_weights(part, tmp_path / "model.safetensors", prefix=name)
    assert torch.equal(other(*given), expected)
