"""Test the messages of all errors of the package."""

from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.masking import MaskedBatch
from retable.models.base import EncoderDecoder, Reader
from retable.objectives.summary_as_text import require_summariser
from retable.objectives.word_by_word import WordByWord
from tests.contracts.model_cases import models as m
from tests.contracts.objective_cases import objectives as o

V, D, T = 20, 16, 6
SIZES = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
BY_TOKEN = {"tie": False, "bias": True, "reduction": "mean"}
WORDS = ["a", "b"]
bilstm, bag, averaging = m.BiLSTM(V, 8, D, 1), m.BagOfWords(V, 0.0), m.DeepAveraging(V, D, 1, 0.0)
gpt, lstm, bert = m.GPT(V, D, 1, 2, T, 0.0), m.LSTM(V, D, 1, 0.0, 0.1), m.BERT(V, D, 1, 2, T, 0.0)
t5, one_stack, t5_encoder = m.T5(**SIZES), m.OneStackT5(**SIZES), m.T5Encoder(**SIZES)
elmo = m.ELMo(["w"] * V, 4, 6, 1, 0.0, None)
both, skip_gram = m.BiLSTMAttention(V, 8, D, 1), m.SkipGram(WORDS, 2)
spelt = m.CharacterLSTM(["<eos>", "ab"], 3, [(1, 4)], 1, D, 1, 0.0, 0.1)
one_hot = m.StackedRecurrent(V, D, 1, 0.1, True, True, one_hot=True)
without_embedding = m.BiLSTM(V, 8, D, 1)
del without_embedding.embedding
causal = partial(o.CausalLM, vocab_size=V, **BY_TOKEN)
adaptive = partial(o.AdaptiveSoftmax, lstm, V, cutoffs=[5, 12], division=4.0, **BY_TOKEN)
max_entropy = partial(o.MaxEntropyLM, m.LSTM(70, D, 1, 0.0, 0.1), 70, order=3, table_size=999, **BY_TOKEN)
classify = partial(o.Classification, n_labels=3, dropout=0.0)


def detection(model, **changed) -> o.ReplacedTokenDetection:
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_length": T, "dropout": 0.0, "d_embedding": 12} | changed
    return o.ReplacedTokenDetection(model, V, partial(m.BERT, **settings, pooler=False))


def without_pairs() -> None:
    ids, one = torch.zeros(1, T, dtype=torch.long), torch.tensor([1])
    o.MaskedLM(bert, V, next_sentence=True).loss(MaskedBatch(ids, ids, one, one, one, None, one, 1.0, 1.0), None, 0)


