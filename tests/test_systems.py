"""Test that the plan knows, for each kind of system, which benchmarks it supports."""

import numpy as np
import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from pipelines.config.project import CONF
from retable.core.systems import (
    AdaptedSystem,
    LanguageModel,
    MixedSystem,
    PredictiveModel,
    SentenceEncoder,
    System,
    TrainedSystem,
)
from retable.evaluation.bidirectional import BothDirections, TwoWayLanguageModel
from retable.evaluation.contextual_vectors import Contextual
from retable.evaluation.dynamic_evaluation import LearningLM
from retable.evaluation.held_out import PretrainedObjective
from retable.evaluation.likelihood import Carried, NeuralLM
from retable.evaluation.mixture import Mixture
from retable.evaluation.neural_cache import CachedLM
from retable.evaluation.sentence_encoder import PooledEncoder
from retable.evaluation.word_vectors import WordVectors
from retable.models.bert import BERT
from retable.models.cache import UnigramCache
from retable.models.elmo import ELMo
from retable.models.ngram import KneserNey
from retable.models.recurrent import GRU
from retable.objectives.bidirectional_lm import BidirectionalLM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.planning.study import _answers
from retable.tokenizers import word
from tests.exchange.cases import pieces

TOKENIZER = word.train(["the cat sat"])
V = TOKENIZER.vocab_size
KINDS = {
    each.__name__: each
    for each in (
        *(System, LanguageModel, TrainedSystem, MixedSystem, AdaptedSystem, PredictiveModel),
        *(SentenceEncoder, NeuralLM, TwoWayLanguageModel, Contextual, PretrainedObjective, WordVectors),
    )
}


def causal():
    return NeuralLM(CausalLM(GRU(V, 4, 1, 0.0, 0.1), V, False, True, "mean"), Carried(1), TOKENIZER.boundary)


SYSTEMS = {  # how to make it, its recipe's settings, and its classes that no benchmark requires
    "n-grams": (lambda: KneserNey(V, 2, 0), {"stage": "pretrain", "objective": None}, {"PredictiveModel"}),
    "cache": (lambda: UnigramCache(V, 3), {"stage": "pretrain", "objective": None}, {"PredictiveModel"}),
    "recurrent": (causal, {"stage": "pretrain", "scorer": {"rows": 1}}, set()),
    "elmo": (
        lambda: BothDirections(BidirectionalLM(ELMo(TOKENIZER.words, 4, 4, 1, 0.0, None), V), TOKENIZER),
        {"stage": "pretrain", "choices": {"objective": "bidirectional_lm"}},
        set(),
    ),
    "bert": (
        lambda: PretrainedObjective(MaskedLM(BERT(V, 4, 1, 2, 5, 0.0), V, next_sentence=False), lambda split: None),
        {"stage": "pretrain", "choices": {"objective": "masked_lm"}},
        set(),
    ),
    "vectors": (lambda: WordVectors(["a"], np.ones((1, 2))), {"stage": "embed"}, set()),
    "encoder": (
        lambda: PooledEncoder(BERT(V, 4, 1, 2, 5, 0.0), pieces(), "mean", True, 5),
        {"stage": "pretrain", "objective": None, "encoder": {"pooling": None}},
        set(),
    ),
    "mixture": (
        lambda: Mixture([causal(), UnigramCache(V, 3)], [0.5, 0.5]),
        {"stage": "pretrain", "objective": None},
        {"MixedSystem"},
    ),
    # A mixture and the systems below have no recipe; the plan treats them like counted models.
    "cached": (lambda: CachedLM(causal(), 3, 0.1, 0.1), {"stage": "pretrain", "objective": None}, {"AdaptedSystem"}),
    "learning": (
        lambda: LearningLM(causal(), 3, 0.1, 0.1),
        {"stage": "pretrain", "objective": None},
        {"AdaptedSystem"},
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_what_the_plan_takes_it_for(name):
    make, spec, others = SYSTEMS[name]
    system = make()
    answers = _answers({"choices": {}, **spec}, {})
    assert {name for name, kind in KINDS.items() if isinstance(system, kind)} == answers | others


@pytest.mark.parametrize("group", ["benchmark", "adaptation"])
def test_each_asks_for_a_kind(group):
    files = [*(CONF / group).glob("*.yaml")]
    targets = {target for file in files if (target := OmegaConf.load(file).get("_target_"))}
    assert targets and {get_class(target).requires for target in targets} <= {*KINDS.values()}
