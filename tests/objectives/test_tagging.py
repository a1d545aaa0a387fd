from itertools import chain, pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array

from retable.data.tagged import TaggedExample, pad_tagged
from retable.models.bilstm import BiLSTM
from retable.models.lstm_tagger import LSTMTagger
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


@pytest.mark.parametrize("crf", [False, True])
def test_features_are_connected_to_the_tags_by_a_sparse_matrix(crf):
    """A feature that a word has twice counts twice; feature 0 is padding."""
    features = [[[1, 3, 3], [2, 0, 0], [4, 1, 0]], [[0, 0, 0], [5, 0, 0], [1, 2, 3]], [[5, 5, 5]]]
    rows, columns = zip(*((n, i) for n, row in enumerate(chain.from_iterable(features)) for i in row if i), strict=True)
    present = csr_array((np.ones(len(rows)), (rows, columns)), shape=(7, 6))
    examples = [each._replace(features=torch.tensor(f)) for each, f in zip(EXAMPLES, features, strict=True)]
    batch = pad_tagged(examples, range(3))
    given, without = tagging("bilstm", crf=crf, n_features=5), tagging("bilstm", crf=crf)
    without.load_state_dict(given.state_dict(), strict=False)
    weights = given.features.weight.detach().numpy()
    assert given._logits(batch)[1].shape == (7, len(TAGS))
    added = (given._logits(batch)[1] - without._logits(BATCH)[1]).detach().numpy()
    np.testing.assert_allclose(added, present @ weights, atol=1e-5)
    given.loss(batch, None, 0)[0].backward()
    assert given.features.weight.grad.any(dim=1).tolist() == [False, True, True, True, True, True]


def test_weights_of_features_start_at_zero():
    assert not Tagging(build("bilstm"), TAGS, 0.0, n_features=5).features.weight.any()


def test_the_likelihood_of_a_crf_of_features_and_word_vectors_equals_enumeration():
    """The CRF without LSTMs: a tag's score at a word is linear in the word's vector and its features."""
    torch.manual_seed(0)
    objective = Tagging(LSTMTagger(4, ["<unk>", "</s>", "a/X", "b/Y"], 3, 8, 0, 0.0), TAGS, 0.0, True, n_features=4)
    spread(objective)
    examples = [
        TaggedExample([1, 2, 3, 2, 1], [1, 2, 3], [0, 3, 4], None, torch.tensor([[1, 2], [3, 0], [1, 4]])),
        TaggedExample([1, 3, 1], [1], [2], None, torch.tensor([[4, 4]])),
    ]
    nats = 0.0
    p = {name: parameter.detach().double() for name, parameter in objective.named_parameters()}
    for each in examples:
        vectors = p["model.input.embedding.weight"][each.input_ids[1:-1]]
        emitted = vectors @ p["head.weight"].T + p["head.bias"] + p["features.weight"][each.features].sum(dim=1)
        emitted -= (each.features == 0).sum(dim=1, keepdim=True) * p["features.weight"][0]

        def score(tags: tuple[int, ...], emitted: torch.Tensor = emitted) -> torch.Tensor:
            moved = sum(p["crf.transition"][pair] for pair in pairwise(tags))
            return p["crf.start"][tags[0]] + emitted[range(len(tags)), tags].sum() + moved + p["crf.end"][tags[-1]]

        every = torch.stack([score(tags) for tags in product(range(len(TAGS)), repeat=len(each.tags))])
        nats += float(every.logsumexp(0) - score(tuple(each.tags)))
    loss, _, _ = objective.loss(pad_tagged(examples, range(2)), None, 0)
    assert loss.item() == pytest.approx(nats / 4, rel=1e-5)


def test_predictions_keep_to_the_scheme():
    torch.manual_seed(0)
    objective = Tagging(BiLSTM(V, 6, D, 1, 0.0), TAGS, 0.0, crf=True, scheme="IOB2")
    with torch.no_grad():
        objective.head.bias.copy_(torch.tensor([0.0, 0.0, 9.0, 0.0, 0.0]))
    predicted = [[TAGS[tag] for tag in row] for row in objective.predict(BATCH).tolist()]
    assert predicted[0] == ["B-x", "I-x", "I-x"]


@pytest.mark.parametrize("layer", ["softmax", "crf", "scheme"])
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
