"""Test that products by oneDNN equal torch's, in layers and in the softmax, forward and backward."""

import copy
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from retable.nn import product as products
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob
from retable.nn.product import Linear, pays, product, use_faster_products

N, D, V = 9, 6, 11

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")


@pytest.fixture(autouse=True)
def taken(monkeypatch) -> list[tuple[int, int]]:
    """Use oneDNN for products of any size, on any CPU. Return the sizes of the matrices that oneDNN multiplied with."""
    shapes: list[tuple[int, int]] = []
    by_onednn = products._by_onednn

    def record(weight: torch.Tensor, *arguments: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(weight.shape))
        return by_onednn(weight, *arguments, **options)

    for name, value in {
        "ROWS": 1,
        "PRODUCTS": 1,
        "onednn_is_faster": lambda threads: True,
        "_by_onednn": record,
    }.items():
        monkeypatch.setattr(products, name, value)
    return shapes


def test_a_plain_a_transposed_and_a_packed_weight_give_the_same_bytes():
    for n, inputs, outputs in ((9, 6, 11), (300, 65, 33), (257, 419, 1000), (1024, 512, 512)):
        rows, weight, transposed = torch.randn(n, inputs), torch.randn(outputs, inputs), torch.randn(inputs, outputs).mT
        for each in (weight, transposed):
            packed = products.prepacked(each, n)
            assert torch.equal(product(rows, each), packed(rows))
            assert torch.equal(product(rows.mT.contiguous().mT, each), packed(rows))
    rows, same = torch.randn(300, 65), torch.randn(33, 1).expand(33, 65)  # the strides of a gradient of a sum
    torch.testing.assert_close(product(rows, same), rows @ same.mT, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(product(same, rows), same @ rows.mT, rtol=1e-4, atol=1e-4)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that sets the seconds per product of both libraries, and counts the measurements."""
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    counted = {"torch": 0, "onednn": 0}

    def takes(**seconds: float) -> dict[str, int]:
        now = 0.0

        def work(name: str):
            def multiplied(weight, rows):
                nonlocal now
                counted[name] += 1
                now += seconds[name] * (10 if counted[name] % 3 else 1)  # two of three times, other programs run

            return multiplied

        monkeypatch.setattr(products.time, "perf_counter", lambda: now)
        for name in seconds:
            monkeypatch.setattr(products, f"_by_{name}", work(name))
        products.onednn_is_faster.cache_clear()
        return counted

    yield takes
    products.onednn_is_faster.cache_clear()


def test_the_choice_is_measured_once_per_machine_and_number_of_threads(machine, tmp_path):
    counted = machine(torch=2.0, onednn=1.0)
    assert products.onednn_is_faster(1) and products.onednn_is_faster(1)
    assert counted == {"torch": 25, "onednn": 25}
    (kept,) = (tmp_path / "retable").iterdir()  # no temporary file is left
    assert json.loads(kept.read_text())["seconds"] == {"torch": 2.0, "onednn": 1.0}
    machine(torch=1.0, onednn=2.0)  # a second process on the same machine, under another load
    assert products.onednn_is_faster(1) and counted["torch"] == 25
    assert not products.onednn_is_faster(2) and counted["torch"] == 50
    assert len([*(tmp_path / "retable").iterdir()]) == 2


def test_a_close_choice_is_torchs(machine):
    machine(torch=1.2, onednn=1.0)
    assert not products.onednn_is_faster(1)


@pytest.mark.parametrize("content", ["", "[]", '{"threads": 1}'])
def test_a_damaged_file_is_measured_again(content, machine, tmp_path):
    machine(torch=2.0, onednn=1.0)
    products.onednn_is_faster(1)
    (kept,) = (tmp_path / "retable").iterdir()
    kept.write_text(content)
    assert machine(torch=2.0, onednn=1.0) and products.onednn_is_faster(1)
    assert json.loads(kept.read_text())["seconds"] == {"torch": 2.0, "onednn": 1.0}


def test_of_two_processes_the_first_one_decides(machine, tmp_path, monkeypatch):
    machine(torch=2.0, onednn=1.0)
    products.onednn_is_faster(1)
    (kept,) = (tmp_path / "retable").iterdir()
    first = kept.read_text()
    kept.unlink()
    measured = products._measured

    def late():
        kept.write_text(first)
        return measured()

    machine(torch=1.0, onednn=2.0)
    monkeypatch.setattr(products, "_measured", late)
    assert products.onednn_is_faster(1) and kept.read_text() == first


def test_without_a_cache_folder_each_process_measures(machine, tmp_path):
    (tmp_path / "retable").write_text("a file in place of the folder")
    machine(torch=2.0, onednn=1.0)
    assert products.onednn_is_faster(1)


def test_autocast_and_a_missing_home_folder_do_not_change_the_measurement(monkeypatch):
    monkeypatch.undo()
    casts = []
    monkeypatch.setattr(products, "_by_torch", lambda *_: casts.append(torch.is_autocast_enabled("cpu")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(products.os.path, "expanduser", lambda path: path)  # as without a home folder
    products.onednn_is_faster.cache_clear()
    with torch.autocast("cpu", torch.bfloat16):
        products.onednn_is_faster(1)
    products.onednn_is_faster.cache_clear()
    assert casts and not any(casts) and not Path("~").exists()


def test_a_file_system_without_hard_links_keeps_the_choice(machine, tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no hard links")

    monkeypatch.setattr(products.os, "link", refused)
    machine(torch=2.0, onednn=1.0)
    assert products.onednn_is_faster(1) and len([*(tmp_path / "retable").iterdir()]) == 1


def test_it_is_the_product_and_asks_for_no_gradient(taken):
    rows, weight = torch.randn(N, D), torch.randn(V, D)
    torch.testing.assert_close(product(rows, weight), rows @ weight.mT)
    torch.testing.assert_close(product(rows.mT.contiguous().mT, weight.mT.contiguous().mT), rows @ weight.mT)
    assert taken == [(V, D), (V, D)]
    weight.requires_grad_()
    assert not pays(rows, weight) and product(rows, weight).requires_grad
    assert not pays(rows.double(), weight.double()) and not pays(rows.bfloat16(), weight.bfloat16())


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(N, D), (3, 4, D), (D,)])
def test_a_layer_is_torchs_in_value_and_gradient(shape, bias, frozen, taken):
    theirs = nn.Linear(D, V, bias)
    theirs.weight.requires_grad_(not frozen)
    ours = nn.Sequential(copy.deepcopy(theirs))
    use_faster_products(ours)
    assert type(ours[0]) is Linear and list(ours.state_dict()) == [f"0.{name}" for name in theirs.state_dict()]
    inputs = torch.randn(shape, requires_grad=True)
    above = torch.randn(*shape[:-1], V)
    actual, expected = ours(inputs), theirs(inputs)
    torch.testing.assert_close(actual, expected)
    learnt = [inputs, *(p for p in theirs.parameters() if p.requires_grad)]
    own = [inputs, *(p for p in ours.parameters() if p.requires_grad)]
    torch.testing.assert_close(
        torch.autograd.grad(actual, own, above), torch.autograd.grad(expected, learnt, above), rtol=1e-5, atol=1e-5
    )
    assert len(taken) == (2 if frozen else 3)


def test_under_autocast_and_in_double_precision_it_is_torchs(taken):
    layer = Linear(D, V)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(N, D)).dtype == torch.bfloat16
    assert layer.double()(torch.randn(N, D).double()).dtype == torch.float64
    assert not taken


@pytest.mark.parametrize("logits", [1, 4 * V, 1 << 20])
@pytest.mark.parametrize("bias", [False, True])
def test_a_softmax_by_it(bias, logits, taken, monkeypatch):
    monkeypatch.setattr("retable.nn.cross_entropy.LOGITS", logits)
    hidden, weight = torch.randn(N, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    added, labels = torch.randn(V, requires_grad=True) if bias else None, torch.randint(V, (N,))
    learnt = [hidden, weight, *([added] if bias else [])]
    expected = F.cross_entropy(F.linear(hidden, weight, added), labels)
    loss = linear_cross_entropy(hidden, weight, added, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, learnt), torch.autograd.grad(expected, learnt), rtol=1e-5, atol=1e-6
    )
    assert taken
    with torch.no_grad():
        log_probs = linear_log_prob(hidden, weight, added, labels)
    torch.testing.assert_close(-log_probs.mean(), expected.detach())
