import pytest
import torch

from retable.models.bilstm import BiLSTM

V, E, D = 11, 6, 8
LENGTHS = torch.tensor([5, 1, 7, 3])  # in no order


@pytest.fixture
def bilstm() -> BiLSTM:
    torch.manual_seed(0)
    return BiLSTM(V, E, D, n_layers=2, dropout=0.3).eval()


def test_equals_two_loops_over_cells(bilstm):
    ids = torch.randint(V, (1, 6))
    layer = bilstm.embedding(ids)[0]
    for number in range(2):
        halves = []
        for way, order in (("forth", 1), ("back", -1)):
            cell = torch.nn.LSTMCell(layer.shape[1], D // 2)
            lstm = getattr(bilstm.layers, way)[number]
            cell.load_state_dict({name: getattr(lstm, f"{name}_l0") for name in cell.state_dict()})
            outputs, state = [], None
            for x in list(layer)[::order]:
                state = cell(x[None], state)
                outputs.append(state[0][0])
            halves.append(torch.stack(outputs[::order]))
        layer = torch.cat(halves, dim=1)
    torch.testing.assert_close(bilstm(ids, torch.tensor([6]))[0], layer)
