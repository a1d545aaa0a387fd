"""Test the scorer against loops that read one text, and one token, at a time."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers

from retable.core.errors import UsageError
from retable.evaluation import scoring
from retable.evaluation.bidirectional import BothDirections
from retable.evaluation.dynamic_evaluation import LearningLM
from retable.evaluation.held_out import PretrainedObjective
from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow
from retable.evaluation.mixture import Mixture
from retable.evaluation.neural_cache import CachedLM
from retable.evaluation.scoring import Scorer
from retable.evaluation.word_vectors import WordVectors
from retable.models.cache import UnigramCache
from retable.models.elmo import ELMo
from retable.models.fixed_window import FixedWindow
from retable.models.gpt import GPT
from retable.models.ngram import BackoffModel, KneserNey, NGrams
from retable.models.recurrent import LSTM
from retable.models.sparse_nonnegative_matrix import SparseNonnegativeMatrix
from retable.models.t5 import T5, OneStackT5
from retable.models.transformer_xl import TransformerXL
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.bidirectional_lm import BidirectionalLM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.max_entropy_lm import MaxEntropyLM
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.text_to_text import TextToText
from retable.tokenizers import word
from retable.tokenizers.tokenizer import Tokenizer

TOKENIZER = word.train(["a b c d e f g h"], marks=["<extra_id_0>", "<extra_id_1>"])
V, EOS, WINDOW = TOKENIZER.vocab_size, TOKENIZER.boundary, 6
SENTINEL = TOKENIZER.special_ids["<extra_id_0>"]
RNG = np.random.default_rng(0)
CONTEXTS = [RNG.integers(V, size=n).tolist() for n in (0, 3, 1, 0, 7, 2, 4, 0, 1, 3)]
CONTINUATIONS = [RNG.integers(V, size=n).tolist() for n in (4, 1, 0, 9, 2, 3, 1, 1, 5, 2)]
CAUSAL = {
    "lstm": lambda: CausalLM(LSTM(V, 5, 2, 0.1, 1.0), V, True, True, "time_sum", projection=0.1),
    "gpt": lambda: CausalLM(GPT(V, 8, 2, 2, WINDOW, 0.1), V, True, False, "mean"),
    "fixed window": lambda: CausalLM(FixedWindow(V, EOS, 3, 4, 5, True, 0.1, 1.0), V, False, True, "mean"),
    "transformer-xl": lambda: CausalLM(TransformerXL(V, 8, 2, 2, 6, 3, 4, 0.1, 0.1), V, False, True, "mean"),
    "one stack": lambda: CausalLM(OneStackT5(V, 8, 1, 2, 6, 0.1), V, True, False, "mean"),
    "adaptive": lambda: AdaptiveSoftmax(LSTM(V, 8, 1, 0.1, 1.0), V, False, False, "mean", [4], 2.0),
    "features": lambda: MaxEntropyLM(LSTM(V, 5, 1, 0.1, 1.0), V, False, True, "mean", order=3, table_size=6400),
}


def wide(objective):
    """Draw weights far from initial ones, so that all of the context matters; without dropout."""
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return objective.eval()


def trained(kind: str) -> NeuralLM:
    torch.manual_seed(0)
    scorer = SlidingWindow(WINDOW, 2, 3) if kind == "gpt" else Carried(1)
    return NeuralLM(wide(CAUSAL[kind]()), scorer, EOS)


def counted(kind: str):
    if kind == "cache":
        return UnigramCache(V, 3)
    model = KneserNey(V, 3, EOS) if kind == "kn" else SparseNonnegativeMatrix(V, EOS, order=3, steps=3)
    model.estimate(np.random.default_rng(1).zipf(1.4, 300) % V)
    return model


def conditioned(kind: str) -> PretrainedObjective:
    torch.manual_seed(0)
    if kind == "prefix":
        objective = PrefixLM(OneStackT5(V, 8, 2, 2, 6, 0.1), V, tie=False)
    else:
        objective = TextToText(T5(V, 8, 2, 2, 6, 0.1), V, tie=True)
    return PretrainedObjective(wide(objective), lambda split: None)


def by_token(distribution, context, continuation) -> float:
    """Return the sum of the log-probabilities of the tokens, each from the distribution after all tokens before it."""
    text = list(context)
    total = 0.0
    for token in continuation:
        total += float(distribution(text)[token])
        text.append(token)
    return total


def check(system, distribution, contexts=CONTEXTS, continuations=CONTINUATIONS, **settings):
    found = Scorer(system, TOKENIZER, **settings).log_prob(contexts, continuations)
    expected = [by_token(distribution, *pair) for pair in zip(contexts, continuations, strict=True)]
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5) and len(set(expected)) == len(expected)


@pytest.fixture(params=[4096, 12], ids=["one batch", "many batches"])
def tokens(request, monkeypatch):
    monkeypatch.setattr(scoring, "TOKENS", request.param)


def by_stream(system, found):
    """Compare with the scores of each whole text, computed by the system."""
    for log_prob, context, continuation in zip(found, CONTEXTS, CONTINUATIONS, strict=True):
        each = system.log_prob(np.array([*context, *continuation], dtype=np.int64))
        assert log_prob == pytest.approx(sum(each[len(context) :]), rel=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in CAUSAL if kind != "gpt"])
@torch.inference_mode()
def test_of_trained_models(kind, tokens):
    system = trained(kind)
    objective = system.objective
    check(system, lambda text: objective.next_log_prob(torch.tensor([[EOS, *text]]), objective.start)[0][0])


@torch.inference_mode()
def test_of_a_window(tokens):
    """A text that fits into the window is scored whole; otherwise by the system's sliding window."""
    system = trained("gpt")
    by_stream(system, Scorer(system, TOKENIZER).log_prob(CONTEXTS, CONTINUATIONS))
    assert max(len(a) + len(b) for a, b in zip(CONTEXTS, CONTINUATIONS, strict=True)) > WINDOW


