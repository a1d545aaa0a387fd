import torch

from retable.data.examples import ExampleBatch
from retable.models.bag_of_words import BagOfWords
from retable.models.bilstm import BiLSTM
from retable.objectives.regression import Regression

V, D = 9, 8
BATCH = ExampleBatch(
    torch.tensor([[3, 1, 3], [2, 5, 0]]), torch.tensor([3, 2]), torch.tensor([4.0, 1.5]),
    other_ids=torch.tensor([[4, 4], [1, 0]]), other_lengths=torch.tensor([2, 1]),
)  # fmt: skip


def regression(dropout: float = 0.0) -> Regression:
    torch.manual_seed(0)
    return Regression(BiLSTM(V, 6, D, 1, dropout), 1.0, 5.0, dropout, pairs=True).eval()


def test_the_loss_is_the_squared_error_of_scores_from_0_to_1():
    objective = regression()
    scores = objective(BATCH)
    assert scores.shape == (2,)
    expected = (((scores - 1) / 4 - torch.tensor([0.75, 0.125])) ** 2).mean()
    loss, metrics, state = objective.loss(BATCH._replace(weight=0.5), None, 0)
    torch.testing.assert_close(loss, 0.5 * expected)
    assert metrics == {"loss": loss.detach()} and state is None
    assert objective.predict(BATCH).tolist() == scores.tolist()


def test_from_nothing_the_lowest_score_is_predicted():
    assert Regression(BagOfWords(V, 0.0), 1, 5, 0.0, pairs=True)(BATCH).tolist() == [1.0, 1.0]
