"""Test the messages of all errors of the package; errors of model files are tested with their formats."""

from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.cache import UnigramCache
from retable.models.ngram import KneserNey
from retable.models.sparse_nonnegative_matrix import SparseNonnegativeMatrix
from tests.contracts.model_cases import models as m

V, D, WORDS = 11, 8, ["<unk>", "the", "cat"]
ELMO = partial(m.ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.0, filters=None)
gpt, bert = partial(m.GPT, V, D, 1, 2, 6, 0.0), partial(m.BERT, V, D, 1, 2, 6, 0.0)
rnn = partial(m.RNNEncoderDecoder, vocab_size=V, d_embedding=4, n_layers=1, dropout=0.0)
t5 = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
SPELT = {"words": WORDS, "d_embedding": 5, "d_character": 3, "filters": [(1, 2)]}
SOURCE = torch.ones(1, 2, dtype=torch.long), torch.tensor([2]), torch.ones(1, 3, dtype=torch.long)
EMPTY, TWO_DIMENSIONS = np.array([], int), np.zeros((2, 3), int)


def snm(vocab_size: int = 9, boundary: int = 0, order: int = 2) -> SparseNonnegativeMatrix:
    return SparseNonnegativeMatrix(vocab_size, boundary, order)


MISTAKES = [
    (lambda: gpt(norm="both"), "norm=both is not an option of GPT; write one of pre, post"),
    (lambda: gpt(positions="relative"), "positions=relative is not an option .* one of learnt, sinusoidal, rotary"),
    (lambda: gpt(activation="tanh"), "activation=tanh is not .* one of relu, gelu, silu, swiglu, swish"),
    (lambda: bert(norm="both"), "norm=both is not an option of BERT; write one of post, pre"),
    (lambda: bert(positions="relative"), "positions=relative is not an option .* one of learnt, rotary"),
    (lambda: bert(positions="rotary", sinusoids=True), "needs positions=learnt, but positions=rotary; write"),
    (lambda: bert()(torch.zeros(1, 7, dtype=torch.long)), r"7 tokens.*max_length=6"),
    (lambda: m.T5(**t5, activation="gelu"), "activation=gelu is not an option of T5; .* relu, geglu"),
    (lambda: m.OneStackT5(**t5, activation="gelu"), "activation=gelu is not an option of T5; .* relu, geglu"),
    (lambda: m.TransformerEncoderDecoder(V, D, 1, 2, 12, 9, 0.0, norm="both"), "norm=both is not .* write post or pre"),
    (lambda: m.TransformerXL(V, D, 1, 3, 12, 4, 4, 0.0, 0.0), "d_model=8 must be even and a multiple of n_heads=3"),
    (lambda: m.StackedRecurrent(V, D, 1, 0.1, True, True, "rnn"), "cell=rnn is not .* one of elman, gru, lstm"),
    (lambda: m.FixedWindow(V, 4, 1, 3, 5, False, 0.0, 0.5), "order=1 is out of range; write 2 or more"),
    (lambda: m.BiLSTM(V, 4, 9, 1, 0.0), "a width of 9 must be even"),
    (lambda: rnn(d_model=6, cell="rnn"), "cell=rnn is not an option .* one of lstm, gru"),
    (lambda: rnn(d_model=6, reading="backward"), "reading=backward is not .* one of both, forward, reversed"),
    (lambda: rnn(d_model=6, attention="dot"), "attention=dot is not .* one of none, bilinear, additive"),
    (lambda: rnn(d_model=6, input_feeding=True), r"needs attention; write model\.input_feeding=false"),
    (lambda: rnn(d_model=5), "d_model=5 is odd, but each direction gets half"),
    (lambda: rnn(d_model=6, attention="none").align(*SOURCE), "attention=none has no attention weights"),
    (lambda: m.ConvolutionalEncoderDecoder(V, D, 4, 1, 2, 9, 0.0), r"model\.kernel_size=2 is even"),
    (lambda: m.WindowTagger(3, **SPELT, window=4, d_model=D, dropout=0.0), r"window=4 has no middle word.* such as 5"),
    (lambda: m.WindowTagger(3, **{**SPELT, "d_character": 0}, window=3, d_model=D, dropout=0.0),
     r"d_character=0 and model\.filters=\[\[1, 2\]\] contradict each other; write both, .*or model\.d_character=0"),
    (lambda: m.WindowTagger(3, **{**SPELT, "filters": []}, window=3, d_model=D, dropout=0.0),
     r"d_character=3 and model\.filters=\[\] contradict each other; write both"),
    (lambda: ELMO(WORDS).layers_of_words([["cat"]]), r"looks words up in a table.*use recipe=elmo/elmo"),
    *(
        (lambda layers=layers: m.ELMoBiLSTM(WORDS, ELMO, 6, D, 1, layers=layers), "not ELMo layers; write indices")
        for layers in ([3], [-1], [])
    ),
    (lambda: m.ViT(12, 3, 5, D, 1, 2, 0.0), "patch_size=5 does not divide images of 12 pixels"),
    (lambda: m.LeNet(10, 3, 3, D, 0.0), "images of 10 pixels cannot be halved twice"),
    (lambda: m.FastText(WORDS, 2, buckets=0), "buckets=0 is out of range; write 1 or more"),
    (lambda: UnigramCache(7, 0), "size=0 is out of range"),
    *((lambda ids=ids: UnigramCache(7, 2).log_prob(np.array(ids)), "ids below .*=7") for ids in ([7], [-1], [[0, 0]])),
    (lambda: KneserNey(5, 0, 0), "order=0 is out of range"),
    (lambda: KneserNey(5, 3, 5), "boundary=5 is out of range"),
    (lambda: KneserNey(5, 3, -1), "boundary=-1 is out of range"),
    (lambda: KneserNey(5, 2, 0).estimate(EMPTY), "empty"),
    (lambda: KneserNey(5, 2, 0).log_prob(np.array([1, 5, 0])), "token 5 is not an id below 5"),
    (lambda: KneserNey(5, 2, 0).estimate(TWO_DIMENSIONS), "shape"),
    (lambda: snm(order=0), "order=0 is out of range"),
    (lambda: snm(boundary=9), "boundary=9 is out of range"),
    (lambda: snm().estimate(EMPTY), "empty"),
    *((lambda ids=ids: snm().log_prob(np.array(ids)), "not a stream of ids below 9") for ids in ([1, 9], [[1, 2]])),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_named(make, message):
    with pytest.raises((UsageError, ValueError), match=message):
        make()
