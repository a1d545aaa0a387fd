"""Test the initial weights of each model, as in its paper or its published code."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from retable.nn.character_cnn import PADDING, Highway
from tests.contracts.model_cases import models
from tests.contracts.objective_cases import objectives

V = 500
WORDS = [f"w{i}" for i in range(V)]
Check = Callable[[Tensor], None]


def uniform(bound: float, centre: float = 0.0) -> Check:
    def check(p: Tensor) -> None:
        p, n = p - centre, p.numel()
        assert bound * (1 - 10 / n) < p.abs().max() <= bound * (1 + 1e-5)
        assert abs(p.mean()) < 5 * bound / (3 * n) ** 0.5

    return check


def normal(std: float | Callable[[Tensor], float]) -> Check:
    def check(p: Tensor) -> None:
        expected, n = std(p) if callable(std) else std, p.numel()
        assert p.std().item() == pytest.approx(expected, rel=4 / (2 * n) ** 0.5)  # within four standard errors
        assert abs(p.mean()) < 5 * expected / n**0.5

    return check


def cut_normal(std: float) -> Check:
    """Return BERT's initial distribution: a normal one, cut off at two standard deviations."""

    def check(p: Tensor) -> None:
        normal(0.88 * std)(p)
        assert p.abs().max() <= 2 * std

    return check


def constant(value: float) -> Check:
    def check(p: Tensor) -> None:
        assert (p == value).all()

    return check


def forget_gate(p: Tensor) -> None:
    assert torch.equal(p, torch.cat([torch.zeros(128), torch.ones(128), torch.zeros(256)]))


def without_padding(p: Tensor) -> None:
    uniform(1.0)(p[[row for row in range(len(p)) if row != PADDING]])
    assert not p[PADDING].any()


def lm(model: nn.Module) -> objectives.CausalLM:
    return objectives.CausalLM(model, V, tie=False, bias=True, reduction="mean")


