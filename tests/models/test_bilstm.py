import torch

from tests.contracts.model_cases import IDS, LENGTHS, D, T, build


def test_equals_two_loops_over_cells():
    bilstm = build("bilstm")
    layer = bilstm.embedding(IDS[2])
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
    assert LENGTHS[2] == T
    torch.testing.assert_close(bilstm(IDS, LENGTHS)[2], layer)
