"""Test the allowed values of a study's keys: an error comes when the study is read."""

import copy
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.planning import schema
from retable.planning.conf import Conf
from retable.planning.study import Study, expand

CONF = Conf(Path(__file__).parent.parent.parent / "conf")
ODD = st.recursive(
    st.none() | st.booleans() | st.sampled_from([-1, 0, 1, 2**70, 1.5, float("nan"), "odd", "", "1e-3", "a\nb"]),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(["odd", "of", "all but", "weights", "", 1, None]), inner, max_size=3)
    ),
    max_leaves=6,
)
ABLATION = {
    "title": "Pairs", "claim": "It is better.", "metric": "sentiment/test/accuracy", "better": "higher",
    "systems": ["bilstm", "cnn"], "holds": [["bilstm", "cnn"]],
}  # fmt: skip
GAIN = {
    "task": "sentiment", "metric": "accuracy", "labels": 500, "pretraining": "vectors", "scratch": "cnn",
    "pretrained": "bilstm",
}  # fmt: skip
STUDY = {
    "corpus": "grammar",
    "tokenizer": "word",
    "tokenizers": {"grammar": ["bpe"]},
    "seeds": 2,
    "trainer": "cpu_bf16",
    "systems": [
        {"of": ["kn5", "cache"]}, {"of": "lstm", "as": "lstm_2", "set": {"epochs": 2}, "seeds": [1, 3]},
        {"of": "skipgram", "rates": ["1e-3", 0.5]}, {"of": "gpt", "init": None, "objective": "causal_lm"},
        {"of": ["bilstm", "cnn"], "embedding": "skipgram_rate_1", "task": "sentiment"},
        {"of": "bert_100_labels", "task": ["sentiment"]},
        {"of": "bert_100_labels", "as": "bert_odd_100_labels", "task": ["sentiment"]},
    ],
    "adaptations": {"neural_cache": "lstm_2"},
    "mixtures": {"both": ["kn5-1", "cache-1"], "alike": {"of": ["kn5-1", "cache-1"], "weights": "equal"}},
    "benchmarks": {"perplexity": {"all but": ["cache", "skipgram*"]}},
    "texts": {"top_p": "lstm_2"},
    "scaling": "cpu",
    "question": "Is it better?",
    "answer": "Yes, {lstm_2: test/perplexity_word|.2f}.",
    "figure": {"x": {"claim": "It is better", "holds": {"perplexity": [["lstm_2", "nesting", "below", "kn5"]]}}},
    "cost": "5 minutes",
    "more_seeds": "more",
    "notes": {"grammar": {"lstm_2": "two epochs"}},
    "ablations": {"pairs": ABLATION},
    "baseline": "bilstm",
    "elmo": {"cnn": "bilstm"},
    "label_efficiency": {
        "claim": "It is better.", "pretrained": "bert_odd", "scratch": "bert", "metrics": {"sentiment": "accuracy"},
    },
    "lineage": {"kn5": 1998, "lstm_2": 2012},
    "gains": [GAIN],
    "compare": [{"systems": ["kn5", "lstm_2"], "metric": "test/perplexity_word", "corpus": "grammar"}],
    "tuned": "by hand",
    "chosen_by": {"sentiment": "accuracy"},
    "sweeps": {"RTE": "sweeps/rte.csv"},
    "scaling_laws": "lstm_*",
    "devices": {"kn5": ["lstm_2"]},
    "lacks": {"task": {"snli": "data/snli"}},
    "bands": {"perplexity": [["lstm_2", "", "test", "perplexity_word", 8, 9.5]]},
}  # fmt: skip


PLACES = [
    *((key,) for key in STUDY),
    *(("systems", number, key) for number in range(7) for key in schema.keys_of(schema.System)),
    *(("ablations", "pairs", key) for key in schema.keys_of(schema.Ablation)),
    *(("gains", 0, key) for key in GAIN),
    *(("compare", 0, key) for key in ("systems", "metric", "corpus")),
    *(("label_efficiency", key) for key in STUDY["label_efficiency"]),
    *((key, name) for key in ("adaptations", "benchmarks", "texts", "mixtures") for name in STUDY[key]),
    *(("bands", "perplexity", 0, number) for number in range(6)),
    *(("figure", "x", key) for key in ("claim", "holds")),
    *(("figure", "x", "holds", "perplexity", 0, number) for number in range(4)),
]


def test_the_study_of_these_tests_has_every_key_and_can_be_read():
    assert STUDY.keys() == {*schema.keys_of(schema.StudyKeys)}
    study = expand(CONF, "mine", STUDY)
    assert study.reported == {key: STUDY[key] for key in schema.REPORT_KEYS}


@settings(max_examples=200)
@example(place=("corpus",), odd=-1)
@given(place=st.sampled_from(PLACES), odd=ODD)
def test_whatever_stands_there_is_read_or_refused_in_one_line(place, odd):
    changed = study = copy.deepcopy(STUDY)
    for step in place[:-1]:
        changed = changed[step]
    changed[place[-1]] = odd
    try:
        assert isinstance(expand(CONF, "mine", study), Study)
    except UsageError as error:
        assert str(error).startswith("study mine") and "\n" not in str(error)


def test_keys_that_say_nothing_are_left_out():
    bare = {"corpus": "ptb", "systems": [{"of": "kn5", "task": None}], "benchmarks": None, "lineage": None}
    assert expand(CONF, "mine", bare).cells.keys() == {"prepare/ptb", "tokenize/ptb/word", "pretrain/ptb/kn5-1"}
