from functools import partial

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from retable.data.masking import MaskedBatch
from retable.models.bert import BERT
from retable.objectives.replaced_token_detection import ReplacedTokenDetection

V, D, E, B, T = 23, 16, 12, 3, 9
MASK = 5


def small(**changes):
    settings = {"d_model": 8, "n_layers": 2, "n_heads": 2, "max_length": T, "dropout": 0.0, "d_embedding": E}
    return partial(BERT, **(settings | {"pooler": False} | changes))


def build(std: float = 0.3) -> ReplacedTokenDetection:
    torch.manual_seed(0)
    model = BERT(V, D, 2, 4, T, 0.0, d_embedding=E, pooler=False)
    objective = ReplacedTokenDetection(model, V, small()).eval()
    for name, parameter in objective.named_parameters():
        nn.init.normal_(parameter, mean=float("norm.weight" in name), std=std)
    return objective


def batch(rows: int = B, share: float = 1.0) -> MaskedBatch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(6, V, (rows, T), generator=generator)
    lengths = torch.tensor([T, 6, 4] * (rows // 3))
    ids[torch.arange(T) >= lengths[:, None]] = 0
    places = torch.tensor([row * T + t for row in range(rows) for t in (1, 3)])
    labels = ids.ravel()[places]
    ids.ravel()[places] = MASK
    draws = torch.rand(len(places), generator=generator)
    return MaskedBatch(ids, torch.zeros_like(ids), lengths, places, labels, None, draws, share, share)


@pytest.fixture
def seen(monkeypatch):
    """Return what the discriminator reads."""
    texts: list[Tensor] = []
    forward = BERT.forward

    def spy(self, input_ids, *rest):
        texts.append(input_ids)
        return forward(self, input_ids, *rest)

    monkeypatch.setattr(BERT, "forward", spy)
    return texts


@torch.no_grad()
def test_losses_and_metrics_are_of_the_masked_words_and_of_the_text_that_the_discriminator_reads(seen):
    """Tests in tests/exchange compare the logits of generator and discriminator with those of transformers' ELECTRA."""
    ours, given = build(), batch()
    loss, metrics, state = ours.loss(given, None, 0)
    text, real = seen[1], torch.arange(T) < given.lengths[:, None]
    features = ours.generator_head(ours.generator(given.input_ids, given.lengths).flatten(0, 1)[given.places])
    of_generator = F.cross_entropy(ours.generator_head.decoder(features), given.labels)
    replaced = torch.zeros(B, T)
    replaced.ravel()[given.places] = (text.ravel()[given.places] != given.labels).float()
    logits, replaced = ours.judge(ours.model(text, given.lengths))[real], replaced[real]
    of_discriminator = F.binary_cross_entropy_with_logits(logits, replaced)
    right = (logits > 0) == replaced.bool()
    expected = {
        "loss": of_generator + 50 * of_discriminator,
        "generator_loss": of_generator,
        "discriminator_loss": of_discriminator,
        "replaced_accuracy": right.float().mean(),
        "replaced_recall": right[replaced.bool()].float().mean(),
        "replaced": replaced.mean(),
    }
    assert state is None and torch.equal(loss, metrics["loss"])
    assert {name: metrics[name].item() for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, abs=1e-5
    )


def test_only_masked_places_are_filled_and_no_mask_is_left(seen):
    objective, given = build(), batch()
    objective.loss(given, None, 0)
    text = seen[1].ravel()
    others = torch.ones(B * T, dtype=torch.bool)
    others[given.places] = False
    assert torch.equal(text[others], given.input_ids.ravel()[others])
    objective.loss(given._replace(draws=1 - given.draws), None, 0)
    assert not torch.equal(seen[3], seen[1])  # another noise


def test_draws_follow_the_generator():
    objective = build()
    with torch.no_grad():
        features = objective.generator_head(torch.randn(1, 8)).expand(4000, -1)
        expected = objective.generator_head.decoder(features[0]).double().softmax(0).numpy()
        drawn = objective.generator_head.drawn(features, torch.rand(4000, generator=torch.Generator().manual_seed(2)))
    counts = drawn.bincount(minlength=V).numpy()
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def test_a_word_that_is_hit_is_not_replaced(seen):
    """The generator always predicts token 7; where this is the original token, nothing is replaced."""
    objective, given = build(), batch()
    with torch.no_grad():
        objective.generator_head.decoder.bias.zero_()[7] = 1e4
        objective.head.bias.fill_(1e4)  # the discriminator predicts "replaced" everywhere
    for missed in (0, 1, 6):
        labels = torch.tensor([8] * missed + [7] * (6 - missed))
        _, metrics, _ = objective.loss(given._replace(labels=labels), None, 0)
        assert metrics["replaced"] == pytest.approx(missed / 19) and metrics["replaced_recall"] == (missed > 0)


def test_a_process_counts_by_its_share():
    objective = build()
    whole, part = (objective.loss(batch(share=share), None, 0)[1] for share in (1.0, 0.25))
    for name in ("loss", "generator_loss", "discriminator_loss", "replaced", "replaced_accuracy"):
        assert part[name].item() == pytest.approx(0.25 * whole[name].item()), name
    assert part["replaced_recall"] == whole["replaced_recall"]


def test_the_discriminator_teaches_the_generator_nothing():
    objective = build()
    objective.weight = 0.0
    objective.loss(batch(), None, 0)[0].backward()
    alone = {name: p.grad.clone() for name, p in objective.generator.blocks.named_parameters()}
    objective.zero_grad()
    objective.weight = 50.0
    objective.loss(batch(), None, 0)[0].backward()
    for name, parameter in objective.generator.blocks.named_parameters():
        torch.testing.assert_close(parameter.grad, alone[name], atol=1e-6, rtol=1e-4)


def test_embeddings_are_shared_and_poolers_left_alone():
    objective = build()
    assert objective.generator.embedding is objective.model.embedding
    assert objective.generator.positions is objective.model.positions
    objective = ReplacedTokenDetection(BERT(V, D, 1, 2, T, 0.0), V, small(d_embedding=D, pooler=True))
    frozen = {name for name, p in objective.named_parameters() if not p.requires_grad}
    assert frozen == {f"{m}.pooler.{k}" for m in ("model", "generator") for k in ("weight", "bias")}


def test_the_published_size_has_the_published_number_of_parameters():
    """14 million parameters (Clark et al. 2020, table 1), without the generator."""
    with torch.device("meta"):
        model = BERT(30_522, 256, 12, 4, 512, 0.1, d_embedding=128, pooler=False)
        generator = small(d_model=64, n_layers=12, n_heads=1, max_length=512, d_embedding=128)
        objective = ReplacedTokenDetection(model, 30_522, generator)
    parts = (objective.model, objective.dense, objective.head)
    assert round(sum(p.numel() for part in parts for p in part.parameters()) / 1e6) == 14
