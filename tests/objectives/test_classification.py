import pytest
import torch
from torch import Tensor, nn

from retable.data.examples import ExampleBatch
from retable.models.bag_of_words import DeepAveraging
from retable.models.bilstm import BiLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.classification import Classification

V, D, N_LABELS = 11, 8, 3
LENGTHS = torch.tensor([3, 7, 1])


def classification(name: str) -> Classification:
    torch.manual_seed(0)
    model = {
        "bilstm": lambda: BiLSTM(V, 6, D, 1, 0.0),
        "lstm": lambda: LSTM(V, D, 1, 0.0, init_range=0.5),
        "deep_averaging": lambda: DeepAveraging(V, D, 2, 0.0),
        "gpt": lambda: GPT(V, D, 2, 2, max_length=7, dropout=0.0),
    }[name]()
    return Classification(model, N_LABELS, dropout=0.0)


def batch() -> ExampleBatch:
    input_ids = torch.randint(V, (3, 7), generator=torch.Generator().manual_seed(1))
    return ExampleBatch(input_ids, LENGTHS, torch.tensor([0, 2, 1]))


class Given(nn.Module):
    """A backbone of width 2 that gives fixed hidden states."""

    d_model = 2

    def __init__(self, direction: str):
        super().__init__()
        self.direction = direction
        self.hidden = torch.tensor([[[-3.0, 1.0], [-1.0, -4.0], [0.0, 0.0]]])  # the third position is padding

    def initialise(self, module: nn.Module) -> None:
        nn.init.eye_(module.weight)
        nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, lengths: Tensor | None = None) -> Tensor | tuple[Tensor, None]:
        if self.direction == "none":
            return self.hidden[:, 1]
        return self.hidden if self.direction == "both" else (self.hidden, None)


@pytest.mark.parametrize(
    ("direction", "summary"),
    [("both", [-1.0, 1.0]), ("left-to-right", [-1.0, -4.0]), ("none", [-1.0, -4.0])],
)
def test_summary_is_the_maximum_over_time_the_last_position_or_the_models_own(direction, summary):
    objective = Classification(Given(direction), n_labels=2, dropout=0.0)
    given = ExampleBatch(torch.zeros(1, 3, dtype=torch.long), torch.tensor([2]), torch.tensor([0]))
    assert objective(given).tolist() == [summary]


@pytest.mark.parametrize("name", ["bilstm", "lstm", "deep_averaging", "gpt"])
def test_padding_changes_nothing(name):
    objective, (input_ids, lengths, labels) = classification(name).eval(), batch()
    logits = objective(batch())
    for row, length in enumerate(lengths):
        alone = ExampleBatch(input_ids[row : row + 1, :length], lengths[row : row + 1], labels[row : row + 1])
        torch.testing.assert_close(objective(alone)[0], logits[row])


@pytest.mark.parametrize("name", ["bilstm", "lstm", "deep_averaging", "gpt"])
def test_loss_is_the_mean_cross_entropy_and_reaches_every_parameter(name):
    objective, (_, _, labels) = classification(name), batch()
    loss, metrics, state = objective.loss(batch(), None, step=0)
    expected = -objective(batch()).softmax(dim=1)[range(3), labels].log().mean()
    torch.testing.assert_close(loss, expected)
    assert metrics == {"loss": loss.detach()} and state is None
    loss.backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in objective.named_parameters()}
    assert all(reached.values()), reached
