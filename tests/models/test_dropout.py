"""Where each model drops out in training, in the order of its forward pass, as its paper says; nothing else differs."""

from functools import partial

import pytest
import torch

from retable.data.examples import ExampleBatch
from retable.data.images import ImageBatch
from retable.data.questions import QuestionBatch
from retable.data.tagged import TaggedBatch
from retable.models import awd_lstm
from retable.models.awd_lstm import AWDLSTM
from retable.models.bert import BERT
from retable.models.bidaf import BiDAF
from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention
from retable.models.character_lstm import CharacterLSTM
from retable.models.convolutional_encoder import ConvolutionalEncoder
from retable.models.convolutional_encoder_decoder import ConvolutionalEncoderDecoder
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM
from retable.models.elmo_tagger import ELMoTagger
from retable.models.fixed_window import FixedWindow
from retable.models.gated_convolution import GatedConvolution
from retable.models.gpt import GPT
from retable.models.lenet import LeNet
from retable.models.log_bilinear import LogBilinear
from retable.models.mention_ranker import MentionRanker
from retable.models.pixels import Pixels
from retable.models.recurrent import GRU, LSTM, Elman
from retable.models.residual_convolutional_encoder import ResidualConvolutionalEncoder
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.stacked_recurrent import StackedRecurrent
from retable.models.t5 import T5
from retable.models.tagger import BiLSTMTagger
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.models.transformer_xl import TransformerXL
from retable.models.vit import ViT
from retable.models.window_tagger import WindowTagger
from retable.nn import dot_product, dropout, variational
from retable.objectives.answer_span import AnswerSpan
from retable.objectives.classification import Classification
from retable.objectives.image_classification import ImageClassification
from retable.objectives.prefix_classification import PrefixClassification
from retable.objectives.tagging import Tagging

V, B, S, T, E, D, H, F, P = 11, 3, 6, 4, 5, 8, 2, 20, 0.3
GENERATOR = torch.Generator().manual_seed(0)
SOURCE, TARGET = (torch.randint(V, (B, length), generator=GENERATOR) for length in (S, T))
IMAGES = torch.rand(B, 1, 8, 8, generator=GENERATOR)
LENGTHS, TARGET_LENGTHS = torch.tensor([6, 3, 4]), torch.tensor([2, 4, 4])
DOCUMENT = SOURCE, LENGTHS, torch.tensor([0, 0, 0])
WORDS = [f"w{i}" for i in range(V)]
SPELT = {"vocab_size": V, "words": WORDS, "d_embedding": E, "d_character": 3, "filters": [(2, 4)]}
TABLE = partial(ELMo, d_model=4, d_cell=4, n_layers=2, dropout=0.5, filters=None)  # of a task's model; it is frozen


def weights(queries: int, keys: int) -> tuple[int, ...]:
    return B, H, queries, keys


def ranker(dropout=0.0, input_dropout=0.0, **more) -> MentionRanker:
    sizes = {"d_model": D, "d_feature": 3, "d_hidden": 7, "max_width": 2, "spans_per_word": 0.8, "max_antecedents": 3}
    return MentionRanker(**SPELT, **sizes, dropout=dropout, input_dropout=input_dropout, **more)


def one_way(model):
    return model(SOURCE)


def both_ways(model):
    return model(SOURCE, LENGTHS)


def to_target(model):
    return model(SOURCE, LENGTHS, TARGET)


def of_images(model):
    return model(IMAGES)


