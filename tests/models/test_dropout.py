"""Test where each model applies dropout in training, in the order of its forward pass and as in its paper.

In evaluation there is no dropout.
"""

from functools import partial

import pytest
import torch
from torch import nn

from retable.models import awd_lstm
from retable.nn import dot_product, dropout, variational
from tests.contracts.model_cases import CASES, ELMO, IDS, LENGTHS, SPELT, WORDS, B, D, E, F, H, T, U, V, flat, models
from tests.contracts.objective_cases import asked, examples, objectives, pictures, tagged

P = 0.3
DOCUMENT = IDS, LENGTHS, torch.tensor([0] * B)
TABLE = partial(ELMO, dropout=0.5)


def ranker(dropout=0.0, input_dropout=0.0, **more) -> models.MentionRanker:
    sizes = {"d_model": D, "d_feature": 3, "d_hidden": 7, "max_width": 2, "spans_per_word": 0.8, "max_antecedents": 3}
    return models.MentionRanker(V, **SPELT, **sizes, dropout=dropout, input_dropout=input_dropout, **more)


def weights(queries: int, keys: int) -> tuple[int, ...]:
    return B, H, queries, keys


# For source and target: the hidden states, the inside of a feed-forward layer, and states with one mask for all times.
SOURCE, TARGET, WIDE, ALWAYS = (B, T, D), (B, U, D), (B, T, F), (B, 1, D)
GPT = [SOURCE] + 2 * [weights(T, T), SOURCE, SOURCE]
T5 = [
    *[SOURCE, *2 * [weights(T, T), SOURCE, WIDE, SOURCE], SOURCE],
    *[TARGET, *2 * [weights(U, U), TARGET, weights(U, T), TARGET, (B, U, F), TARGET], TARGET],
]
PLACES = {
    # Radford et al. 2018, section 4.1: embeddings, attention weights, the output of each sublayer
    **dict.fromkeys(("gpt", "gpt, as Vaswani's", "gpt, as Llama", "gpt, separate documents"), GPT),
    **dict.fromkeys(("bert", "bert, pre-norm", "bert, rotary"), GPT),
    # as in the authors' code: embeddings, positions, weights, sublayers, inside of feed-forward layers, the end
    "transformer-xl": [SOURCE, (1, T, D), *2 * [weights(T, T), SOURCE, WIDE, SOURCE], SOURCE],
    "transformer-xl, variational": [ALWAYS, (1, 1, D), *2 * [weights(T, T), ALWAYS, (B, 1, F), ALWAYS], ALWAYS],
    # inputs, weights, the output of each sublayer, the inside of feed-forward layers, the end of each stack
    **dict.fromkeys(("t5 v1.0", "t5 v1.1"), T5),
    **dict.fromkeys(("one-stack t5", "t5 encoder"), T5[:10]),
    # Vaswani et al. 2017, section 5.4: embeddings and the output of each sublayer; no attention weights
    **dict.fromkeys(("transformer", "transformer, pre-norm"), 5 * [SOURCE] + 7 * [TARGET]),
    "rnn, bilinear": [(B, T, 4), SOURCE, (B, U, 4), TARGET],
    # Gehring et al. 2017, section 4.2: embeddings, the input of each block, the end
    "convolutional encoder-decoder": [SOURCE, *2 * [(B, 4, T + 1)], TARGET, *2 * [(B, 4, U)], TARGET],
    "fixed window of 10": [(B, T + 8, 3), (B, T, 5)],
    "log-bilinear of 9": [(B, T + 8, D), SOURCE],
    # Zaremba et al. 2014, section 3.1: between embedding and first layer, last layer and softmax; between layers: see
    # below
    **dict.fromkeys(("elman", "gru", "lstm", "lstm, projected"), 2 * [SOURCE]),
    "character lstm": [SOURCE],  # Kim et al. 2016, section 4.1: not on the input of the first layer
    "stacked, first state": 3 * [SOURCE],
    # Gal and Ghahramani 2016: one mask for all times, also on h
    **dict.fromkeys(("stacked elman", "stacked lstm"), 3 * [ALWAYS, (1, D)] + [ALWAYS]),
    "gated convolution, wide": [*3 * [(B, E, T)], (B, T, E)],
    # bilm-tf: the input of every layer, in both directions; test_elmo.py tests the top
    "elmo": 4 * [(B, T, 4)],
    "bilstm": [(B, T, E), SOURCE, SOURCE],
    # and after the layer that attends to the other text
    "bilstm with attention": [(B, T, E), SOURCE, (B, U, E), TARGET, SOURCE, TARGET],
    "elmo bilstm": [*4 * [(B, T, 4)], (B, T, E + 8), SOURCE],
    "elmo tagger": [*4 * [(B, T, 4)], (B, T, 5 + 4 + 8), SOURCE],
    "tagger": [(B, T, 5 + 4), SOURCE, SOURCE],
    "window tagger": [(B, T + 4, 5 + 4), SOURCE],
    "convolutions": [(B, T, E)],
    "residual convolutions": [(B, T, E), *5 * [SOURCE]],
    "bidaf": [(B, T, 5 + 4), (B, U, 5 + 4), (B, T, 4 * E), *2 * [(B, T, E)]],  # Seo et al. 2017, section 4.1
    # in the last layer, only the state of the class token
    "vit": [(B, 5, D), weights(5, 5), (B, 5, D), (B, 5, D), weights(1, 5), ALWAYS, ALWAYS],
    "lenet": [(B, 24)],
    "pixels": [(B, 192)],
}
HEADS = {
    "classification": (partial(objectives.Classification, n_labels=3), "bilstm", examples, [(B, D)]),
    "classification, left to right": (partial(objectives.Classification, n_labels=3), "lstm", examples, [(B, D)]),
    "classification, [CLS]": (partial(objectives.Classification, n_labels=3), "bert", examples, [(B, D)]),
    "classification, two layers": (
        partial(objectives.Classification, n_labels=3, d_hidden=F), "bilstm", examples, [(B, D), (B, F)],
    ),
    "prefixes": (partial(objectives.PrefixClassification, n_labels=3), "lstm", examples, [(int(LENGTHS.sum()), D)]),
    "tagging": (partial(objectives.Tagging, tags=[*"abcde"]), "bilstm", tagged, [(10, D)]),
    "answers": (objectives.AnswerSpan, "bidaf", asked, 2 * [(B, T, 5 * E)]),
    "images": (partial(objectives.ImageClassification, n_labels=3), "lenet", pictures, [(B, D)]),
}  # fmt: skip


