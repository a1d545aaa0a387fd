"""Small models of every class of `retable.models`, each with a function that calls the method of its protocol.

`test_models.py` fails for a class without a case. A case is a function of the dropout rate, which it uses for all
dropout.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, singledispatch
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import retable.models
from retable.models import base
from retable.models.base import Model
from retable.nn.transformer import Cache


def classes(package: ModuleType, base: type) -> Iterator[type]:
    """Yield the subclasses of `base` in the modules of a package, except those in its module `base`, which are
    protocols.
    """
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for kind in vars(module).values():
            own = isinstance(kind, type) and kind.__module__ == module.__name__
            if own and issubclass(kind, base) and info.name != "base":
                yield kind


models = SimpleNamespace(**{kind.__name__: kind for kind in classes(retable.models, Model)})  # all classes by name

V, E, D, H, F, B, T, U, LONG = 11, 6, 8, 2, 12, 4, 7, 5, 9
WORDS = ["<unk>", "<eos>", "the", "cat", "cats", "sat", "catamaran", "Cat", "a", "dog", "dogs"]
FILTERS = [(1, 3), (3, 4)]
LENGTHS, OTHER_LENGTHS = torch.tensor([5, 1, 7, 3]), torch.tensor([2, 5, 1, 3])  # not sorted
GENERATOR = torch.Generator().manual_seed(1)
IDS, OTHERS = (torch.randint(V, (B, n), generator=GENERATOR) for n in (T, U))  # random also after a row's end
SEGMENTS = torch.randint(2, (B, T), generator=GENERATOR)
IMAGES = torch.rand(B, 3, 8, 8, generator=GENERATOR)

ELMO = partial(models.ELMo, d_model=4, d_cell=6, n_layers=2, filters=FILTERS, d_character=3, n_highway=1)
SPELT = {"words": WORDS, "d_embedding": 5, "d_character": 3, "filters": [(2, 4)]}
GPTS: dict[str, dict[str, Any]] = {
    "gpt": {},
    "gpt, swish": {"activation": "swish"},
    "gpt, as Vaswani's": {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
    "gpt, as Llama": {"positions": "rotary", "activation": "swiglu", "bias": False},
    "gpt, separate documents": {"separate_documents": True, "boundary": 0},
}
BERTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "bert, pre-norm": {"norm": "pre"},
    "bert, without pooler": {"pooler": False, "d_embedding": 6},
    "bert, rotary": {"positions": "rotary"},
}
RNNS: dict[str, dict[str, Any]] = {
    "rnn, sutskever": {"attention": "none", "reading": "reversed", "n_layers": 2},
    "rnn, bilinear": {"attention": "bilinear", "n_layers": 2},
    "rnn, additive, fed": {"attention": "additive", "cell": "gru", "input_feeding": True},
    "rnn, forward": {"attention": "bilinear", "reading": "forward", "input_feeding": True},
}
GATED = {
    "gated convolution, wide": [[(2, 6)], [(1, 6)], [(4, 6)]],  # the first residual connection is a projection
    "gated convolution, bottleneck": [[(3, 8)], [(1, 2), (3, 2), (1, 8)], [(1, 2), (2, 2), (1, 10)]],
}
STACKS = {
    "stacked elman": ("elman", True, True),
    "stacked lstm": ("lstm", False, False),
}
T5S = {"t5 v1.0": "relu", "t5 v1.1": "geglu"}

CASES: dict[str, Callable[[float], Model]] = {
    # LeftToRight
    **{name: lambda p, s=s: models.GPT(V, D, 2, H, LONG, p, **s) for name, s in GPTS.items()},
    "gpt, special tokens": lambda p: models.GPTWithSpecialTokens(V, D, 2, H, LONG, p),
    "elman": lambda p: models.Elman(V, D, 2, p, 0.5),
    "gru": lambda p: models.GRU(V, D, 2, p, 0.5),
    "lstm": lambda p: models.LSTM(V, D, 2, p, 0.5),
    "lstm, projected": lambda p: models.LSTM(V, D, 2, p, 0.5, d_cell=13),
    **{
        name: lambda p, s=s: models.StackedRecurrent(V, D, 3, 0.5, s[1], s[2], s[0], p, True, p)
        for name, s in STACKS.items()
    },
    "stacked, first state": lambda p: models.StackedRecurrent(V, D, 2, 0.5, True, True, dropout=p, first_state=True),
    "stacked, one-hot": lambda p: models.StackedRecurrent(V, D, 2, 0.5, True, True, "gru", p, one_hot=True),
    "awd-lstm": lambda p: models.AWDLSTM(V, E, D, 3, p, p, p, p, p, alpha=2.0, beta=1.0),
    "character lstm": lambda p: models.CharacterLSTM(WORDS, 4, FILTERS, 1, D, 2, p, 0.5),
    **{f"fixed window of {n}": lambda p, n=n: models.FixedWindow(V, 4, n, 3, 5, n % 2 == 0, p, 0.5) for n in (2, 10)},
    "window tree": lambda p: models.WindowTree(V, 4, 4, 2, 3, 5, None, 0.1, 0.1, 0.1, dropout=p),
    "window tree, normalised": lambda p: models.WindowTree(V, 4, 9, 3, 3, 5, None, 0.1, 0.1, 0.1, 0.1, True, p),
    **{f"log-bilinear of {n}": lambda p, n=n: models.LogBilinear(V, 4, n, D, p, 0.5) for n in (1, 9)},
    **{name: lambda p, blocks=blocks: models.GatedConvolution(V, E, blocks, p) for name, blocks in GATED.items()},
    "transformer-xl": lambda p: models.TransformerXL(V, D, 2, H, F, 3, 5, p, p),
    "transformer-xl, variational": lambda p: models.TransformerXL(V, D, 2, H, F, 3, 0, p, p, variational=True),
    "one-stack t5": lambda p: models.OneStackT5(V, D, 2, H, F, p),
    # Encoder
    **{name: lambda p, s=s: models.BERT(V, D, 2, H, LONG, p, **s) for name, s in BERTS.items()},
    "bilstm": lambda p: models.BiLSTM(V, E, D, 2, p),
    "one-hot bilstm": lambda p: models.OneHotBiLSTM(V, D, 2, p),
    "bilstm with attention": lambda p: models.BiLSTMAttention(V, E, D, 1, p),
    "elmo bilstm": lambda p: models.ELMoBiLSTM(WORDS, partial(ELMO, dropout=p), E, D, 1, p, frozen=False),
    "elmo tagger": lambda p: models.ELMoTagger(
        4, **SPELT, elmo=partial(ELMO, dropout=p), d_model=D, n_layers=1, dropout=p, frozen=False
    ),
    "tagger": lambda p: models.BiLSTMTagger(4, **SPELT, d_model=D, n_layers=2, dropout=p),
    "character bilstm": lambda p: models.CharacterBiLSTM(4, WORDS, 5, 3, d_spelling=4, d_model=D, dropout=p),
    "character bilstm, words": lambda p: models.CharacterBiLSTM(V, WORDS, 5, 3, d_spelling=0, d_model=D, dropout=p),
    "cnn bilstm": lambda p: models.CNNBiLSTM(4, WORDS, 5, 3, n_filters=4, window=2, d_model=D, dropout=p),
    "cnn bilstm, words": lambda p: models.CNNBiLSTM(V, WORDS, 5, 3, n_filters=0, window=2, d_model=D, dropout=p),
    "window tagger": lambda p: models.WindowTagger(4, **SPELT, window=5, d_model=D, dropout=p),
    "window tagger, capitals": lambda p: models.WindowTagger(
        4, WORDS, 5, 0, [], window=3, d_model=D, dropout=p, folds_case=True, d_capitals=2
    ),
    **{f"lstm tagger of {n}": lambda p, n=n: models.LSTMTagger(V, WORDS, E, D, n, p) for n in (0, 1, 2)},
    "residual convolutions": lambda p: models.ResidualConvolutionalEncoder(V, E, D, 2, 3, p),
    "t5 encoder": lambda p: models.T5Encoder(V, D, 2, H, F, p),
    # SequenceEncoder, ImageEncoder
    "bag of words": lambda p: models.BagOfWords(V, p),
    "deep averaging": lambda p: models.DeepAveraging(V, D, 2, p),
    "published deep averaging": lambda p: models.DAN(V, D, 2, p, p),
    "published convolutions": lambda p: models.KimCNN(V, E, (2, 3, 4), 5, 0.0, p),
    "convolutions": lambda p: models.ConvolutionalEncoder(V, E, (2, 3, 4), 5, p),
    "one-hot convolutions": lambda p: models.OneHotConvolutionalEncoder(V, (2, 3), 4, p),
    "lenet": lambda p: models.LeNet(8, 3, 3, D, p),
    "vit": lambda p: models.ViT(8, 3, 4, D, 2, H, p),
    "pixels": lambda p: models.Pixels(8, 3, p),
    # EncoderDecoder
    **{
        name: lambda p, activation=each: models.T5(V, D, 2, H, F, p, activation, d_head=5) for name, each in T5S.items()
    },
    **{
        name: lambda p, s=s: models.RNNEncoderDecoder(V, 4, D, **({"n_layers": 1, "dropout": p} | s))
        for name, s in RNNS.items()
    },
    "rnn, separate vocabularies": lambda p: models.RNNEncoderDecoder(
        V, 4, D, 1, p, attention="bilinear", source_vocab_size=V, init_range=0.1
    ),
    "context, cho": lambda p: models.ContextEncoderDecoder(V, 4, D, p, attention=False),
    "context, bahdanau": lambda p: models.ContextEncoderDecoder(V, 4, D, p, attention=True, source_vocab_size=V),
    "transformer, separate vocabularies": lambda p: models.TransformerEncoderDecoder(
        V, D, 2, H, F, LONG, p, source_vocab_size=V, positions="learnt", inner_dropout=p, init="glorot"
    ),
    "transformer": lambda p: models.TransformerEncoderDecoder(V, D, 2, H, F, LONG, p),
    "transformer, pre-norm": lambda p: models.TransformerEncoderDecoder(V, D, 2, H, F, LONG, p, norm="pre"),
    "convolutional encoder-decoder": lambda p: models.ConvolutionalEncoderDecoder(V, D, 4, 2, 3, LONG, p),
    # BothDirections, Reader, VectorModel
    "elmo": lambda p: ELMO(WORDS, dropout=p),
    "elmo, of words": lambda p: ELMO(WORDS, dropout=p, filters=None),
    "bidaf": lambda p: models.BiDAF(7, **SPELT, n_highway=2, d_hidden=E, dropout=p),
    "bidaf, matches, elmo": lambda p: models.BiDAF(
        7, **SPELT, n_highway=1, d_hidden=E, dropout=p, folds_case=True, matches=True, elmo=partial(ELMO, dropout=p),
        frozen=False,
    ),
    "skip-gram": lambda p: models.SkipGram(WORDS, D),
    "cbow": lambda p: models.CBOW(WORDS, D),
    "fasttext": lambda p: models.FastText(WORDS, D, buckets=50),
    "glove": lambda p: models.GloVe(WORDS, D),
}  # fmt: skip


def spread(module: nn.Module) -> None:
    """Draw weights far from initial ones, where attention is uniform and normalisation has no effect."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            scale = "Norm" in type(part).__name__ and name == "weight"
            nn.init.normal_(parameter, mean=float(scale), std=0.5)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            nn.init.zeros_(part.weight.data[part.padding_idx])


