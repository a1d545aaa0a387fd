"""Test features of attention that no peer has; models compared with transformers and torch test the rest."""

import torch

from retable.nn.attention import padding_mask, padding_mask_if_any


def test_rows_without_padding_have_no_mask():
    assert padding_mask_if_any(torch.tensor([3, 3]), 3) is None
    for lengths, length in (([3, 2], 3), ([3, 3], 4)):
        mask = padding_mask_if_any(torch.tensor(lengths), length)
        assert mask is not None and torch.equal(mask, padding_mask(torch.tensor(lengths), length))
