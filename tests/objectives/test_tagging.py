from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForTokenClassification

from retable.core.errors import UsageError
from retable.data.tagged import TaggedBatch, TaggedExample, pad_tagged
from retable.exchange.families import weights_in_transformers
from retable.models.bag_of_words import BagOfWords
from retable.models.base import Encoder
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM
from retable.models.gpt import GPT
from retable.models.t5 import T5
from retable.models.tagger import BiLSTMTagger
from retable.objectives.tagging import Tagging

V, D = 11, 8
TAGS = ["O", "B-x", "I-x", "B-y", "I-y"]
WORDS = [f"w{i}" for i in range(V)]
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.0, filters=None)
MODELS = {
    "bilstm": lambda: BiLSTM(V, 6, D, 1, 0.0),
    "tagger": lambda: BiLSTMTagger(V, WORDS, 5, 3, [(2, 4)], D, 1, 0.0),
    "bert": lambda: BERT(V, D, 2, 2, max_length=7, dropout=0.0),
    "gpt": lambda: GPT(V, D, 2, 2, max_length=7, dropout=0.0),
    "elmo": lambda: ELMoBiLSTM(WORDS, ELMO, 6, D, 1, 0.0, frozen=False),
}
LAYERS = {"softmax": {}, "crf": {"crf": True}, "constrained": {"crf": True, "scheme": "IOB2"}}
CASES = [(name, layer) for name in MODELS for layer in LAYERS]
# Words of several tokens, of one token each, and one word alone; the tags are well formed in IOB2.
EXAMPLES = [
    TaggedExample([1, 4, 5, 6, 6, 7, 2], [1, 2, 5], [1, 2, 0]),
    TaggedExample([1, 4, 3, 9, 2], [1, 2, 3], [0, 3, 4]),
    TaggedExample([1, 8, 2], [1], [3]),
]


def tagging(name: str, layer: str = "softmax", dropout: float = 0.0) -> Tagging:
    torch.manual_seed(0)
    objective = Tagging(MODELS[name](), TAGS, dropout, **LAYERS[layer])
    if objective.crf is not None:
        for parameter in objective.crf.parameters():
            nn.init.normal_(parameter)
    return objective


def batch() -> TaggedBatch:
    """With noise behind the rows' lengths."""
    padded = pad_tagged(EXAMPLES, range(3))
    input_ids = padded.input_ids.where(torch.arange(7) < padded.lengths[:, None], 10)
    tags = padded.tags.where(torch.arange(3) < padded.n_words[:, None], 2)
    return padded._replace(input_ids=input_ids, tags=tags)


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_neither_padding_nor_the_rows_beside_it_change_a_row(name, layer):
    objective = tagging(name, layer).eval()
    together, nats = objective.predict(batch()), []
    for row, example in enumerate(EXAMPLES):
        alone = pad_tagged(EXAMPLES, [row])
        n = len(example.words)
        assert torch.equal(objective.predict(alone)[0], together[row, :n])
        assert not together[row, n:].any()
        nats.append(objective.loss(alone, None, 0)[0] * n)
    torch.testing.assert_close(objective.loss(batch(), None, 0)[0], torch.stack(nats).sum() / 7)


@pytest.mark.parametrize(("name", "layer"), CASES)
def test_the_loss_reaches_every_parameter(name, layer):
    objective = tagging(name, layer)
    objective.loss(batch(), None, step=0)[0].backward()
    learnt = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and bool(p.grad.any()) for p in learnt.values())
    assert len(learnt) == len(list(objective.parameters())) - 2 * (name == "bert")  # the pooler


def test_the_softmax_is_that_of_the_first_token_of_each_word():
    """Against transformers, whose labels leave out the other tokens."""
    objective = tagging("bert").eval()
    for parameter in objective.parameters():
        nn.init.normal_(parameter, std=0.3)
    sizes = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    theirs = BertForTokenClassification(
        BertConfig(**sizes, intermediate_size=4 * D, max_position_embeddings=7, num_labels=len(TAGS))
    ).eval()
    missing, unexpected = theirs.load_state_dict(weights_in_transformers(objective), strict=False)
    assert not unexpected and all("position_ids" in name or "token_type_ids" in name for name in missing)
    given = batch()
    labels = torch.full((3, 7), -100)
    for row, example in enumerate(EXAMPLES):
        labels[row, list(example.words)] = torch.tensor(example.tags)
    mask = (torch.arange(7) < given.lengths[:, None]).long()
    expected = theirs(given.input_ids, attention_mask=mask, labels=labels)
    torch.testing.assert_close(objective.loss(given, None, 0)[0], expected.loss, atol=1e-5, rtol=0)
    best = expected.logits.argmax(2)
    for row, example in enumerate(EXAMPLES):
        assert objective.predict(given)[row, : len(example.words)].tolist() == best[row, list(example.words)].tolist()


def test_a_crf_of_zeros_has_the_softmaxs_loss_and_predictions():
    softmax, crf = tagging("bilstm"), tagging("bilstm", "crf")
    for parameter in crf.crf.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(softmax.loss(batch(), None, 0)[0], crf.loss(batch(), None, 0)[0])
    assert torch.equal(softmax.predict(batch()), crf.predict(batch()))


def test_the_loss_is_times_the_batchs_weight():
    objective = tagging("bilstm", "crf")
    whole, half = (objective.loss(batch()._replace(weight=weight), None, 0) for weight in (1.0, 0.5))
    assert half[0].item() == pytest.approx(whole[0].item() / 2) == pytest.approx(half[1]["loss"].item())
    assert whole[2] is None


