import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from retable.nn.bidirectional_lstm import BidirectionalLSTM

LENGTHS = torch.tensor([5, 1, 7, 3])


def test_packed_rows_of_torch_give_the_same():
    torch.manual_seed(0)
    layers, inputs = BidirectionalLSTM(6, 8, n_layers=2), torch.randn(4, 7, 6)
    packed = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)
    names = {f"{way}.{k}.": f"_l{k}{end}" for k in (0, 1) for way, end in (("forth", ""), ("back", "_reverse"))}
    weights = layers.state_dict()
    packed.load_state_dict(
        {
            kind + end: weights[f"{start}{kind}_l0"]
            for start, end in names.items()
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
    )
    rows = packed(pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False))[0]
    hidden, expected = layers(inputs, LENGTHS), pad_packed_sequence(rows, batch_first=True)[0]
    torch.testing.assert_close(hidden, expected)
    (hidden.square().sum() + expected.square().sum()).backward()
    for start, end in names.items():
        torch.testing.assert_close(
            layers.get_parameter(f"{start}weight_hh_l0").grad, packed.get_parameter(f"weight_hh{end}").grad
        )
