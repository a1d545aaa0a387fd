"""Test that both sides of the fine-tuning benchmark use the same examples, and with the same weights predict the same
labels.
"""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from benchmarks import finetuning
from benchmarks.finetuning import MAX_LENGTH, PAD, measure, ours, padded, sst2, theirs
from retable.exchange.families import weights_in_transformers


@pytest.fixture
def splits(tmp_path):
    generator = np.random.default_rng(0)
    for split, n in (("train", 40), ("dev", 30)):
        rows = [" ".join(generator.choice(list("abcdefgh"), generator.integers(1, 12))) for _ in range(n)]
        lines = ["sentence\tlabel", *(f"{row}\t{i % 2}" for i, row in enumerate(rows))]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sst2(tmp_path)


def test_rows_are_padded_as_said():
    batch = padded([[1, 5, 2], [1, 5, 6, 7, 2]], longest=True)
    assert batch["input_ids"].tolist() == [[1, 5, 2, PAD, PAD], [1, 5, 6, 7, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert padded([[1, 5, 2]], longest=False)["input_ids"].shape == (1, MAX_LENGTH)


def test_with_the_same_weights_both_predict_the_same(splits):
    examples, vocab_size = splits
    torch.manual_seed(0)
    mine, other = ours(examples["train"], vocab_size, 8), theirs(examples["train"], vocab_size, 8, longest=False)
    with torch.no_grad():
        for weight in mine.module.parameters():
            weight.mul_(5.0)  # larger weights, so that predictions differ between examples
    assert not other.module.load_state_dict(weights_in_transformers(mine.module), strict=False).unexpected_keys
    mine.module.eval(), other.module.eval()
    dev = examples["dev"].inputs
    found = mine.predict(dev)
    assert set(found) == {0, 1}
    assert found == other.predict(dev)


def test_speeds_are_of_whole_batches(splits, monkeypatch):
    examples, vocab_size = splits
    monkeypatch.setattr(finetuning, "times", lambda running, n: [next(running) or 0.5 for _ in range(n)])
    sides = [ours(examples["train"], vocab_size, 8), theirs(examples["train"], vocab_size, 8, longest=True)]
    found = measure(sides, examples["dev"].inputs, "fp32", rounds=1, n_steps=5)
    assert [training for training, _ in found] == [16.0, 16.0]  # examples per second: batches of 8 in half a second