NORMS = {r"norms?(\.\d)?\.weight$": constant(1), r"norms?(\.\d)?\.bias$": constant(0)}
# Checks per model, by parts of parameter names. The first part that a name contains applies.
MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Check]]] = {
    **{
        kind.__name__: (lambda kind=kind: kind(50, 32, 2, 0.0, init_range=0.05), {"": uniform(0.05)})
        for kind in (models.Elman, models.GRU, models.LSTM)
    },
    "stacked": (
        lambda: models.StackedRecurrent(50, 32, 2, 0.05, True, True, first_state=True),
        NORMS | {"first": constant(0), "": uniform(0.05)},
    ),
    "fixed window": (lambda: models.FixedWindow(50, 4, 3, 15, 32, True, 0.0, 0.05), {"": uniform(0.05)}),
    "log-bilinear": (lambda: models.LogBilinear(50, 4, 3, 32, 0.0, 0.05), {"": uniform(0.05)}),
    "character lstm": (
        lambda: lm(models.CharacterLSTM(WORDS, 15, [(1, 25), (2, 50)], 2, 64, 2, 0.0, 0.05)),
        {"gate.bias": uniform(0.05, centre=-2.0), "characters": lambda p: uniform(0.05)(p[:-1]), "": uniform(0.05)},
    ),
    "awd-lstm": (
        lambda: lm(models.AWDLSTM(V, 40, 60, 2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        {"layers.0": uniform(60**-0.5), "layers.1": uniform(40**-0.5), "bias": constant(0), "": uniform(0.1)},
    ),
    **{
        f"bert, {std}": (
            lambda more=more: models.BERT(200, 64, 2, 2, 64, 0.0, norm="pre", **more),
            NORMS | {"bias$": constant(0), "": cut_normal(std)},
        )
        for std, more in ((0.02, {}), (0.05, {"initializer_range": 0.05}))
    },
    **{
        f"gpt, {norm}, {std}": (
            lambda norm=norm, more=more: models.GPT(200, 64, 3, 2, 64, 0.0, norm=norm, **more),
            NORMS | {"bias$": constant(0), "(attention.output|contract)": normal(std * share), "": normal(std)},
        )
        for norm, share in (("pre", 6**-0.5), ("post", 1.0))
        for std, more in ((0.02, {}), (0.05, {"initializer_range": 0.05}))
    },
    # Vaswani et al. 2017, section 3.4, multiply embeddings by √D; their code draws embeddings with variance 1/D.
    "gpt, sinusoidal": (
        lambda: models.GPT(200, 64, 1, 2, 64, 0.0, positions="sinusoidal").embedding,
        {"": normal(1 / 8)},
    ),
    **{
        # Variances that give sums a variance of 1, also for the softmax's logits and for scores that are not divided by
        # √D.
        f"t5, {activation}": (
            lambda activation=activation: models.T5(V, 64, 2, 4, 256, 0.0, activation, d_head=32),
            {
                "norm": constant(1),
                "embedding": normal(1.0),
                r"\.query": normal((64 * 32) ** -0.5),
                r"\.output": normal((4 * 32) ** -0.5),
                "contract": normal(256**-0.5),
                "(numbers|key_value|expand).weight": normal(64**-0.5),
            },
        )
        for activation in ("relu", "geglu")
    },
    "transformer": (
        lambda: models.TransformerEncoderDecoder(V, 64, 2, 2, 96, 10, 0.0),
        NORMS | {"bias$": constant(0), "embedding": normal(1 / 8), "": lambda p: normal((2 / sum(p.shape)) ** 0.5)(p)},
    ),
    "transformer-xl": (
        lambda: models.TransformerXL(200, 64, 2, 2, 128, 8, 8, 0.0, 0.0),
        NORMS | {r"(expand|contract)\.bias": constant(0), "": normal(0.02)},
    ),
    # bilm-tf
    "elmo": (
        lambda: objectives.BidirectionalLM(
            models.ELMo(WORDS, 64, 128, 1, 0.0, [(2, 200)], d_character=16, n_highway=1), V
        ),
        {
            "weight_[ih]h": uniform((6 / (64 + 64 + 4 * 128)) ** 0.5),
            "weight_hr": uniform((6 / 192) ** 0.5),
            "bias_ih": forget_gate,
            "characters": without_padding,
            "filters.0.weight": normal(32**-0.5),
            "projection.weight": normal(200**-0.5),
            "gate.bias": constant(-2),
            "highway.*weight": normal(200**-0.5),
            "head.weight": normal(64**-0.5),
            "bias": constant(0),
        },
    ),
    "elmo, words": (lambda: models.ELMo(WORDS, 64, 128, 1, 0.0, None).embedding, {"": uniform((6 / (V + 64)) ** 0.5)}),
    # Words and padding begin with the same variance; convolutions begin as PyTorch's.
    "window tagger": (
        lambda: models.WindowTagger(50, WORDS, 100, 16, [(2, 64)], window=5, d_model=64, dropout=0.0),
        {
            "characters": lambda p: normal(1.0)(p[:PADDING]),
            "(embedding|padding)": normal(1 / 10),
            r"filters\.0": uniform((16 * 2) ** -0.5),
            "convolution": uniform((164 * 5) ** -0.5),
        },
    ),
    "highway": (lambda: Highway(50), {"gate.bias": constant(-2), "": uniform(50**-0.5)}),
    "rnn": (lambda: models.RNNEncoderDecoder(V, 100, 8, 1, 0.0).embedding, {"": normal(0.1)}),
    "skip-gram": (lambda: models.SkipGram(WORDS, 20), {"": uniform(1 / 20)}),  # gensim
    "cbow": (lambda: models.CBOW(WORDS, 20), {"": uniform(0.5 / 20)}),  # word2vec
    "glove": (
        lambda: objectives.WeightedLeastSquares(models.GloVe(WORDS, 20), [1] * V),
        {"": uniform(0.5 / 20)},
    ),  # GloVe's code
    "bag of words": (lambda: objectives.Classification(models.BagOfWords(V, 0.0), 3, 0.0), {"": constant(0)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_begin_as_published(name):
    torch.manual_seed(0)
    make, checks = MODELS[name]
    for parameter_name, parameter in make().named_parameters():
        check = next(check for pattern, check in checks.items() if re.search(pattern, parameter_name))
        try:
            check(parameter.detach())
        except AssertionError as error:
            raise AssertionError(f"{name}: {parameter_name}") from error


@pytest.mark.parametrize(("initialise", "variance"), [
    (models.GatedConvolution.initialise, 1.0),
    # Gehring et al. 2017, section 3.5: N(0, p / inputs), where dropout keeps the share p of the inputs.
    (models.ConvolutionalEncoderDecoder(V, 8, 4, 1, 3, 9, dropout=0.1).initialise, 0.9),
])  # fmt: skip
def test_a_softmax_begins_with_the_variance_of_one_over_its_inputs_and_no_bias(initialise, variance):
    head = nn.Linear(400, 300)
    initialise(head)
    normal((variance / 400) ** 0.5)(head.weight.detach())
    assert not head.bias.any()


def test_fasttexts_words_begin_at_skipgrams_scale():
    torch.manual_seed(0)
    vectors = models.FastText([f"word{i}" for i in range(2000)], d_model=20, buckets=20_000).vectors()
    assert vectors.std().item() == pytest.approx(0.5 / 20 / 3**0.5, rel=0.1)
