"""BERT, ELECTRA, T5 and translators, killed and resumed: masks, corruptions and draws come from the step alone."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from retable.data.corruption import BERTStyle, Corrupted, Prefix, RandomSpans
from retable.data.masking import MaskedDocuments
from retable.data.pairs import BucketedPairs
from retable.evaluation.held_out import MeanMetrics
from retable.models.bert import BERT
from retable.models.convolutional_encoder_decoder import ConvolutionalEncoderDecoder
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.t5 import T5, OneStackT5
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.objectives.text_to_text import TextToText
from retable.objectives.translation import Translation
from retable.training.curve import Point
from retable.training.fit import fit
from retable.training.optimizers import adamw
from retable.training.schedules import linear_decay
from tests.training.test_resume_models import CPU, DyingBatches, Killed, assert_same, weights

V, T = 30, 16
MARKS = {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
bert = partial(BERT, d_model=8, n_layers=1, n_heads=2, max_length=T, dropout=0.1)


def batches(seed: int = 1, **settings: Any) -> MaskedDocuments:
    rng = np.random.default_rng(0)
    documents = [
        [token for _ in range(5) for token in (*rng.integers(5, V, rng.integers(2, 7)), 1)] + [1] for _ in range(30)
    ]
    tokens, units = np.concatenate(documents), np.array([[len(document), 0, 0] for document in documents])
    words = ["w"] * V
    return MaskedDocuments(tokens, units, 1, MARKS, words, seed=seed, batch_size=4, length=T, **settings)


def corrupted(corruption: Any) -> Corrupted:
    tokens = np.random.default_rng(0).integers(7, V, 800)
    marks = MARKS | {"<extra_id_0>": 5, "<extra_id_1>": 6}
    return Corrupted(tokens, marks, 1, V, seed=1, corruption=corruption, batch_size=4, length=10)


def pairs() -> BucketedPairs:
    rng = np.random.default_rng(0)
    sources, targets = ([rng.integers(5, V, rng.integers(2, 9)).tolist() for _ in range(120)] for _ in range(2))
    return BucketedPairs(sources, targets, max_tokens=40, seed=1)


def masked_lm() -> tuple[nn.Module, Any]:
    return MaskedLM(bert(V), V, next_sentence=True), batches(next_sentence="next_sentence")


def electra() -> tuple[nn.Module, Any]:
    model = bert(V, pooler=False)
    return ReplacedTokenDetection(model, V, partial(bert, pooler=False)), batches(masked=1.0, random=0.0)


def t5() -> tuple[nn.Module, Any]:
    return TextToText(T5(V, 8, 1, 2, 16, dropout=0.1), V, tie=True), corrupted(RandomSpans(0.25, 2.0))


def t5_whole_text() -> tuple[nn.Module, Any]:
    return TextToText(T5(V, 8, 1, 2, 16, dropout=0.1), V, tie=False), corrupted(BERTStyle(0.15))


def prefix_lm() -> tuple[nn.Module, Any]:
    return PrefixLM(OneStackT5(V, 8, 1, 2, 16, dropout=0.1), V, tie=True), corrupted(Prefix())


def rnn_translation() -> tuple[nn.Module, Any]:
    model = RNNEncoderDecoder(V, 6, 8, 1, dropout=0.2, attention="additive", input_feeding=True)
    return Translation(model, V, 0.1, tie=False, bias=True), pairs()


def transformer_translation() -> tuple[nn.Module, Any]:
    return Translation(TransformerEncoderDecoder(V, 8, 1, 2, 16, T, dropout=0.2), V, 0.1, tie=True, bias=False), pairs()


def convolutional_translation() -> tuple[nn.Module, Any]:
    model = ConvolutionalEncoderDecoder(V, 8, 8, 1, 3, T, dropout=0.2)
    return Translation(model, V, 0.1, tie=True, bias=False), pairs()


SYSTEMS = [masked_lm, electra, t5, t5_whole_text, prefix_lm]
SYSTEMS += [rnn_translation, transformer_translation, convolutional_translation]


def run(objective: nn.Module, data: Any, scratch: Any) -> list[Point]:
    points, *_ = fit(
        objective, data, seed=1, epochs=0.5, optimizer=partial(adamw, lr=0.01, weight_decay=0.1),
        schedule=linear_decay, clip_norm=1.0, trainer=CPU, scratch=scratch, checkpoint_every=3, validations=4,
        validation=MeanMetrics(Few(data)), log=lambda points: None,
    )  # fmt: skip
    return points


class Few:
    """The first batches of others, to validate on."""

    steps_per_epoch = 2

    def __init__(self, batches: Any):
        self.batch = batches.batch


@pytest.mark.parametrize("make", SYSTEMS, ids=lambda make: make.__name__)
def test_killed_and_resumed_equals_uninterrupted(make, tmp_path):
    torch.manual_seed(0)
    objective, data = make()
    (tmp_path / "whole").mkdir()
    expected = run(objective, data, tmp_path / "whole")
    assert len(expected) > 10 and expected[-1].step > 5
    torch.manual_seed(0)
    killed, data = make()
    with pytest.raises(Killed):
        run(killed, DyingBatches(data, 5), tmp_path)
    torch.manual_seed(9)  # neither the first weights nor what the generator stands at may matter
    resumed, data = make()
    assert run(resumed, data, tmp_path) == expected
    assert_same(weights(resumed), weights(objective))


@pytest.mark.parametrize("kind", ["none", "next_sentence"])
def test_the_gradients_of_processes_average_to_that_of_one(kind):
    torch.manual_seed(0)
    objective = MaskedLM(bert(V, dropout=0.0), V, next_sentence=kind != "none")
    for parameter in objective.parameters():
        nn.init.normal_(parameter, std=0.3)
    data = batches(next_sentence=kind, masking="whole_word")

    step = next(step for step in range(20) if data.batch(step, 0, 2).share != 1)

    def gradients(rank: int, world: int) -> dict[str, torch.Tensor]:
        objective.zero_grad()
        objective.loss(data.batch(step, rank, world), None, step)[0].backward()
        return {name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None}

    whole, parts = gradients(0, 1), [gradients(rank, 2) for rank in range(2)]
    for name, gradient in whole.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, gradient, atol=1e-6, rtol=1e-4)