@pytest.mark.parametrize("kind", ["kn", "snm", "cache"])
def test_of_counted_models(kind):
    model = counted(kind)
    check(model, lambda text: model.next_log_prob(np.array(text, dtype=np.int64)))


def test_of_a_mixture():
    systems, weights = [trained("lstm"), counted("kn"), counted("cache")], np.array([0.5, 0.3, 0.2])

    @torch.inference_mode()
    def distribution(text):
        after = systems[0].objective.next_log_prob(torch.tensor([[EOS, *text]]), None)[0][0].double().exp().numpy()
        others = [np.exp(system.next_log_prob(np.array(text, dtype=np.int64))) for system in systems[1:]]
        return np.log(weights @ np.stack([after, *others]))

    check(Mixture(systems, weights), distribution)


def test_of_elmo_forward(tokens):
    words = TOKENIZER.words
    torch.manual_seed(0)
    system = BothDirections(wide(BidirectionalLM(ELMo(words, 5, 7, 2, 0.1, None), V)), TOKENIZER)
    by_stream(system, Scorer(system, TOKENIZER).log_prob(CONTEXTS, CONTINUATIONS))


@pytest.mark.parametrize("sentinels", [False, True])
@pytest.mark.parametrize("kind", ["t5", "prefix"])
@torch.inference_mode()
def test_of_models_that_read_the_context_first(kind, sentinels, tokens):
    """The model reads the context, the sentinel and the end mark; then the start mark, and the sentinel again."""
    system = conditioned(kind)
    objective, sentinel = system.objective, [SENTINEL] * sentinels

    for contexts in (CONTEXTS, [[] for _ in CONTEXTS]):
        totals = []
        for context, continuation in zip(contexts, CONTINUATIONS, strict=True):
            source = torch.tensor([[*context, *sentinel, EOS]])
            target = torch.tensor([[objective.start_id, *sentinel, *continuation]])
            length = torch.tensor([source.shape[1]])
            if kind == "t5":
                hidden = objective.model(source, length, target)
            else:
                hidden = objective.model(torch.cat([source, target], dim=1), prefix=length)[0][:, source.shape[1] :]
            each = objective.scores(hidden[0]).log_softmax(1)[len(sentinel) : target.shape[1] - 1]
            totals.append(float(each[range(len(continuation)), continuation].sum()))
        found = Scorer(system, TOKENIZER, sentinels=sentinels).log_prob(contexts, CONTINUATIONS)
        assert found == pytest.approx(totals, rel=1e-5)


def test_a_bigram_model_by_hand():
    """p(a|<s>) = 1/2, p(b|a) = 1/4; after b, <eos> is not listed, so its probability is 3/4 (back-off) times 1/8."""
    tokenizer = word.train(["a b"])  # <unk> 0, <eos> 1, a 2, b 3; <s> is 4
    model = BackoffModel(4, 2, boundary=1)
    unigrams = np.log([1 / 8, 1 / 8, 1 / 2, 1 / 4, 1]).astype(np.float32)
    backoffs = np.log([1, 1, 1, 3 / 4, 1]).astype(np.float32)
    pairs = np.array([2 * 5 + 3, 4 * 5 + 2])  # a b, and <s> a
    model.tables = [
        NGrams(np.arange(5), unigrams, backoffs),
        NGrams(pairs, np.log([1 / 4, 1 / 2]).astype(np.float32), np.empty(0, np.float32)),
    ]
    scorer = Scorer(model, tokenizer)
    texts = scorer.encode_lines(["a b", "b a", "a b"], end=True)
    assert texts[0] == [2, 3, 1]
    found = scorer.log_prob_of_texts(texts)
    a_b, b_a = 1 / 2 * 1 / 4 * 3 / 4 * 1 / 8, 1 / 4 * (3 / 4 * 1 / 2) * 1 / 8
    assert np.exp(found) == pytest.approx([a_b, b_a, a_b], rel=1e-6) and found[0] == found[2]
    contexts, words = scorer.encode(["a", "a", "b"], [" b", " a", " c"])
    assert np.exp(scorer.log_prob(contexts, words)) == pytest.approx([1 / 4, 1 / 2, 3 / 4 * 1 / 8], rel=1e-6)
    assert scorer.continue_greedily([[], [2], [3]], 2) == [[2, 2], [2, 2], [2, 2]]


