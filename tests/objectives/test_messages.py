"""The message of every mistake that the package refuses."""

from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.masking import MaskedBatch
from retable.models.bag_of_words import BagOfWords, DeepAveraging
from retable.models.base import EncoderDecoder, Reader
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention
from retable.models.character_lstm import CharacterLSTM
from retable.models.elmo import ELMo
from retable.models.glove import GloVe
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.skipgram import SkipGram
from retable.models.stacked_recurrent import StackedRecurrent
from retable.models.t5 import T5, OneStackT5
from retable.models.t5_encoder import T5Encoder
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.answer_span import AnswerSpan
from retable.objectives.antecedents import Antecedents
from retable.objectives.bidirectional_lm import BidirectionalLM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.objectives.full_softmax import FullSoftmax
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.max_entropy_lm import MaxEntropyLM
from retable.objectives.multiple_choice import MultipleChoice
from retable.objectives.negative_sampling import NegativeSampling
from retable.objectives.prefix_classification import PrefixClassification
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.objectives.sampled_softmax import SampledSoftmax
from retable.objectives.summary_as_text import require_summariser
from retable.objectives.tagging import Tagging
from retable.objectives.text_to_text import TextToText
from retable.objectives.translation import Translation
from retable.objectives.weighted_least_squares import WeightedLeastSquares
from retable.objectives.word_by_word import WordByWord

V, D, T = 20, 16, 6
SIZES = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
BY_TOKEN = {"tie": False, "bias": True, "reduction": "mean"}
WORDS = ["a", "b"]
bilstm, bag, averaging = BiLSTM(V, 8, D, 1), BagOfWords(V, 0.0), DeepAveraging(V, D, 1, 0.0)
gpt, lstm, bert = GPT(V, D, 1, 2, T, 0.0), LSTM(V, D, 1, 0.0, 0.1), BERT(V, D, 1, 2, T, 0.0)
t5, one_stack, t5_encoder = T5(**SIZES), OneStackT5(**SIZES), T5Encoder(**SIZES)
elmo = ELMo(["w"] * V, 4, 6, 1, 0.0, None)
both, skip_gram = BiLSTMAttention(V, 8, D, 1), SkipGram(WORDS, 2)
spelt = CharacterLSTM(["<eos>", "ab"], 3, [(1, 4)], 1, D, 1, 0.0, 0.1)
one_hot = StackedRecurrent(V, D, 1, 0.1, True, True, one_hot=True)
without_embedding = BiLSTM(V, 8, D, 1)
del without_embedding.embedding


def causal(model, **changed) -> CausalLM:
    return CausalLM(model, V, **(BY_TOKEN | changed))


def adaptive(**changed) -> AdaptiveSoftmax:
    return AdaptiveSoftmax(lstm, V, **(BY_TOKEN | {"cutoffs": [5, 12], "division": 4.0} | changed))


def max_entropy(**changed) -> MaxEntropyLM:
    return MaxEntropyLM(LSTM(70, D, 1, 0.0, 0.1), 70, **(BY_TOKEN | {"order": 3, "table_size": 999} | changed))


def detection(model, **changed) -> ReplacedTokenDetection:
    settings = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_length": T, "dropout": 0.0, "d_embedding": 12} | changed
    return ReplacedTokenDetection(model, V, partial(BERT, **settings, pooler=False))


def without_pairs() -> None:
    ids, one = torch.zeros(1, T, dtype=torch.long), torch.tensor([1])
    MaskedLM(bert, V, next_sentence=True).loss(MaskedBatch(ids, ids, one, one, one, None, one, 1.0, 1.0), None, 0)


def classify(model, **settings) -> Classification:
    return Classification(model, 3, 0.0, **settings)