PLACES = {
    # Radford et al. 2018, section 4.1: embeddings, attention's weights, what each layer adds
    "gpt": (lambda: GPT(V, D, 2, H, 9, P), one_way, [(B, S, D)] + 2 * [weights(S, S), (B, S, D), (B, S, D)]),
    "gpt, post-norm": (
        lambda: GPT(V, D, 2, H, 9, P, norm="post", activation="swiglu"),
        one_way,
        [(B, S, D)] + 2 * [weights(S, S), (B, S, D), (B, S, D)],
    ),
    "bert": (lambda: BERT(V, D, 2, H, 9, P), both_ways, [(B, S, D)] + 2 * [weights(S, S), (B, S, D), (B, S, D)]),
    # as the authors' code: embeddings, positions, weights, what each layer adds, within the feed-forward ones, the end
    "transformer_xl": (
        lambda: TransformerXL(V, D, 2, H, F, S, S, P, P),
        one_way,
        [(B, S, D), (1, S, D)] + 2 * [weights(S, S), (B, S, D), (B, S, F), (B, S, D)] + [(B, S, D)],
    ),
    "t5": (  # inputs, weights, what each layer adds, within the feed-forward ones, the end of each stack
        lambda: T5(V, D, 1, H, F, P),
        to_target,
        [
            *((B, S, D), weights(S, S), (B, S, D), (B, S, F), (B, S, D), (B, S, D)),
            *((B, T, D), weights(T, T), (B, T, D), weights(T, S), (B, T, D), (B, T, F), (B, T, D), (B, T, D)),
        ],
    ),
    "transformer": (  # Vaswani et al. 2017, section 5.4: embeddings and each layer's output, no weights of attention
        lambda: TransformerEncoderDecoder(V, D, 1, H, F, 9, P),
        to_target,
        3 * [(B, S, D)] + 4 * [(B, T, D)],
    ),
    "rnn": (
        lambda: RNNEncoderDecoder(V, D, D, 1, P, attention="bilinear"),
        to_target,
        2 * [(B, S, D)] + 2 * [(B, T, D)],
    ),
    "convolutional": (  # Gehring et al. 2017, section 4.2: embeddings, the input of each block, the end
        lambda: ConvolutionalEncoderDecoder(V, D, F, 2, 3, 9, P),
        to_target,
        [(B, S, D)] + 2 * [(B, F, S + 1)] + [(B, T, D)] + 2 * [(B, F, T)] + [(B, T, D)],
    ),
    "fixed_window": (lambda: FixedWindow(V, 0, 3, E, D, True, P, 0.1), one_way, [(B, S + 1, E), (B, S, D)]),
    "log_bilinear": (lambda: LogBilinear(V, 0, 2, D, P, 0.1), one_way, [(B, S + 1, D), (B, S, D)]),
    # Zaremba et al. 2014, section 3.1: from embedding to layer and from layer to softmax; between layers, see below
    **{each.__name__: (partial(each, V, D, 1, P, 0.1), one_way, 2 * [(B, S, D)]) for each in (Elman, GRU, LSTM)},
    # Kim et al. 2016, section 4.1: not on the first layer's input
    "character_lstm": (lambda: CharacterLSTM(WORDS, 3, [(2, 4)], 1, D, 1, P, 0.1), one_way, [(B, S, D)]),
    "stacked": (lambda: StackedRecurrent(V, D, 2, 0.1, True, True, dropout=P), one_way, 3 * [(B, S, D)]),
    "stacked, variational": (  # Gal and Ghahramani 2016: one mask for all times, of h too
        lambda: StackedRecurrent(V, D, 2, 0.1, False, False, dropout=P, variational=True, recurrent_dropout=P),
        one_way,
        2 * [(B, 1, D), (1, D)] + [(B, 1, D)],
    ),
    "gated_convolution": (
        lambda: GatedConvolution(V, D, [[[3, D]], [[1, 4], [3, D]]], P),
        one_way,
        [(B, D, S), (B, D, S), (B, 4, S), (B, S, D)],
    ),
    "transformer_xl, variational": (
        lambda: TransformerXL(V, D, 1, H, F, S, S, P, P, variational=True),
        one_way,
        [(B, 1, D), (1, 1, D), weights(S, S), (B, 1, D), (B, 1, F), (B, 1, D), (B, 1, D)],
    ),
    # bilm-tf: the input of every layer, and the top
    "elmo": (lambda: ELMo(WORDS, D, 12, 2, P, None), lambda model: model(SOURCE, None, False), 3 * [(B, S, D)]),
    "elmo, backward": (
        lambda: ELMo(WORDS, D, 12, 2, P, None),
        lambda model: model(SOURCE, None, True),
        3 * [(B, S, D)],
    ),
    "elmo_bilstm": (lambda: ELMoBiLSTM(WORDS, TABLE, E, D, 1, P), both_ways, [(B, S, E + 8), (B, S, D)]),
    "elmo_tagger": (
        lambda: ELMoTagger(**SPELT, elmo=TABLE, d_model=D, n_layers=2, dropout=P),
        both_ways,
        [(B, S, E + 4 + 8), (B, S, D), (B, S, D)],
    ),
    "bilstm": (lambda: BiLSTM(V, E, D, 1, P), both_ways, [(B, S, E), (B, S, D)]),
    "bilstm_attention": (  # and behind the layer that has looked at the other text
        lambda: BiLSTMAttention(V, E, D, 1, P),
        lambda model: torch.cat(model.read_pair(SOURCE, LENGTHS, TARGET, TARGET_LENGTHS), dim=1),
        [(B, S, E), (B, S, D), (B, T, E), (B, T, D), (B, S, D), (B, T, D)],
    ),
    "tagger": (
        lambda: BiLSTMTagger(**SPELT, d_model=D, n_layers=2, dropout=P),
        both_ways,
        [(B, S, E + 4), (B, S, D), (B, S, D)],
    ),
    "window_tagger": (
        lambda: WindowTagger(**SPELT, window=3, d_model=D, dropout=P),
        both_ways,
        [(B, S + 2, E + 4), (B, S, D)],
    ),
    "convolutional_encoder": (lambda: ConvolutionalEncoder(V, E, [2, 3], D, P), both_ways, [(B, S, E)]),
    "residual_convolutional_encoder": (
        lambda: ResidualConvolutionalEncoder(V, E, D, 2, dropout=P),
        both_ways,
        [(B, S, E)] + 5 * [(B, S, D)],
    ),
    "bidaf": (  # Seo et al. 2017, section 4.1: the input of every LSTM
        lambda: BiDAF(**SPELT, n_highway=1, d_hidden=D, dropout=P),
        lambda model: model(SOURCE, LENGTHS, TARGET, TARGET_LENGTHS),
        [(B, S, E + 4), (B, T, E + 4), (B, S, 4 * D), (B, S, D), (B, S, D)],
    ),
    "vit": (  # of the last layer the class token's place alone
        lambda: ViT(8, 1, 4, D, 2, H, P),
        of_images,
        [(B, 5, D), weights(5, 5), (B, 5, D), (B, 5, D), weights(1, 5), (B, 1, D), (B, 1, D)],
    ),
    "lenet": (lambda: LeNet(8, 1, 3, D, P), of_images, [(B, 24)]),
    "pixels": (lambda: Pixels(8, 1, P), of_images, [(B, 64)]),
}
EXAMPLES = ExampleBatch(SOURCE, LENGTHS, torch.tensor([0, 1, 1]))
QUESTIONS = QuestionBatch(SOURCE, LENGTHS, TARGET, TARGET_LENGTHS, torch.tensor([0, 1, 2]), torch.tensor([4, 1, 3]))
TAGGED = TaggedBatch(SOURCE, LENGTHS, torch.arange(2).expand(B, 2), torch.tensor([2, 2, 1]), torch.tensor([[1, 0]] * B))
HEADS = {
    "classification": (lambda: Classification(BiLSTM(V, E, D, 1), 2, P), EXAMPLES, [(B, D)]),
    "classification, left to right": (lambda: Classification(LSTM(V, D, 1, 0.0, 0.1), 2, P), EXAMPLES, [(B, D)]),
    "classification, [CLS]": (lambda: Classification(BERT(V, D, 1, H, 9, 0.0), 2, P), EXAMPLES, [(B, D)]),
    "classification, two layers": (
        lambda: Classification(BiLSTM(V, E, D, 1), 2, P, d_hidden=F),
        EXAMPLES,
        [(B, D), (B, F)],
    ),
    "prefixes": (lambda: PrefixClassification(LSTM(V, D, 1, 0.0, 0.1), 2, P), EXAMPLES, [(13, D)]),
    "tagging": (lambda: Tagging(BiLSTM(V, E, D, 1), ["A", "B"], P), TAGGED, [(5, D)]),
    "answers": (
        lambda: AnswerSpan(BiDAF(**SPELT, n_highway=1, d_hidden=D, dropout=0.0), P),
        QUESTIONS,
        2 * [(B, S, 5 * D)],
    ),
    "images": (
        lambda: ImageClassification(LeNet(8, 1, 3, D, 0.0), 2, P),
        ImageBatch(IMAGES, torch.tensor([0, 1, 1])),
        [(B, D)],
    ),
}


