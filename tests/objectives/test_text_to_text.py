import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.data.corruption import START, Corrupted, Prefix, RandomSpans
from retable.data.pairs import PairBatch
from retable.models.t5 import T5, OneStackT5
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.text_to_text import TextToText
from tests.models.t5_cases import KINDS, D, H, K, L, V, build, transformers_t5, widened
from tests.models.t5_cases import F as D_FF

LENGTHS, TARGET_LENGTHS = [6, 2, 4], [3, 5, 1]


def batch() -> PairBatch:
    """Random inputs and targets, padded."""
    generator = torch.Generator().manual_seed(1)

    def padded(lengths: list[int]) -> torch.Tensor:
        ids = torch.randint(2, V, (len(lengths), max(lengths)), generator=generator)
        return ids * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])

    labels = padded(TARGET_LENGTHS)
    before = F.pad(labels[:, :-1], (1, 0), value=START)
    return PairBatch(padded(LENGTHS), torch.tensor(LENGTHS), before, torch.tensor(TARGET_LENGTHS), labels)


def objective(kind: str) -> TextToText:
    if kind == "one stack":
        torch.manual_seed(0)
        model = widened(OneStackT5(V, D, L, H, D_FF, 0.1, d_head=K))
        return PrefixLM(model, V, tie=True).eval()
    return TextToText(build(kind), V, tie=kind == "v1.0").eval()


@pytest.fixture(params=[*KINDS, "one stack"])
def trained(request) -> TextToText:
    return objective(request.param)


def token_by_token(trained: TextToText, inputs: list[int], targets: list[int]) -> np.ndarray:
    """The log-probability of each target (float64), each from a text of its own without padding."""
    found = []
    for i, target in enumerate(targets):
        ids, before = torch.tensor([inputs]), torch.tensor([[START, *targets[:i]]])
        length = torch.tensor([len(inputs)])
        if isinstance(trained, PrefixLM):
            hidden, _ = trained.model(torch.cat([ids, before], dim=1), prefix=length)
        else:
            hidden = trained.model(ids, length, before)
        logits = trained.head.weight.double() @ hidden[0, -1].double()
        tied = trained.head.weight is trained.model.embedding.weight
        found.append((logits * (D**-0.5 if tied else 1)).log_softmax(dim=0)[target].item())
    return np.array(found)


@torch.no_grad()
def test_loss_accuracy_and_log_prob_are_those_of_the_targets_alone(trained):
    given = batch()
    expected = [
        token_by_token(trained, given.source_ids[row, :n].tolist(), given.labels[row, :m].tolist())
        for row, (n, m) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True))
    ]
    loss, metrics, state = trained.loss(given, None, step=0)
    assert loss.item() == pytest.approx(-np.concatenate(expected).mean(), abs=1e-5)
    assert metrics["loss"].item() == loss.item() and state is None
    log_prob = trained.log_prob(given)
    assert log_prob.dtype == torch.float32
    np.testing.assert_allclose(log_prob, [each.sum() for each in expected], atol=1e-4)
    hidden, labels = trained.predictions(given)
    right = ((hidden @ trained.head.weight.T).argmax(dim=1) == labels).float().mean()
    assert metrics["accuracy"] == right


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_logits_equal_transformers(kind):
    pytest.importorskip("transformers")
    trained, given = objective(kind), batch()
    theirs = transformers_t5(trained.model, kind, trained.head.weight)
    mask = torch.arange(max(LENGTHS)) < given.source_lengths[:, None]
    real = torch.arange(max(TARGET_LENGTHS)) < given.target_lengths[:, None]
    expected = theirs(given.source_ids, mask.long(), labels=given.labels.masked_fill(~real, -100))
    loss, _, _ = trained.loss(given, None, 0)
    assert abs(loss - expected.loss) < 1e-5
    hidden = trained.decoded(given)
    for row, place in real.nonzero().tolist():
        logits = trained.scores(hidden[row : row + 1, place])
        assert (logits[0] - expected.logits[row, place]).abs().max() < 1e-5
    loss.backward()
    expected.loss.backward()
    assert (trained.model.encoder.norm.weight.grad - theirs.encoder.final_layer_norm.weight.grad).abs().max() < 1e-5
    if kind == "v1.1":  # in v1.0 theirs is tied to a head that the test had to put apart
        assert (trained.model.embedding.weight.grad - theirs.shared.weight.grad).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["v1.0", "one stack"])
def test_the_first_loss_is_that_of_a_guess(kind):
    """With the weights that the models begin with, of which the softmax is the embedding, scaled."""
    torch.manual_seed(0)
    shape = (500, 64, 2, 4, 256, 0.0)
    trained = PrefixLM(OneStackT5(*shape), 500, True) if kind == "one stack" else TextToText(T5(*shape), 500, True)
    stream = np.random.default_rng(0).integers(1, 460, 2000)
    marks = {"</s>": 1} | {f"<extra_id_{i}>": 460 + i for i in range(40)}
    corrupted = Corrupted(stream, marks, 0, 500, 1, Prefix() if kind == "one stack" else RandomSpans(), 8, 32)
    loss, _, _ = trained.loss(corrupted.batch(0), None, 0)
    # Logits of variance 1 cost half a nat; so does that of the token just read, which the residual links hand on.
    assert np.log(500) < loss.item() < np.log(500) + 1.5