CUTOFFS = [[], [0, 5], [5, 5], [12, 5], [5, 20]]
MISTAKES = [
    (lambda: causal(bilstm), r"BiLSTM reads the sentence from both sides.*recipe=recurrent/lstm or transformer/gpt"),
    (lambda: causal(elmo), "ELMo reads the sentence from both sides"),
    (lambda: causal(t5), "T5 reads the sentence from both sides"),
    (lambda: causal(spelt, tie=True), r"CharacterLSTM has no word embedding.*write objective\.tie=false"),
    (lambda: causal(one_hot, tie=True), "no word embedding that the softmax could share"),
    (lambda: adaptive(division=5.0), r"nothing of d_model=16 for cluster 2; lower objective\.division"),
    *((lambda c=c: adaptive(cutoffs=c), r"cutoffs=.* below the vocabulary's 20; .*cutoffs=\[4,10\]") for c in CUTOFFS),
    (lambda: max_entropy(order=1), r"objective\.order=2"),
    (lambda: max_entropy(table_size=127), r"no room for 70 words; write objective\.table_size=128000"),
    (lambda: SampledSoftmax(lstm, V, **BY_TOKEN, samples=0, power=1.0), r"samples=0 leaves no noise.*samples=1"),
    (lambda: BidirectionalLM(gpt, V), r"GPT has no direction that reads backwards.*objective=causal_lm"),
    (lambda: BidirectionalLM(bilstm, V), r"every position of BiLSTM has seen both sides.*recipe=elmo/elmo"),
    (lambda: MaskedLM(gpt, V, False), r"masked_lm.*GPT sees nothing of what comes after.*recipe=bert/bert"),
    (lambda: MaskedLM(EncoderDecoder(), V, False), r"masked_lm.*EncoderDecoder has a decoder.*text_to_text"),
    (lambda: MaskedLM(bag, V, False), r"masked_lm.*BagOfWords has no state for every position.*recipe=bert/bert"),
    (lambda: MaskedLM(bilstm, V, True), r"BiLSTM has no summary of a pair.*objective\.next_sentence=false"),
    (lambda: MaskedLM(without_embedding, V, False), r"BiLSTM has no word embedding.*objective\.tie=false"),
    (without_pairs, r"batches have no pairs.*batches\.next_sentence=next_sentence"),
    (lambda: detection(gpt), r"replaced_token_detection.*GPT sees nothing of what comes after"),
    (lambda: detection(bilstm), "shares token and position embeddings, which BiLSTM lacks"),
    (lambda: detection(BERT(V, D, 1, 2, T, 0.0, positions="rotary")), r"which BERT lacks; take recipe=bert/electra"),
    (lambda: detection(bert), r"can't share embedding of the shape \(20, 16\) with its own of \(20, 12\)"),
    (
        lambda: detection(BERT(V, D, 1, 2, T, 0.0, d_embedding=12), max_length=4),
        r"can't share positions of the shape \(6, 12\) with its own of \(4, 12\)",
    ),
    (lambda: TextToText(gpt, V, True), r"GPT is one stack.*recipe=t5/t5, or .*=prefix_lm or .*=causal_lm"),
    (lambda: TextToText(bilstm, V, True), r"BiLSTM is one stack.*recipe=t5/t5, or write objective=masked_lm"),
    (lambda: TextToText(one_stack, V, True), r"OneStackT5 is one stack.*recipe=t5/t5, or .*=prefix_lm"),
    (lambda: PrefixLM(t5, V, True), r"T5 does not read on.*recipe=t5/prefix_lm, or write objective=text_to_text"),
    (lambda: PrefixLM(bilstm, V, True), r"BiLSTM does not read on.*recipe=t5/prefix_lm, or .*=masked_lm"),
    (lambda: PrefixLM(gpt, V, True), r"GPT has no attention that sees all of a prefix.*objective=causal_lm"),
    (lambda: PrefixLM(lstm, V, True), r"LSTM has no attention that sees all of a prefix.*objective=causal_lm"),
    (lambda: Translation(gpt, V, 0.1, True, False), r"GPT is one stack.*recipe=translation/transformer_translation"),
    (lambda: Translation(t5, V, 1.0, True, False), r"label_smoothing=1\.0 is no share"),
    (
        lambda: Translation(RNNEncoderDecoder(V, 4, D, 1, 0.0), V, 0.1, True, False),
        "embedding of 4 dimensions can't be the softmax of a model with 16",
    ),
    *(
        (lambda model=model: classify(model, auxiliary=0.5), r"has seen the tokens that auxiliary=0\.5.*/gpt")
        for model in (bilstm, bert, averaging, t5_encoder)
    ),
    (lambda: classify(one_hot, auxiliary=0.5), r"no word embedding as wide as its states, 16, .*write auxiliary=0"),
    (lambda: classify(both), r"BiLSTMAttention reads pairs of sentences; take recipe=encoders/bilstm"),
    (lambda: classify(t5), r"T5 writes text.*take recipe=t5/t5_toy_encoder"),
    (lambda: classify(elmo), r"ELMo gives features.*take recipe=encoders/bilstm_elmo"),
    (lambda: classify(Reader()), r"Reader is no encoder of sentences; take recipe=encoders/bilstm or bert/bert"),
    *(
        (lambda model=model, p=p: classify(model, pooling=p), rf"one way, and pooling={p} is for both")
        for model in (lstm, gpt, one_stack)
        for p in ("token", "last")
    ),
    (lambda: classify(bert, pooling="last"), r"BERT has no last states of two directions; write pooling=max"),
    (lambda: classify(t5_encoder, pooling="last"), r"T5Encoder has no last states of two directions"),
    (lambda: classify(averaging, pooling="mean"), "has a summary of its own; leave pooling=mean out"),
    (lambda: classify(averaging, pooling="median"), "pooling=median is none of max, mean, token, last"),
    (lambda: MultipleChoice(t5, 0.0), r"T5 writes text, and has no state to tell a label by; .* bert/bert"),
    (lambda: MultipleChoice(elmo, 0.0), r"ELMo gives features.*take recipe=encoders/bilstm_elmo"),
    (lambda: MultipleChoice(bert, 0.0, auxiliary=0.5), r"has seen the tokens that auxiliary=0\.5 asks it to predict"),
    (lambda: PrefixClassification(bilstm, 3, 0.0), r"BiLSTM has no state of each beginning.*/lstm_prefixes"),
    (lambda: Tagging(bag, ["A"], 0.0), r"BagOfWords has no state for each token.*recipe=encoders/bilstm or bert/bert"),
    (lambda: Tagging(t5, ["A"], 0.0), "T5 writes text, and has no state to be tagged by"),
    (lambda: Tagging(elmo, ["A"], 0.0), r"ELMo gives features.*take recipe=encoders/bilstm_elmo"),
    (lambda: Tagging(bilstm, ["O"], 0.0, scheme="IOB2"), r"scheme=IOB2 is kept by a CRF.*write crf=true"),
    (lambda: AnswerSpan(bag, 0.0), r"BagOfWords has no state for each token to find an answer by; take recipe="),
    (lambda: Antecedents(Reader()), r"Reader does not rank the antecedents of spans; .*=coreference/mention_ranker"),
    (lambda: require_summariser(BERT), r"^BERT is one stack, .* recipe=summaries/t5_summaries"),
    *(
        (lambda kind=kind, counts=counts: kind(skip_gram, counts), "counts of words")
        for kind in (FullSoftmax, HierarchicalSoftmax, NegativeSampling)
        for counts in ([0, 0], [1, -1])
        if kind is not FullSoftmax or not any(counts)
    ),
    (lambda: NegativeSampling(GloVe(WORDS, 2), [1, 1]), "GloVe predicts no words of windows; write"),
    (lambda: WeightedLeastSquares(skip_gram, np.ones(2)), "is GloVe's, not SkipGram's; write recipe=vectors/glove"),
    (
        lambda: WordByWord(FullSoftmax(skip_gram, [1, 1])),
        "FullSoftmax can't be trained word by word; write word_by_word=false",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_named(make, message):
    with pytest.raises(UsageError, match=message):
        make()
