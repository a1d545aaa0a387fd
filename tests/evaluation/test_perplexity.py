import csv

import numpy as np
import pytest

from retable.data.encode import write_tokens
from retable.evaluation.perplexity import Perplexity
from retable.tokenizers import word
from tests.evaluation.given import Costs

UNITS = {"validation": [["a b", "é"], ["c"]], "test": [["b"], ["a a a"], ["c"]]}


def test_scores_are_the_sums_over_each_unit(tmp_path):
    tokenizer = word.train(["a b c é"])  # ids: <unk> 0, <eos> 1, a 2, b 3, c 4, é 5
    tokenizer.save((tokens := tmp_path) / "tokenizer.json")
    for split, units in UNITS.items():
        write_tokens(tokenizer, units, True, tokens / split)
    metrics = Perplexity(str(tokens), splits=["validation", "test"])(Costs(lambda tokens: tokens + 0.5), tokens)
    with (tokens / "units.csv").open(encoding="utf-8") as file:
        rows = [*csv.reader(file)]
    assert rows == [
        ["split", "unit", "nats", "tokens", "words", "bytes", "lost"],
        ["validation", "0", "16.000000", "6", "6", "8", "0"], ["validation", "1", "7.500000", "3", "3", "3", "0"],
        ["test", "0", "6.500000", "3", "3", "3", "0"], ["test", "1", "10.500000", "5", "5", "7", "0"],
        ["test", "2", "7.500000", "3", "3", "3", "0"],
    ]  # fmt: skip
    assert metrics["test/nats"] == pytest.approx(24.5)
    assert metrics["test/perplexity_word"] == pytest.approx(np.exp(24.5 / 11))
    assert metrics["validation/bits_per_byte"] == pytest.approx(23.5 / 11 / np.log(2))
    names = ("nats", "tokens", "words", "bytes", "perplexity_token", "perplexity_word", "bits_per_byte")
    assert metrics.keys() == {f"{split}/{name}" for split in UNITS for name in names}
    inputs = [path.name for path in Perplexity(str(tokens), ["test"]).inputs]
    assert sorted(inputs) == ["test.bin", "test.units.npy", "tokenizer.json"]