CUTOFFS = [[], [20], [0, 5], [5, 5], [12, 5], [5, 20], [5, 12, 20]]
MISTAKES = [
    (lambda: causal(bilstm), r"BiLSTM reads the sentence from both sides.*recipe=recurrent/lstm or transformer/gpt"),
    (lambda: causal(elmo), "ELMo reads the sentence from both sides"),
    (lambda: causal(t5), "T5 reads the sentence from both sides"),
    (lambda: causal(spelt, tie=True), r"CharacterLSTM has no word embedding.*write objective\.tie=false"),
    (lambda: causal(one_hot, tie=True), "no word embedding for the softmax to share"),
    (lambda: adaptive(division=5.0), r"no dimension of d_model=16 for cluster 2; lower objective\.division"),
    *((lambda c=c: adaptive(cutoffs=c), r"cutoffs=.* the vocabulary size 20; .*cutoffs=\[4,10\]") for c in CUTOFFS),
    (lambda: max_entropy(order=1), r"objective\.order=2"),
    (lambda: max_entropy(table_size=127), r"too small for 70 words; write about objective\.table_size=128000"),
    (lambda: o.SampledSoftmax(lstm, V, **BY_TOKEN, samples=0, power=1.0), r"samples=0 means that no noise.*samples=1"),
    (lambda: o.BidirectionalLM(gpt, V), r"GPT does not read backwards.*objective=causal_lm"),
    (lambda: o.BidirectionalLM(bilstm, V), r"BiLSTM sees both sides at every position.*recipe=elmo/elmo"),
    (lambda: o.MaskedLM(gpt, V, False), r"masked_lm.*GPT does not see the text after.*recipe=bert/bert"),
    (lambda: o.MaskedLM(EncoderDecoder(), V, False), r"masked_lm.*EncoderDecoder has a decoder.*text_to_text"),
    (lambda: o.MaskedLM(bag, V, False), r"masked_lm.*BagOfWords has no state for every position.*recipe=bert/bert"),
    (lambda: o.MaskedLM(bilstm, V, True), r"BiLSTM computes no summary of a pair.*objective\.next_sentence=false"),
    (lambda: o.MaskedLM(without_embedding, V, False), r"BiLSTM has no word embedding.*objective\.tie=false"),
    (without_pairs, r"batches do not contain pairs.*batches\.next_sentence=next_sentence"),
    (lambda: detection(gpt), r"replaced_token_detection.*GPT does not see the text after"),
    (lambda: detection(bilstm), "shares token and position embeddings, which BiLSTM lacks"),
    (lambda: detection(m.BERT(V, D, 1, 2, T, 0.0, positions="rotary")), r"which BERT lacks; take recipe=bert/electra"),
    (lambda: detection(bert), r"cannot share embedding of shape \(20, 16\), because .* weights have shape \(20, 12\)"),
    (
        lambda: detection(m.BERT(V, D, 1, 2, T, 0.0, d_embedding=12), max_length=4),
        r"cannot share positions of shape \(6, 12\), because the generator's own weights have shape \(4, 12\)",
    ),
    (lambda: o.TextToText(gpt, V, True), r"GPT has one stack.*recipe=t5/t5, or .*=prefix_lm or .*=causal_lm"),
    (lambda: o.TextToText(bilstm, V, True), r"BiLSTM has one stack.*recipe=t5/t5, or write objective=masked_lm"),
    (lambda: o.TextToText(one_stack, V, True), r"OneStackT5 has one stack.*recipe=t5/t5, or .*=prefix_lm"),
    (lambda: o.PrefixLM(t5, V, True), r"T5 does not continue a prefix.*recipe=t5/prefix_lm, or .*=text_to_text"),
    (lambda: o.PrefixLM(bilstm, V, True), r"BiLSTM does not continue a prefix.*recipe=t5/prefix_lm, or .*=masked_lm"),
    (lambda: o.PrefixLM(gpt, V, True), r"GPT does not have attention to a whole prefix.*objective=causal_lm"),
    (lambda: o.PrefixLM(lstm, V, True), r"LSTM does not have attention to a whole prefix.*objective=causal_lm"),
    (lambda: o.Translation(gpt, V, 0.1, True, False), r"GPT has one stack.*recipe=translation/transformer_translation"),
    (lambda: o.Translation(t5, V, 1.0, True, False), r"label_smoothing=1\.0 is out of range"),
    (
        lambda: o.Translation(m.RNNEncoderDecoder(V, 4, D, 1, 0.0), V, 0.1, True, False),
        "embedding of 4 dimensions cannot be the softmax of a model with 16",
    ),
    *(
        (lambda model=model: classify(model, auxiliary=0.5), r"sees the tokens that .* auxiliary=0\.5.*/gpt")
        for model in (bilstm, bert, averaging, t5_encoder)
    ),
    (lambda: classify(one_hot, auxiliary=0.5), r"word embedding of its states' width 16, .*write auxiliary=0"),
    (lambda: classify(both), r"BiLSTMAttention reads only sentence pairs; take recipe=encoders/bilstm"),
    (lambda: classify(t5), r"T5 writes text.*take recipe=t5/t5_toy_encoder"),
    (lambda: classify(elmo), r"ELMo only computes features.*take recipe=encoders/bilstm_elmo"),
    (lambda: classify(Reader()), r"Reader is not a sentence encoder; take recipe=encoders/bilstm or bert/bert"),
    *(
        (lambda model=model, p=p: classify(model, pooling=p), rf"one direction, but pooling={p} needs both")
        for model in (lstm, gpt, one_stack)
        for p in ("token", "last")
    ),
    (lambda: classify(bert, pooling="last"), r"BERT does not have a last state for each direction; write pooling=max"),
    (lambda: classify(t5_encoder, pooling="last"), r"T5Encoder does not have a last state for each direction"),
    (lambda: classify(averaging, pooling="mean"), "computes one vector per sequence, so pooling=mean has no effect"),
    (lambda: classify(averaging, pooling="median"), "unknown pooling=median; write one of max, mean, token, last"),
    (lambda: o.MultipleChoice(t5, 0.0), r"T5 writes text, and has no state to predict a label from; .* bert/bert"),
    (lambda: o.MultipleChoice(elmo, 0.0), r"ELMo only computes features.*take recipe=encoders/bilstm_elmo"),
    (lambda: o.MultipleChoice(bert, 0.0, auxiliary=0.5), r"sees the tokens that it would predict with auxiliary=0\.5"),
    (lambda: o.PrefixClassification(bilstm, 3, 0.0), r"BiLSTM does not have a state for each beg.*/lstm_prefixes"),
    (lambda: o.Tagging(bag, ["A"], 0.0), r"BagOfWords has no state for each token.*recipe=encoders/bilstm or bert/b"),
    (lambda: o.Tagging(t5, ["A"], 0.0), "T5 writes text, and has no state to be tagged by"),
    (lambda: o.Tagging(elmo, ["A"], 0.0), r"ELMo only computes features.*take recipe=encoders/bilstm_elmo"),
    (lambda: o.Tagging(bilstm, ["O"], 0.0, scheme="IOB2"), r"scheme=IOB2 needs a CRF.*write crf=true"),
    (lambda: o.AnswerSpan(bag, 0.0), r"BagOfWords has no state for each token to find an answer by; take recipe="),
    (lambda: o.Antecedents(Reader()), r"Reader does not rank the antecedents of spans; .*=coreference/mention_ranker"),
    (lambda: require_summariser(m.BERT), r"^BERT has one stack, .* recipe=summaries/t5_summaries"),
    *(
        (lambda kind=kind, counts=counts: kind(skip_gram, counts), "counts for .* all 0; pass")
        for kind in (o.FullSoftmax, o.HierarchicalSoftmax, o.NegativeSampling)
        for counts in ([0, 0], [1, -1])
        if kind is not o.FullSoftmax or not any(counts)
    ),
    *(
        (lambda s=s: o.NegativeSampling(skip_gram, [1, 1], **{s: 0}), rf"{s}=0.*: both must be 1 or more")
        for s in ("negatives", "pool")
    ),
    (lambda: WordByWord(o.NegativeSampling(skip_gram, [1, 1]), threads=0), "threads=0 is out of range; write 1"),
    (lambda: o.NegativeSampling(m.GloVe(WORDS, 2), [1, 1]), "GloVe does not predict words of windows; write"),
    (lambda: o.WeightedLeastSquares(skip_gram, np.ones(2)), "can train only GloVe, not SkipGram; write recipe="),
    (
        lambda: WordByWord(o.FullSoftmax(skip_gram, [1, 1])),
        "FullSoftmax cannot be trained word by word; write word_by_word=false",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_named(make, message):
    with pytest.raises(UsageError, match=message):
        make()
