import pytest
import torch
import torch.nn.functional as F

from tests.contracts.objective_cases import batch_of, build

NAME = "masked lm, next sentence"


@torch.no_grad()
def test_losses_and_accuracies_are_of_the_masked_words_and_the_pairs():
    """Tests in tests/exchange compare logits and loss with those of BertForPreTraining."""
    objective = build(NAME)
    given = batch_of(NAME, objective)
    states = objective.model(given.input_ids, given.lengths, given.segments)
    words = objective.head.decoder(objective.head(states.flatten(0, 1)[given.places]))
    pairs = objective.next_sentence(objective.model.pool(states))
    loss, metrics, state = objective.loss(given, None, 0)
    expected = {
        "loss": F.cross_entropy(words, given.labels),
        "next_sentence_loss": F.cross_entropy(pairs, given.is_next),
        "masked_accuracy": (words.argmax(1) == given.labels).float().mean(),
        "next_sentence_accuracy": (pairs.argmax(1) == given.is_next).float().mean(),
    }
    torch.testing.assert_close(metrics, expected)
    torch.testing.assert_close(loss, expected["loss"] + expected["next_sentence_loss"])
    assert state is None


def test_only_the_masked_loss_is_weighted_by_the_share():
    objective = build(NAME)
    given = batch_of(NAME, objective)
    whole, metrics, _ = objective.loss(given, None, 0)
    loss, weighted, _ = objective.loss(given._replace(share=1.5), None, 0)
    assert loss.item() == pytest.approx(whole.item() + 0.5 * metrics["loss"].item(), abs=1e-5)
    for name, share in (("loss", 1.5), ("masked_accuracy", 1.5), ("next_sentence_loss", 1)):
        assert weighted[name].item() == pytest.approx(share * metrics[name].item())
