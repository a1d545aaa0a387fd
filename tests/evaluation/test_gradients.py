from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.stats import linregress
from torch import nn

from retable.core.errors import UsageError
from retable.data.encode import write_tokens
from retable.data.streams import CarriedStreams
from retable.evaluation.gradients import Gradients, by_distance, total_norms
from retable.models.base import LeftToRight
from retable.models.bert import BERT
from retable.models.gated_convolution import GatedConvolution
from retable.models.gpt import GPT
from retable.models.recurrent import GRU, LSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.max_entropy_lm import MaxEntropyLM
from retable.objectives.noise_contrastive import NoiseContrastive
from retable.tokenizers import word

V, D = 7, 6


class Linear(LeftToRight):
    """h_t = λ h_{t−1} + x_t: the gradient at distance k is λ^k times that at distance 0."""

    def __init__(self, decay: float):
        super().__init__()
        self.decay, self.d_model = decay, D
        self.embedding = nn.Embedding(V, D)

    def initialise(self, module):
        pass

    def forward(self, input_ids, state=None):
        state = 0 if state is None else state[0]
        hidden = []
        for embedded in self.embedding(input_ids).unbind(1):
            state = self.decay * state + embedded
            hidden.append(state)
        return torch.stack(hidden, 1), state[None]


def objective_of(model) -> CausalLM:
    return CausalLM(model, V, tie=False, bias=True, reduction="mean").eval()


def windows_of(n: int, length: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, V, (n, length)))


@pytest.mark.parametrize("decay", [0.5, 0.01, 1.1])
def test_a_linear_network_fades_by_its_own_factor(decay):
    torch.manual_seed(0)
    norms = by_distance(objective_of(Linear(decay)), windows_of(5, 18), 12)
    assert norms.shape == (5, 13)
    # the last gradients are 1e-24 of the first; fp32 cannot represent their squares
    np.testing.assert_allclose(norms / norms[:, :1], np.tile(decay ** np.arange(13.0), (5, 1)), rtol=1e-4)


@pytest.mark.parametrize(
    "model",
    [lambda: LSTM(V, D, 2, 0.0, 0.7), lambda: GRU(V, D, 1, 0.0, 0.7), lambda: GPT(V, D, 1, 2, 9, 0.0)],
    ids=["lstm", "gru", "gpt"],
)
def test_distances_by_finite_differences(model):
    """In float64, for each window: change the vector of one input a little, and measure the change of the loss."""
    torch.manual_seed(0)
    objective = objective_of(model()).double()
    windows = windows_of(3, 8)
    norms = by_distance(objective, windows, 6)
    table = objective.model.embedding.weight.detach()

    def loss(row: int, place: int, step: torch.Tensor) -> float:
        vectors = table[windows[row, :-1]].clone()
        vectors[place] += step
        hook = objective.model.embedding.register_forward_hook(lambda *_: vectors[None])
        logits = objective.head(objective.model(windows[row : row + 1, :-1])[0][0, -1])
        hook.remove()
        return -logits.log_softmax(0)[windows[row, -1]].item()

    for row in range(3):
        for k in range(7):
            steps = 1e-4 * torch.eye(D, dtype=torch.float64)
            slopes = [(loss(row, 6 - k, step) - loss(row, 6 - k, -step)) / 2e-4 for step in steps]
            assert norms[row, k] == pytest.approx(np.linalg.norm(slopes), rel=1e-5)


def test_the_loss_is_that_of_the_whole_distribution():
    torch.manual_seed(0)
    with_n_grams = MaxEntropyLM(GRU(V, D, 1, 0.0, 0.7), V, False, True, "mean", order=2, table_size=64)
    nn.init.normal_(with_n_grams.features.weight)
    contrasted = NoiseContrastive(GRU(V, D, 1, 0.0, 0.7), V, False, True, "mean", 3, 0.75, learn_normaliser=False)
    windows = windows_of(3, 8)
    for objective in (with_n_grams.eval(), contrasted.eval()):
        cut: list[torch.Tensor] = []
        hook = objective.model.embedding.register_forward_hook(
            lambda *arguments, cut=cut: cut.append(arguments[2].detach().requires_grad_()) or cut[-1]
        )
        log_probs, _ = objective.log_prob(windows[:, :-1], windows[:, 1:])
        hook.remove()
        (slopes,) = torch.autograd.grad(log_probs[:, -1].sum(), cut)
        np.testing.assert_allclose(by_distance(objective, windows, 6), slopes.norm(dim=2).flip(1)[:, :7], rtol=1e-4)