def build(name: str, dropout: float = 0.0, seed: int = 0) -> Model:
    torch.default_generator.manual_seed(seed)
    model = CASES[name](dropout)
    spread(model)
    return model.eval()


@cache
def built(name: str) -> Model:
    """Return a model in evaluation mode that tests share and must not change; in training mode it would have dropout
    0.5.
    """
    return build(name, dropout=0.5)


def of_kind(*kinds: type[Model]) -> list[str]:
    """Return the names of the cases of these protocols."""
    return [name for name in CASES if isinstance(built(name), kinds)]


@singledispatch
def read(model: Model, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    """Read some rows of the batch. Return the states of each row, without padding."""
    raise NotImplementedError(type(model))


def cut(rows: Sequence[int], ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    lengths = lengths[list(rows)]
    return ids[list(rows), : int(lengths.max())], lengths


def apart(states: Sequence[Tensor], *lengths: Tensor) -> list[list[Tensor]]:
    """Return the states (B, T, ·) of each row up to its length; `lengths` has one entry per tensor."""
    of_each = [lengths[k % len(lengths)] for k in range(len(states))]
    return [[state[row, : n[row]] for state, n in zip(states, of_each, strict=True)] for row in range(len(states[0]))]


@read.register
def _(model: base.LeftToRight, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    return [[states] for states in model(IDS[list(rows)])[0]]


@read.register
def _(model: base.Encoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    ids, lengths = cut(rows, IDS, LENGTHS)
    return apart([model(ids, lengths)], lengths)


@read.register
def _(model: base.MarkedEncoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    (ids, lengths), (segments, _) = cut(rows, IDS, LENGTHS), cut(rows, SEGMENTS, LENGTHS)
    states = model(ids, lengths, segments)
    return [[*own, summary] for own, summary in zip(apart([states], lengths), model.pool(states), strict=True)]


@read.register
def _(model: base.PairEncoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    one, other = cut(rows, IDS, LENGTHS), cut(rows, OTHERS, OTHER_LENGTHS)
    return apart(model.read_pair(*one, *other), one[1], other[1])


@read.register
def _(model: base.SequenceEncoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    return [[vector] for vector in model(*cut(rows, IDS, LENGTHS))]


@read.register
def _(model: base.ImageEncoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    return [[vector] for vector in model(IMAGES[list(rows)])]


@read.register
def _(model: base.EncoderDecoder, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    return [[states] for states in model(*cut(rows, IDS, LENGTHS), OTHERS[list(rows)])]


@read.register
def _(model: base.BothDirections, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    ids, lengths = cut(rows, IDS, LENGTHS)
    return apart(model.layers(ids, lengths), lengths)


@read.register
def _(model: base.Reader, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    context, question = cut(rows, IDS, LENGTHS), cut(rows, OTHERS, OTHER_LENGTHS)
    return apart(model(*context, *question), context[1])


@read.register
def _(model: base.VectorModel, rows: Sequence[int] = range(B)) -> list[list[Tensor]]:
    return [[vector] for vector in model.vectors()[list(rows)]]


def flat(model: Model, rows: Sequence[int] = range(B)) -> Tensor:
    """Return all tensors that `read` returns as one vector."""
    return torch.cat([states.flatten() for row in read(model, rows) for states in row])


def leaves(state: Any) -> list[Tensor]:
    """Return the tensors of a state; each has the batch in dimension 1."""
    if isinstance(state, Cache):
        return [state.tensor]
    if isinstance(state, Tensor):
        return [state]
    return [] if state is None else [leaf for part in state for leaf in leaves(part)]


def chosen(state: Any, rows: Tensor) -> Any:
    """Return the state of some rows of the batch."""
    if isinstance(state, Cache):
        return state.select(rows)
    if isinstance(state, Tensor):
        return state[:, rows]
    return None if state is None else tuple(chosen(part, rows) for part in state)