@pytest.fixture
def dropped(monkeypatch) -> list[tuple[tuple[int, ...], float]]:
    """Shapes and rates of all that is dropped out, of which nothing is."""
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
    found = run(model.train())
    assert dropped == expected
    torch.testing.assert_close(found, run(model.eval()))
    assert dropped == expected  # in evaluation nothing


@pytest.mark.parametrize("name", PLACES)
def test_a_model_drops_out_where_its_paper_says_and_at_its_rate(name, dropped):
    make, run, shapes = PLACES[name]
    check(make(), run, dropped, [(shape, P) for shape in shapes])


@pytest.mark.parametrize("name", HEADS)
def test_an_objective_drops_out_what_its_head_reads(name, dropped):
    make, batch, shapes = HEADS[name]
    check(make(), lambda objective: objective.loss(batch, None, 0)[0], dropped, [(shape, P) for shape in shapes])


def test_awd_lstm_drops_out_at_five_rates(dropped):
    """Merity et al. 2018, sections 2 and 4.2 to 4.4: words of the table, inputs, weights, between layers, the end."""
    model = AWDLSTM(V, E, D, 2, 0.4, 0.25, 0.65, 0.1, 0.5, alpha=2.0, beta=1.0)
    first, last = [((4 * D, D), 0.5), ((B, 1, D), 0.25)], [((4 * E, E), 0.5), ((B, 1, E), 0.4)]
    check(model, one_way, dropped, [((V, 1), 0.1), ((B, 1, E), 0.65), *first, *last])


