import pytest
import torch

from retable.objectives.causal_lm import CausalLM
from tests.contracts.model_cases import V
from tests.contracts.objective_cases import CASES, N_ENDINGS, batch_of, build


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("choice")])
def test_the_loss_is_that_of_a_softmax_over_the_endings_of_each_example(name):
    objective = build(name)
    batch = batch_of(name, objective)
    scores = objective(batch)
    assert scores.shape == (4, 4) and torch.isfinite(scores).sum(dim=1).tolist() == N_ENDINGS
    assert objective.head.bias is None
    rows = [row[:n] for row, n in zip(scores, N_ENDINGS, strict=True)]
    log_probs = [row.softmax(0)[label].log() for row, label in zip(rows, batch.labels, strict=True)]
    loss, metrics, state = objective.loss(batch, None, step=0)
    torch.testing.assert_close(loss, -torch.stack(log_probs).mean())
    assert metrics == {"loss": loss.detach()} and state is None
    assert objective.predict(batch).tolist() == [int(row.argmax()) for row in rows]


def test_losses_are_times_the_weights_of_examples_and_of_rows():
    """The auxiliary loss is a mean over rows."""
    objective = build("choice, gpt")
    objective.auxiliary = 0.5
    batch = batch_of("choice, gpt", objective)
    whole, metrics, _ = objective.loss(batch, None, 0)
    torch.testing.assert_close(whole, metrics["loss"] + 0.5 * metrics["auxiliary_loss"])
    _, halved, _ = objective.loss(batch._replace(weight=0.5, rows=batch.rows._replace(weight=0.25)), None, 0)
    assert halved["loss"].item() == pytest.approx(metrics["loss"].item() / 2)
    assert halved["auxiliary_loss"].item() == pytest.approx(metrics["auxiliary_loss"].item() / 4)
    alone = [objective.loss(batch_of("choice, gpt", objective, [row]), None, 0)[1] for row in range(4)]
    means = [n * each["auxiliary_loss"] for n, each in zip(N_ENDINGS, alone, strict=True)]
    torch.testing.assert_close(metrics["auxiliary_loss"], sum(means) / sum(N_ENDINGS))


def test_the_auxiliary_loss_is_that_of_a_language_model_of_all_endings():
    objective = build("choice, gpt")
    objective.auxiliary = 0.7
    given = batch_of("choice, gpt", objective)
    language_model = CausalLM(objective.model, V, tie=True, bias=False, reduction="mean")
    nats = []
    for row, length in zip(given.rows.input_ids, given.rows.lengths, strict=True):
        log_prob, _ = language_model.log_prob(row[None, : length - 1], row[None, 1:length])
        nats.append(-log_prob.mean())
    loss, metrics, _ = objective.loss(given, None, step=0)
    torch.testing.assert_close(metrics["auxiliary_loss"], torch.stack(nats).mean().detach())
    torch.testing.assert_close(loss, metrics["loss"] + 0.7 * torch.stack(nats).mean())
