import pytest
import torch
import torch.nn.functional as F

from retable.data.tagged import TaggedExample, pad_tagged
from retable.models.bilstm import BiLSTM
from retable.models.tagger import BiLSTMTagger
from retable.objectives.tagging import Tagging
from tests.contracts.model_cases import SPELT, D, V, build, spread
from tests.contracts.objective_cases import TAGGERS, TAGS

# Words of several tokens, of one token, and a sentence of one word; the tags are valid IOB2.
EXAMPLES = [
    TaggedExample([1, 4, 5, 6, 6, 7, 2], [1, 2, 5], [1, 2, 0]),
    TaggedExample([1, 4, 3, 9, 2], [1, 2, 3], [0, 3, 4]),
    TaggedExample([1, 8, 2], [1], [3]),
]
BATCH = pad_tagged(EXAMPLES, range(3))


def tagging(name: str, **settings) -> Tagging:
    objective = Tagging(build(name), TAGS, 0.0, **settings).eval()
    spread(objective)
    return objective


@pytest.mark.parametrize("crf", [False, True])
def test_the_states_of_first_tokens_are_scored(crf):
    objective = tagging("bilstm", crf=crf)
    states = objective.model(BATCH.input_ids, BATCH.lengths)
    nats, best = [], []
    for row, example in enumerate(EXAMPLES):
        logits, tags = objective.head(states[row, list(example.words)]), torch.tensor(example.tags)
        length = torch.tensor([len(tags)])
        if crf:
            nats.append(-objective.crf.log_likelihood(logits[None], tags[None], length)[0])
            best.append(objective.crf.best(logits[None], length)[0].tolist())
        else:
            nats.append(F.cross_entropy(logits, tags, reduction="sum"))
            best.append(logits.argmax(dim=1).tolist())
    loss, metrics, _ = objective.loss(BATCH, None, 0)
    torch.testing.assert_close(loss, torch.stack(nats).sum() / 7)  # nats per word
    assert metrics["loss"] == loss
    predicted = objective.predict(BATCH)
    assert [row[: len(tags)].tolist() for row, tags in zip(predicted, best, strict=True)] == best


def test_predictions_keep_to_the_scheme():
    torch.manual_seed(0)
    objective = Tagging(BiLSTM(V, 6, D, 1, 0.0), TAGS, 0.0, crf=True, scheme="IOB2")
    with torch.no_grad():
        objective.head.bias.copy_(torch.tensor([0.0, 0.0, 9.0, 0.0, 0.0]))
    predicted = [[TAGS[tag] for tag in row] for row in objective.predict(BATCH).tolist()]
    assert predicted[0] == ["B-x", "I-x", "I-x"]


@pytest.mark.parametrize("layer", TAGGERS)
def test_the_loss_of_roles_reaches_every_parameter_and_no_other_row(layer):
    torch.manual_seed(0)
    model = BiLSTMTagger(4, **SPELT, d_model=D, n_layers=1, dropout=0.0, d_predicate=3)
    objective = Tagging(model, TAGS, 0.0, **TAGGERS[layer])
    spread(objective)
    examples = [example._replace(predicate=place) for example, place in zip(EXAMPLES, (2, 0, 0), strict=True)]
    loss = objective.loss(pad_tagged(examples, range(3)), None, step=0)[0]
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())
    alone = [objective.loss(pad_tagged(examples, [row]), None, 0)[0] * len(examples[row].words) for row in range(3)]
    torch.testing.assert_close(loss, torch.stack(alone).sum() / 7)
