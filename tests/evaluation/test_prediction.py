import numpy as np
import pytest
import torch

from retable.data.examples import ExampleBatch, Inputs, encoded
from retable.evaluation.prediction import predict
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.objectives.classification import Classification
from retable.objectives.regression import Regression


def test_predictions_are_each_sequences_best_label_in_order():
    torch.manual_seed(0)
    objective = Classification(BiLSTM(11, 6, 8, 1, 0.0), n_labels=4, dropout=0.0).eval()
    torch.nn.init.zeros_(objective.head.bias)
    lengths = np.random.default_rng(0).integers(1, 9, 50)
    sequences = [torch.randint(11, (length,)).tolist() for length in lengths]
    expected = [
        int(objective(ExampleBatch(torch.tensor([s]), torch.tensor([len(s)]), torch.tensor([0]))).argmax())
        for s in sequences
    ]
    assert len(set(expected)) > 1
    for batch_size in (1, 7, 256):
        assert predict(objective, encoded(Inputs(sequences), [0] * 50), batch_size) == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_outputs_are_those_of_the_model_alone_on_each_sequence(precision):
    """A BERT, whose layers are packed, and whose last layer computes only the first state."""
    torch.manual_seed(0)
    model = BERT(11, 16, 3, 2, max_length=9, dropout=0.1, initializer_range=0.3)
    objective = Regression(model, low=0.0, high=5.0, dropout=0.1).eval()
    sequences = [torch.randint(11, (length,)).tolist() for length in (5, 1, 9, 5, 3)]
    tolerance = 1e-4 if precision == "fp32" else 0.1
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        found = predict(objective, encoded(Inputs(sequences), [0.0] * 5), 2)
    with torch.no_grad():
        states = [objective.model(torch.tensor([sequence])) for sequence in sequences]
        expected = [5 * objective.head(objective.model.pool(each)).item() for each in states]
    assert found == pytest.approx(expected, abs=tolerance)
    assert max(found) - min(found) > 0.3
