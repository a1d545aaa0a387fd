import pytest
import torch
import torch.nn.functional as F

from retable.exchange.families import weights_in_transformers
from tests.contracts.model_cases import LONG, B, D, H, T, V
from tests.contracts.objective_cases import batch_of, build

NAME = "masked lm, next sentence"


def test_equals_bert_for_pretraining_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=H, intermediate_size=4 * D,
        max_position_embeddings=LONG,
    )  # fmt: skip
    theirs, ours = transformers.BertForPreTraining(config).eval(), build(NAME)
    given = batch_of(NAME, ours)
    loaded = theirs.load_state_dict(weights_in_transformers(ours), strict=False)
    tied = {f"cls.predictions.decoder.{kind}" for kind in ("weight", "bias")}
    assert not loaded.unexpected_keys and {key for key in loaded.missing_keys if "position_ids" not in key} <= tied
    labels = torch.full((B, T), -100)
    labels.ravel()[given.places] = given.labels
    real = (torch.arange(T) < given.lengths[:, None]).long()
    with torch.no_grad():
        expected = theirs(given.input_ids, real, given.segments, labels=labels, next_sentence_label=given.is_next)
        loss, metrics, state = ours.loss(given, None, 0)
        features = ours.head(ours.model(given.input_ids, given.lengths, given.segments).flatten(0, 1)[given.places])
        logits = ours.head.decoder(features)
    assert state is None and abs(loss - expected.loss) < 1e-4
    its = expected.prediction_logits.flatten(0, 1)[given.places]
    assert (logits - its).abs().max() < 1e-4
    assert abs(metrics["loss"] - F.cross_entropy(its, given.labels)) < 1e-4
    of_pairs = F.cross_entropy(expected.seq_relationship_logits, given.is_next)
    assert abs(metrics["next_sentence_loss"] - of_pairs) < 1e-4
    assert metrics["masked_accuracy"] == (its.argmax(1) == given.labels).float().mean()
    right = expected.seq_relationship_logits.argmax(1) == given.is_next
    assert metrics["next_sentence_accuracy"] == right.float().mean()


def test_only_the_masked_loss_is_weighted_by_the_share():
    objective = build(NAME)
    given = batch_of(NAME, objective)
    whole, metrics, _ = objective.loss(given, None, 0)
    loss, weighted, _ = objective.loss(given._replace(share=1.5), None, 0)
    assert loss.item() == pytest.approx(whole.item() + 0.5 * metrics["loss"].item(), abs=1e-5)
    for name, share in (("loss", 1.5), ("masked_accuracy", 1.5), ("next_sentence_loss", 1)):
        assert weighted[name].item() == pytest.approx(share * metrics[name].item())
