import pytest
import torch
import torch.nn.functional as F

from retable.nn import cross_entropy, fused
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob, logits_of, row_chunks

N, D, V = 23, 6, 11
# Numbers of logits computed at a time: one row, four rows (three in the last part), or all rows.
PARTS = {V - 1: [1] * N, 4 * V + 3: [4, 4, 4, 4, 4, 3], 1 << 22: [N]}


@pytest.fixture(params=PARTS)
def parts(request, monkeypatch) -> list[int]:
    monkeypatch.setattr(cross_entropy, "LOGITS", request.param)
    return PARTS[request.param]


@pytest.fixture(params=[None, 4 * cross_entropy.ALIGNED, 1 << 27])
def way(request, monkeypatch) -> None:
    """Test the way of CPUs, and that of GPUs with parts of four rows and with one part, which also runs on a CPU."""
    if request.param is not None:
        monkeypatch.setattr(cross_entropy, "_LinearCrossEntropy", cross_entropy._LinearCrossEntropyOnGPU)
        monkeypatch.setattr(cross_entropy, "SLOPES_ON_GPU", request.param)


def inputs(bias: bool, dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor | None], torch.Tensor]:
    torch.manual_seed(0)
    tensors = [2 * torch.randn(N, D), torch.randn(V, D), torch.randn(V) if bias else None]
    return [None if t is None else t.to(dtype).requires_grad_() for t in tensors], torch.randint(V, (N,))


def gradients(loss: torch.Tensor, tensors: list[torch.Tensor | None]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, [t for t in tensors if t is not None]))


@pytest.mark.filterwarnings("error:Implicit dimension choice")  # torch guesses the dimension if none is given
@pytest.mark.parametrize(("bias", "dtype"), [(False, torch.float32), (True, torch.float32), (True, torch.float64)])
def test_value_and_gradients_are_those_of_the_cross_entropy_of_all_logits(bias, dtype, parts, way):
    tensors, labels = inputs(bias, dtype)
    assert [len(range(N)[rows]) for rows in row_chunks(tensors[0], V)] == parts
    loss = linear_cross_entropy(*tensors, labels)
    expected = F.cross_entropy(F.linear(*tensors), labels)
    assert loss.dtype == torch.float32  # the loss is summed in fp32, whatever the type of the weights
    torch.testing.assert_close(loss.to(dtype), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients(3 * loss, tensors), gradients(3 * expected, tensors), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("aligned", [1, 4, cross_entropy.ALIGNED])
def test_all_logits_at_once_give_the_same_value_and_gradients_without_ignored_labels(bias, aligned):
    """The vocabulary of 11 words is padded to 12 or 64 on GPUs; padding has no probability and no gradient."""
    tensors, labels = inputs(bias)
    real = torch.rand(N) < 0.7
    loss = cross_entropy._at_once(*tensors, labels.where(real, cross_entropy.IGNORED), aligned)
    expected = linear_cross_entropy(tensors[0][real], *tensors[1:], labels[real])
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients(loss, tensors), gradients(expected, tensors), rtol=1e-5, atol=1e-6)


def test_logits_fit_up_to_a_share_of_the_memory(monkeypatch):
    monkeypatch.setattr(cross_entropy, "_bytes_of_memory", lambda kind: 16 * 1000)
    for dtype, most in ((torch.float32, 5), (torch.bfloat16, 10)):  # tokens with 50 logits each in 1000 bytes
        fits = [cross_entropy.fit_in_memory(torch.empty(n, D, dtype=dtype), 50) for n in (most, most + 1)]
        assert fits == [True, False]


def test_where_nothing_learns_no_gradient_is_made(way, monkeypatch):
    """This saves two thirds of a validation's time, and memory of the table's size."""
    tensors, labels = inputs(bias=True)
    expected = linear_cross_entropy(*tensors, labels).detach()
    made = []
    for name in ("empty_like", "zeros_like"):
        own = getattr(torch, name)
        monkeypatch.setattr(cross_entropy.torch, name, lambda *a, own=own, **k: made.append(a[0].shape) or own(*a, **k))
    for nothing in (torch.no_grad(), torch.inference_mode()):
        with nothing:
            torch.testing.assert_close(linear_cross_entropy(*tensors, labels), expected)
    assert made == []
    linear_cross_entropy(*tensors, labels)
    assert (V, D) in made


def test_weights_of_both_ends_get_the_gradients_of_both(way):
    table, labels = torch.randn(V, D, requires_grad=True), torch.randint(V, (N,))
    ids = torch.randint(V, (N,))
    ours = gradients(linear_cross_entropy(F.embedding(ids, table), table, None, labels), [table])
    theirs = gradients(F.cross_entropy(F.embedding(ids, table) @ table.mT, labels), [table])
    torch.testing.assert_close(ours, theirs)


def test_frozen_weights_let_the_gradient_through(way):
    (hidden, weight, bias), labels = inputs(bias=True)
    expected = gradients(linear_cross_entropy(hidden, weight, bias, labels), [hidden])
    loss = linear_cross_entropy(hidden, weight.detach(), bias.detach(), labels)
    torch.testing.assert_close(gradients(loss, [hidden]), expected)
    assert not linear_cross_entropy(hidden.detach(), weight.detach(), None, labels).requires_grad


@pytest.mark.parametrize(("bias", "waiting", "compiled"), [(False, 1, True), (True, 7, False), (True, N, True)])
def test_under_autocast_products_are_rounded_and_sums_are_not(bias, waiting, compiled, parts, way, monkeypatch):
    """This holds for any number of rows per product, and for both ways to sum."""
    monkeypatch.setattr(cross_entropy, "SLOPES", waiting * V)
    if not compiled:
        monkeypatch.setattr(fused, "COMPILED", None)
    tensors, labels = inputs(bias)
    expected = F.cross_entropy(F.linear(*tensors), labels)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(*tensors, labels)
    assert loss.dtype == torch.float32
    assert 0 < abs(loss - expected) < 0.02 * expected
    for ours, theirs, tensor in zip(
        gradients(loss, tensors), gradients(expected, tensors), (t for t in tensors if t is not None), strict=True
    ):
        assert ours.dtype == tensor.dtype
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_large_logits_do_not_overflow(parts, way):
    tensors, labels = inputs(bias=True)
    with torch.no_grad():
        tensors[0] *= 1000
    loss = linear_cross_entropy(*tensors, labels)
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(*tensors), labels))
    assert all(gradient.isfinite().all() for gradient in gradients(loss, tensors))


@pytest.mark.parametrize("bias", [False, True])
def test_log_probabilities_of_the_labels(bias, parts):
    (hidden, weight, b), labels = inputs(bias)
    expected = F.linear(hidden, weight, b).log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(linear_log_prob(hidden, weight, b, labels), expected)
    half = linear_log_prob(hidden.bfloat16(), weight, b, labels)
    assert half.dtype == torch.float32 and (half - expected).abs().max() < 0.3


def test_logits_change_nothing_in_place():
    (hidden, weight, bias), _ = inputs(bias=True)
    before = [t.detach().clone() for t in (hidden, weight, bias)]
    first = logits_of(hidden.detach(), weight.detach(), bias.detach())
    torch.testing.assert_close(logits_of(hidden.detach(), weight.detach(), bias.detach()), first)
    assert all(torch.equal(t, b) for t, b in zip((hidden, weight, bias), before, strict=True))