SYSTEMS = {
    **dict.fromkeys(("lstm", "gpt", "adaptive", "features"), trained),
    **dict.fromkeys(("kn", "snm", "cache"), counted),
    **dict.fromkeys(("t5", "prefix"), conditioned),
    "mixture": lambda kind: Mixture([trained("lstm"), counted("kn")], [0.3, 0.7]),
    "cached": lambda kind: CachedLM(trained("lstm"), 5, 0.5, 0.3),
    "learning": lambda kind: LearningLM(trained("lstm"), 3, 0.5, 0.1),
}


@pytest.mark.parametrize("kind", SYSTEMS)
def test_texts_that_begin_alike_have_the_numbers_that_they_have_alone(kind, tokens):
    """Some texts begin like others, one is the beginning of others, one is empty, and some are longer than the
    window.
    """
    texts = [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2], [], [1, 2, 3, 4], [2, 2], [1, 2, 3, 5, 6, 7, 1, 3, 5, 2], [3]]
    texts.append([*texts[6][:9], 4])
    if kind in ("t5", "prefix"):
        texts = [text[:4] for text in texts]
    scorer = Scorer(SYSTEMS[kind](kind), TOKENIZER)
    expected = [scorer.log_prob([()], [text])[0] for text in texts]
    assert scorer.log_prob_of_texts(texts) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def check_greedy(scorer):
    contexts = [[], [3], [4, 2], [5]]
    for context, found in zip(contexts, scorer.continue_greedily(contexts, 2), strict=True):
        first = scorer.log_prob([context] * V, [[token] for token in range(V)])
        both = scorer.log_prob([context] * V**2, [[*pair] for pair in np.ndindex(V, V)]).reshape(V, V)
        assert found == [first.argmax(), both[found[0]].argmax()]
        assert np.exp(both).sum() == pytest.approx(1, abs=1e-5)  # the chain rule: probabilities of all pairs sum to 1


@pytest.mark.parametrize("system", ["lstm", "gpt", "kn", "mixture"])
@torch.inference_mode()
def test_greedy_continuations(system):
    check_greedy(Scorer(SYSTEMS[system](system), TOKENIZER))


@pytest.mark.parametrize("sentinels", [False, True])
@pytest.mark.parametrize("kind", ["t5", "prefix"])
def test_greedy_outputs(kind, sentinels):
    check_greedy(Scorer(conditioned(kind), TOKENIZER, sentinels=sentinels))


def test_borders_and_conventions_of_texts():
    # Byte-level pairs are merged across the border: ab|c has the tokens a and bc.
    vocabulary = {name: i for i, name in enumerate(["<|endoftext|>", "a", "b", "c", "bc", "Ġ"])}
    inner = HuggingFaceTokenizer(models.BPE(vocabulary, [("b", "c")]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>"])
    scorer = Scorer(counted("kn"), Tokenizer(inner))
    assert scorer.encode(["ab", "ab", "a"], ["c", " b", "bc"]) == ([[1], [1, 2], [1]], [[4], [5, 2], [4]])
    assert scorer.decode([[1, 4], [5, 1]]) == ["abc", "a"] and scorer.unknown is None
    scorer = Scorer(counted("kn"), TOKENIZER, convention=lambda text: text.lower().replace(".", ""))
    assert scorer.encode(["A."], [" B."]) == (scorer.encode_lines(["a"], end=False), scorer.encode_lines(["b"], False))
    assert scorer.encode_lines(["A B."], end=True)[0][-1] == EOS
    # For all sizes of batches.
    texts = [[2, 3], [2, 4, 5], [2, 3], [2, 4, 5], [6], [2, 3]]
    found = Scorer(trained("lstm"), TOKENIZER).log_prob_of_texts(texts)
    assert len(set(found)) == 3 and found[0] == found[2] == found[5] and found[1] == found[3]
    with pytest.raises(UsageError, match="WordVectors is not a language model; use a cell of recipe"):
        Scorer(WordVectors(["a"], np.ones((1, 2))), TOKENIZER).log_prob([[]], [[2]])
    with pytest.raises(UsageError, match="sentinels=false"):
        Scorer(counted("kn"), word.train(["a"]), sentinels=True)