@pytest.fixture
def dropped(monkeypatch) -> list[tuple[tuple[int, ...], float]]:
    """Record the shape and rate of each dropout, and drop nothing."""
    found = []

    def record(x: torch.Tensor, rate: float, training: bool = True) -> torch.Tensor:
        if training and rate:
            found.append((tuple(x.shape), rate))
        return x

    for module in (dropout, dot_product, variational, awd_lstm):
        monkeypatch.setattr(module, "drop", record)
    torch.manual_seed(0)
    return found


@torch.no_grad()
def check(model, run, dropped, expected) -> None:
    for part in model.modules():
        if isinstance(part, nn.RNNBase):
            part.dropout = 0.0  # dropout between torch's layers
        if isinstance(part, models.TransformerXL):
            part.evaluation_memory = T  # in evaluation, the same context as in training
    found = run(model.train())
    assert dropped == expected
    torch.testing.assert_close(found, run(model.eval()))
    assert dropped == expected  # no dropout in evaluation


@pytest.mark.parametrize("name", PLACES)
def test_a_model_drops_out_where_its_paper_says_and_at_its_rate(name, dropped):
    check(CASES[name](P), flat, dropped, [(shape, P) for shape in PLACES[name]])


@pytest.mark.parametrize("name", HEADS)
def test_an_objective_drops_out_what_its_head_reads(name, dropped):
    make, model, batch, shapes = HEADS[name]
    objective = make(CASES[model](0.0), dropout=P)
    given = batch(objective, range(B))
    check(objective, lambda objective: objective.loss(given, None, 0)[0], dropped, [(shape, P) for shape in shapes])