def test_a_mention_ranker_drops_out_at_two_rates(dropped):
    """Lee et al. 2017, section 7.1: words and states at one, hidden layers and features at the other; states as the
    latter here. Widths tell which is which: words 9, states 8, features 3, hidden layers 7."""
    model = ranker(dropout=0.2, input_dropout=0.5)
    with torch.no_grad():
        found = model.train()(*DOCUMENT)
        widths = [(shape[-1], rate) for shape, rate in dropped]
        hidden = 2 * [(7, 0.2)]  # of the words' weights in a span, of mentions, of pairs
        assert widths == [(9, 0.5), (8, 0.2), *hidden, (3, 0.2), *hidden, (3, 0.2), *hidden]
        torch.testing.assert_close(found, model.eval()(*DOCUMENT))


ON_ELMO = {
    "elmo_bilstm": (lambda **frozen: ELMoBiLSTM(WORDS, TABLE, E, D, 1, 0.0, **frozen), both_ways),
    "elmo_tagger": (
        lambda **frozen: ELMoTagger(**SPELT, elmo=TABLE, d_model=D, n_layers=1, dropout=0.0, **frozen),
        both_ways,
    ),
    "bidaf": (
        lambda **frozen: BiDAF(**SPELT, n_highway=1, d_hidden=D, dropout=0.0, elmo=TABLE, **frozen),
        lambda model: model(SOURCE, LENGTHS, TARGET, TARGET_LENGTHS)[0],
    ),
    "mention_ranker": (partial(ranker, elmo=TABLE), lambda model: model(*DOCUMENT).scores[:, 1:].clamp(min=-9)),
}


@pytest.mark.parametrize(
    ("name", "frozen"),
    [(name, frozen) for name in ON_ELMO for frozen in (True, False) if frozen or name != "mention_ranker"],
)
def test_a_frozen_elmo_learns_nothing_and_drops_nothing_out(name, frozen):
    """From its making on: Lightning calls `train()` only after the first validation."""
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


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_layers_of_torchs_drop_out_between_them(kind, recwarn):
    for n_layers, between in ((1, 0.0), (2, P)):
        assert kind(V, D, n_layers, P, 0.1).layers.dropout == between
        assert CharacterLSTM(WORDS, 3, [(2, 4)], 1, D, n_layers, P, 0.1).layers.dropout == between
    assert not recwarn.list
