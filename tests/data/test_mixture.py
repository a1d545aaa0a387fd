from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.masking import MaskedDocuments
from retable.data.mixture import BLOCK, MixedCorpora, Mixture, proportional
from retable.data.streams import CarriedStreams, JitteredStreams, OppositeStreams, ShuffledWindows
from retable.tokenizers.tokenizer import read_tokens


class Part:
    """Batches that consist of the name of their part and the step."""

    def __init__(self, name: str, steps_per_epoch: int = 10, tokens_per_step: int = 1):
        self.name, self.steps_per_epoch, self.tokens_per_step = name, steps_per_epoch, tokens_per_step

    def batch(self, step: int, rank: int = 0, world: int = 1) -> tuple[str, int]:
        return self.name, step


def mixture(rates=(0.5, 0.3, 0.2), seed: int = 1) -> Mixture:
    return Mixture([Part("a", 10, 4), Part("b", 20, 2), Part("c", 30, 10)], rates, seed)


def test_rates_by_hand():
    np.testing.assert_allclose(proportional([100, 300]), [0.25, 0.75])
    np.testing.assert_allclose(proportional([100, 300, 6000], limit=600), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(proportional([100, 900], temperature=2), [0.25, 0.75])
    np.testing.assert_allclose(proportional([100, 900], temperature=1e6), [0.5, 0.5], atol=1e-5)
    np.testing.assert_allclose(proportional([400, 10_000], limit=900, temperature=2), [0.4, 0.6])


def test_parts_come_as_often_as_their_rates_each_with_its_batches_in_order():
    n, rates = 4 * BLOCK, np.array([0.5, 0.3, 0.2])
    mixed, seen = mixture(), {"a": 0, "b": 0, "c": 0}
    for step in range(n):
        part, own_step = mixed.batch(step)
        assert own_step == seen[part]
        seen[part] += 1
    counts = np.array([*seen.values()])
    assert ((counts - n * rates) ** 2 / (n * rates)).sum() < 13.8  # chi-squared with 2 degrees of freedom, level 0.001
    assert mixed.steps_per_epoch == 60
    assert mixed.tokens_per_step == pytest.approx(0.5 * 4 + 0.3 * 2 + 0.2 * 10)
    without = mixture((1, 0, 3))
    assert {without.batch(step)[0] for step in range(200)} == {"a", "c"}


@pytest.mark.parametrize("rates", [(1, 2), (1, -1, 1), (0, 0, 0)], ids=str)
def test_rates_that_can_not_be(rates):
    with pytest.raises(UsageError, match="a mixture of 3 parts has rates"):
        mixture(rates)
    with pytest.raises(UsageError, match=r"temperature=0\.5"):
        proportional([1, 2], temperature=0.5)


@pytest.mark.parametrize("kind", [CarriedStreams, OppositeStreams, JitteredStreams])
def test_state_can_not_be_carried_through_a_mixture(kind):
    part = kind(np.arange(100), 2, 5, 1)
    with pytest.raises(UsageError, match=rf"the state that {kind.__name__} carries .*ShuffledWindows"):
        Mixture([part, part], [1, 1], seed=1)


VOCABULARY = 100  # tokens of corpus a are below 50, tokens of corpus b from 50 upwards


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory):
    """Return a folder of stage tokenize with corpora a and b in shards, and corpus c with another tokenizer."""
    folder = tmp_path_factory.mktemp("encode")
    for corpus, low, size in (("a", 0, 4000), ("b", 50, 1000), ("c", 0, 500)):
        (folder / corpus / "word").mkdir(parents=True)
        (folder / corpus / "word" / "tokenizer.json").write_text("c" if corpus == "c" else "ab")
        for split, n in (("train", size), ("validation", 300)):
            ids = np.random.default_rng(low + n).integers(low + 5, low + 50, n).astype("<u2")
            np.save(folder / corpus / "word" / f"{split}.units.npy", np.array([[n, n, n]]))
            parts = np.split(ids, [n // 3]) if corpus == "b" else [ids]
            names = [f"{split}-{i}.bin" for i in (0, 1)] if corpus == "b" else [f"{split}.bin"]
            for part, name in zip(parts, names, strict=True):
                part.tofile(folder / corpus / "word" / name)
    return folder


def mixed(tokenized, corpora, split: str = "train", kind=ShuffledWindows, own: str = "a", **settings) -> MixedCorpora:
    tokens = read_tokens(tokenized / own / "word" / f"{split}.bin", VOCABULARY)
    facts = {"line_end": 4, "marks": {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2}, "words": ["w"] * VOCABULARY,
             "vocab_size": VOCABULARY, "seed": 1}  # fmt: skip
    return MixedCorpora(
        tokens, **facts, kind=partial(kind), corpora=corpora, **{"batch_size": 4, "length": 10} | settings
    )


WEIGHTS = {"a/word": 0.3, "b/word": 0.7}


def test_corpora_come_by_their_weights_each_with_the_batches_that_it_has_alone(tokenized):
    batches, n = mixed(tokenized, WEIGHTS), 600
    parts = [np.fromfile(tokenized / "a/word/train.bin", "<u2"),
             np.concatenate([np.fromfile(tokenized / f"b/word/train-{i}.bin", "<u2") for i in (0, 1)])]  # fmt: skip
    alone = [ShuffledWindows(part, 4, 10, 1) for part in parts]
    assert batches.steps_per_epoch == sum(part.steps_per_epoch for part in alone)
    steps = [0, 0]
    for step in range(n):
        batch = batches.batch(step)
        which = int(batch.input_ids[0, 0] >= 50)
        assert torch.equal(batch.input_ids, alone[which].batch(steps[which]).input_ids)
        steps[which] += 1
    assert (steps[1] - 0.7 * n) ** 2 / (0.21 * n) < 10.8  # chi-squared with 1 degree of freedom, level 0.001


def test_validation_is_mixed_too_and_the_files_are_named(tokenized):
    batches = mixed(tokenized, WEIGHTS, "validation")
    assert {path.name for path in batches.inputs} == {"validation.bin", "validation-0.bin", "validation-1.bin"}
    assert batches.steps_per_epoch == 2 * ((299 // 10 - 1) // 4)


def test_a_list_of_corpora_is_mixed_by_temperature(tokenized):
    sizes = [mixed(tokenized, [name]).steps_per_epoch for name in WEIGHTS]
    for temperature in (1, 3):
        batches = mixed(tokenized, list(WEIGHTS), temperature=temperature)
        np.testing.assert_allclose(batches._rates, proportional(sizes, temperature=temperature))


def test_masked_batches_of_corpora(tokenized):
    lines = np.fromfile(tokenized / "a/word/train.bin", "<u2")
    lines[::7] = 4
    lines.tofile(tokenized / "a/word/train.bin")
    batches = mixed(tokenized, {"a/word": 1}, kind=MaskedDocuments)
    assert {path.name for path in batches.inputs} == {"train.bin", "train.units.npy"}
    assert batches.batch(0).input_ids.shape == (4, 10)


@pytest.mark.parametrize(("corpora", "settings", "message"), [
    ({"a/word": 1, "c/word": 1}, {}, r"c/word has a different tokenizer from .*a/word; .*path=.*a/word/tokenizer.json"),
    ({"a/word": 1, "d/word": 1}, {}, "d/word/tokenizer.json is missing"),
    ({"a/word": 1, "b/word": -1}, {}, "rates"),
    ({"a/word": 1, "b/word": "much"}, {}, "weights of a mixture must be numbers"),
    (WEIGHTS, {"temperature": 2}, "temperature has no effect if batches.corpora has weights"),
    (list(WEIGHTS), {"temperature": 0.5}, "temperature=0.5 is out of range"),
    ({}, {}, "batches.corpora is empty"),
    (WEIGHTS, {"kind": CarriedStreams}, "CarriedStreams"),
    (WEIGHTS, {"batch_size": 100}, "1000 tokens are too few for a batch of 100"),
], ids=str)  # fmt: skip
def test_mixtures_of_corpora_that_can_not_be(tokenized, corpora, settings, message):
    with pytest.raises(UsageError, match=message):
        mixed(tokenized, corpora, **settings)
