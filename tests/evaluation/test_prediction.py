import numpy as np
import torch

from retable.data.examples import ExampleBatch, Inputs, encoded
from retable.evaluation.prediction import predict
from retable.models.bilstm import BiLSTM
from retable.objectives.classification import Classification


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