def test_the_norm_of_a_batch_is_that_of_its_backward_pass():
    torch.manual_seed(0)
    objective = objective_of(LSTM(V, D, 1, 0.0, 0.7))
    tokens = np.random.default_rng(1).integers(0, V, 200).astype("<u2")
    batches = CarriedStreams(tokens, 4, 5)
    norms = total_norms(objective, [batches.batch(step) for step in range(3)])
    assert all(weight.grad is None for weight in objective.parameters())
    state = None
    for step in range(3):
        objective.zero_grad()
        loss, _, state = objective.loss(batches.batch(step), state, step)
        loss.backward()
        state = tuple(part.detach() for part in state)
        squares = sum(float(weight.grad.double().square().sum()) for weight in objective.parameters())
        assert norms[step] == pytest.approx(squares**0.5, rel=1e-5)


@pytest.fixture
def folder(tmp_path):
    tokenizer = word.train(["a b c d e"])  # V includes <unk> and <eos>
    tokenizer.save(tmp_path / "tokenizer.json")
    lines = ["".join(rng.choice(list("abcde "), 30)) for rng in [np.random.default_rng(2)] for _ in range(20)]
    for split in ("train", "test"):
        write_tokens(tokenizer, [[" ".join(line.replace(" ", ""))] for line in lines], False, tmp_path / split)
    return tmp_path


def test_what_a_convolution_reaches_is_its_receptive_field(folder):
    torch.manual_seed(1)
    model = GatedConvolution(V, 8, [[[3, 8]], [[4, 8], [2, 8]]], 0.0)
    objective = CausalLM(model, V, tie=True, bias=True, reduction="mean")
    batches = partial(CarriedStreams, batch_size=4, length=5)
    metrics = Gradients(str(folder), batches, "test", 12, 20, 9, 2)(SimpleNamespace(objective=objective), folder)
    assert metrics["gradients/reach"] == 2 + 3 + 1 + 1


def test_what_can_not_be_measured_is_refused(folder):
    batches = partial(CarriedStreams, batch_size=4, length=5)
    with pytest.raises(UsageError, match=r"length=6 must be above \.distances=6"):
        Gradients(str(folder), batches, distances=6, length=6)
    model = Linear(0.8)
    model.embedding = nn.EmbeddingBag(V, D)
    with pytest.raises(UsageError, match="Linear has no layer of word vectors"):
        by_distance(objective_of(model), windows_of(2, 8), 3)
    masked = MaskedLM(BERT(V, D, 1, 2, 9, 0.0), V, next_sentence=False)
    for objective, length, said in (
        (masked, 65, "MaskedLM is not a left-to-right language model; .*recipe=recurrent/lstm"),
        (objective_of(Linear(0.0)), 65, "Linear sees 0 words before the last"),
        (objective_of(Linear(0.8)), 10**6, r"lower benchmark\.gradients\.length"),
    ):
        with pytest.raises(UsageError, match=said):
            Gradients(str(folder), batches, length=length)(SimpleNamespace(objective=objective), folder)


def test_the_numbers_of_the_benchmark_are_those_of_its_files(folder):
    torch.manual_seed(0)
    batches = partial(CarriedStreams, batch_size=4, length=5)
    system = SimpleNamespace(objective=objective_of(GRU(V, D, 1, 0.0, 0.7)))
    benchmark = Gradients(str(folder), batches, "test", 6, 10, windows=9, n_batches=8, clip_norm=1)
    metrics, table = benchmark(system, folder), pd.read_csv(folder / "gradients.csv")
    np.testing.assert_allclose(table["relative"], table["norm"] / table["norm"][0], rtol=1e-4)
    table = table[1:]
    line = linregress(table["distance"], np.log(table["norm"]))
    assert metrics["gradients/r2"] == pytest.approx(line.rvalue**2, rel=1e-3)
    error = stats.t.ppf(0.975, len(table) - 2) * line.stderr
    for name, slope in (("", line.slope), ("_low", line.slope - error), ("_high", line.slope + error)):
        assert metrics[f"gradients/factor{name}"] == pytest.approx(np.exp(slope), rel=1e-3)
    steps = pd.read_csv(folder / "gradient_norms.csv")
    np.testing.assert_allclose(steps["clipped"], steps["norm"].clip(upper=1), rtol=1e-5)
    norms = steps["norm"]
    assert len(norms) == 8 and metrics["gradients/clipped"] == (norms > 1).mean()
    found = [metrics[f"gradients/norm_{name}"] for name in ("median", "90", "max")]
    assert found == pytest.approx([*norms.quantile([0.5, 0.9, 1])], rel=1e-4)