def test_awd_lstm_drops_out_at_five_rates(dropped):
    """Merity et al. 2018, sections 2 and 4.2 to 4.4: dropout of words, inputs, weights, between layers, and at the
    end.
    """
    model = models.AWDLSTM(V, E, D, 2, 0.4, 0.25, 0.65, 0.1, 0.5, alpha=2.0, beta=1.0)
    first, last = [((4 * D, D), 0.5), ((B, 1, D), 0.25)], [((4 * E, E), 0.5), ((B, 1, E), 0.4)]
    check(model, flat, dropped, [((V, 1), 0.1), ((B, 1, E), 0.65), *first, *last])


def test_a_mention_ranker_drops_out_at_two_rates(dropped):
    """Lee et al. 2017, section 7.1: words and states have one rate, hidden layers and features the other.

    Here states have the second rate. Widths identify the tensors: words 9, states 8, features 3, hidden layers 7.
    """
    model = ranker(dropout=0.2, input_dropout=0.5)
    with torch.no_grad():
        found = model.train()(*DOCUMENT)
        widths = [(shape[-1], rate) for shape, rate in dropped]
        hidden = 2 * [(7, 0.2)]  # the networks for word weights in a span, mentions and pairs
        assert widths == [(9, 0.5), (8, 0.2), *hidden, (3, 0.2), *hidden, (3, 0.2), *hidden]
        torch.testing.assert_close(found, model.eval()(*DOCUMENT))


ON_ELMO = {
    "elmo_bilstm": (partial(models.ELMoBiLSTM, WORDS, TABLE, E, D, 1, 0.0), flat),
    "elmo_tagger": (partial(models.ELMoTagger, 4, **SPELT, elmo=TABLE, d_model=D, n_layers=1, dropout=0.0), flat),
    "bidaf": (partial(models.BiDAF, 7, **SPELT, n_highway=1, d_hidden=D, dropout=0.0, elmo=TABLE), flat),
    "mention_ranker": (partial(ranker, elmo=TABLE), lambda model: model(*DOCUMENT).scores[:, 1:].clamp(min=-9)),
}


@pytest.mark.parametrize(
    ("name", "frozen"),
    [(name, frozen) for name in ON_ELMO for frozen in (True, False) if frozen or name != "mention_ranker"],
)
def test_a_frozen_elmo_learns_nothing_and_drops_nothing_out(name, frozen):
    """Tested right after construction: Lightning calls `train()` only after the first validation."""
    make, run = ON_ELMO[name]
    torch.manual_seed(0)
    model = make() if frozen else make(frozen=False)
    assert model.training and model.frozen == frozen and model.elmo in model.pretrained.values()
    for _ in range(2):
        assert [part.training for part in model.elmo.modules()] == [not frozen] * len([*model.elmo.modules()])
        model.train()
    first, again = run(model), run(model)
    assert torch.equal(first, again) == frozen
    first.square().sum().backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert any(name.startswith("elmo.") for name in reached) != frozen
    assert {"mix.gamma", "mix.weights"} <= reached


@pytest.mark.parametrize("kind", [models.Elman, models.GRU, models.LSTM])
def test_layers_of_torchs_drop_out_between_them(kind, recwarn):
    for n_layers, between in ((1, 0.0), (2, P)):
        assert kind(V, D, n_layers, P, 0.1).layers.dropout == between
        assert models.CharacterLSTM(WORDS, 3, [(2, 4)], 1, D, n_layers, P, 0.1).layers.dropout == between
        rnn = models.RNNEncoderDecoder(V, E, D, n_layers, P)
        assert rnn.encoder.dropout == rnn.decoder.dropout == between
    assert not recwarn.list