def test_predictions_keep_to_the_scheme():
    """Whatever the emissions, no I-x without a B-x or I-x before it."""
    torch.manual_seed(0)
    objective = Tagging(BiLSTM(V, 6, D, 1, 0.0), TAGS, 0.0, crf=True, scheme="IOB2")
    with torch.no_grad():
        objective.head.bias.copy_(torch.tensor([0.0, 0.0, 9.0, 0.0, 0.0]))
    predicted = [[TAGS[tag] for tag in row] for row in objective.predict(batch()).tolist()]
    assert predicted[0] == ["B-x", "I-x", "I-x"]


def test_dropout_stands_before_the_tags():
    objective = tagging("bilstm", dropout=0.5)
    one, other = (objective.loss(batch(), None, 0)[0] for _ in range(2))
    assert one != other
    assert torch.equal(*(objective.eval().loss(batch(), None, 0)[0] for _ in range(2)))


@pytest.mark.parametrize("layer", LAYERS)
def test_it_learns_what_a_sentence_says(layer):
    """Word 3 is an x that lasts as long as 4 follows, 5 behind 6 is a y, and else there is nothing."""
    generator = torch.Generator().manual_seed(3)
    examples = []
    for length in (3, 5, 6, 8) * 3:
        ids = torch.randint(3, 7, (length,), generator=generator).tolist()
        tags: list[int] = []
        for before, word in zip([0, *ids], ids, strict=False):
            inside = word == 4 and tags and tags[-1] in (1, 2)
            tags.append(1 if word == 3 else 2 if inside else 3 if (before, word) == (6, 5) else 0)
        examples.append(TaggedExample(ids, range(length), tags))
    torch.manual_seed(0)
    objective = Tagging(BiLSTM(7, 8, 16, 1, 0.0), TAGS, 0.0, **LAYERS[layer])
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.03)
    given = pad_tagged(examples, range(len(examples)))
    for _ in range(60):
        optimizer.zero_grad()
        objective.loss(given, None, 0)[0].backward()
        optimizer.step()
    assert torch.equal(objective.predict(given), given.tags)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_loss_of_roles_reaches_every_parameter_and_no_other_row(layer):
    torch.manual_seed(0)
    objective = Tagging(BiLSTMTagger(V, WORDS, 5, 3, [(2, 4)], D, 1, 0.0, d_predicate=3), TAGS, 0.0, **LAYERS[layer])
    examples = [example._replace(predicate=place) for example, place in zip(EXAMPLES, (2, 0, 0), strict=True)]
    given = pad_tagged(examples, range(3))
    loss = objective.loss(given, None, step=0)[0]
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())
    alone = [objective.loss(pad_tagged(examples, [row]), None, 0)[0] * len(examples[row].words) for row in range(3)]
    torch.testing.assert_close(loss, torch.stack(alone).sum() / 7)


def test_the_same_words_have_other_tags_for_another_predicate():
    """In a sentence of 3s, what stands before the predicate is x, what stands behind it y."""
    examples = [
        TaggedExample([3] * 5, range(5), [2] * place + [0] + [4] * (4 - place), predicate=place) for place in range(5)
    ]
    torch.manual_seed(0)
    objective = Tagging(BiLSTMTagger(V, WORDS, 5, 3, [(2, 4)], D, 1, 0.0, d_predicate=4), TAGS, 0.0)
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.05)
    given = pad_tagged(examples, range(5))
    for _ in range(60):
        optimizer.zero_grad()
        objective.loss(given, None, 0)[0].backward()
        optimizer.step()
    assert torch.equal(objective.predict(given), given.tags)


class Given(Encoder):
    """A backbone of width 1 whose states are the ids."""

    d_model = 1

    def initialise(self, module: nn.Module) -> None:
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        return input_ids[:, :, None].float()


def test_the_loss_by_hand():
    objective = Tagging(Given(), ["O", "X"], 0.0)
    with torch.no_grad():
        objective.head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    given = pad_tagged([TaggedExample([9, 2, 9], [1], [1]), TaggedExample([1, 9, 3], [0, 2], [0, 1])], [0, 1])
    z = torch.tensor([-2.0, 1.0, -3.0])
    torch.testing.assert_close(objective.loss(given, None, 0)[0], torch.log1p(z.exp()).mean())


def test_models_without_a_state_for_each_token_are_refused():
    with pytest.raises(
        UsageError, match=r"BagOfWords has no state for each token.*take recipe=encoders/bilstm or bert/bert"
    ):
        Tagging(BagOfWords(V, 0.0), TAGS, 0.0)
    with pytest.raises(UsageError, match=r"T5 writes text, and has no state to be tagged by"):
        Tagging(T5(V, d_model=D, n_layers=1, n_heads=2, d_ff=12, dropout=0.0), TAGS, 0.0)
    with pytest.raises(UsageError, match=r"ELMo gives features.*take recipe=encoders/bilstm_elmo"):
        Tagging(ELMO(words=WORDS), TAGS, 0.0)


def test_a_scheme_without_a_crf_is_refused():
    with pytest.raises(UsageError, match=r"scheme=IOB2 is kept by a CRF.*write crf=true"):
        Tagging(MODELS["bilstm"](), TAGS, 0.0, scheme="IOB2")
