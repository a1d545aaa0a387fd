"""What may stand under a study's keys, and that a slip is told when the study is read."""

import copy
from pathlib import Path

import pytest
from hypothesis import given, settings
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
    "notes": {"grammar": {"lstm_2": "two epochs"}},
    "ablations": {"pairs": ABLATION},
    "baseline": "bilstm",
    "elmo": {"cnn": "bilstm"},
    "label_efficiency": {
        "claim": "It is better.", "pretrained": "bert_odd", "scratch": "bert", "metrics": {"sentiment": "accuracy"},
    },
    "lineage": {"kn5": 1998, "lstm_2": 2012},
    "gains": [GAIN],
    "tuned": "by hand",
    "chosen_by": {"sentiment": "accuracy"},
    "scaling_laws": "lstm_*",
    "lacks": {"task": {"snli": "data/snli"}},
    "bands": {"perplexity": [["lstm_2", "", "test", "perplexity_word", 8, 9.5]]},
}  # fmt: skip


PLACES = [
    *((key,) for key in STUDY),
    *(("systems", number, key) for number in range(7) for key in schema.keys_of(schema.System)),
    *(("ablations", "pairs", key) for key in schema.keys_of(schema.Ablation)),
    *(("gains", 0, key) for key in GAIN),
    *(("label_efficiency", key) for key in STUDY["label_efficiency"]),
    *((key, name) for key in ("adaptations", "benchmarks", "texts", "mixtures") for name in STUDY[key]),
    *(("bands", "perplexity", 0, number) for number in range(6)),
]


def test_the_study_of_these_tests_has_every_key_and_can_be_read():
    assert STUDY.keys() == {*schema.keys_of(schema.StudyKeys)}
    study = expand(CONF, "mine", STUDY)
    assert study.reported == {key: STUDY[key] for key in schema.REPORTED}


@settings(max_examples=200)
@given(place=st.sampled_from(PLACES), odd=ODD)
def test_whatever_stands_there_is_read_or_refused_in_one_line(place, odd):
    changed = said = copy.deepcopy(STUDY)
    for step in place[:-1]:
        changed = changed[step]
    changed[place[-1]] = odd
    try:
        assert isinstance(expand(CONF, "mine", said), Study)
    except UsageError as error:
        assert str(error).startswith("study mine") and "\n" not in str(error)


def test_keys_that_say_nothing_are_left_out():
    bare = {"corpus": "ptb", "systems": [{"of": "kn5", "task": None}], "benchmarks": None, "lineage": None}
    assert expand(CONF, "mine", bare).cells.keys() == {"prepare/ptb", "tokenize/ptb/word", "pretrain/ptb/kn5-1"}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"systems": {"of": "lstm"}}, "systems: {'of': 'lstm'} should be a list; write systems: [{of: lstm}]"),
        ({"benchmarks": ["perplexity"]},
         "benchmarks: ['perplexity'] should be settings by their names; write benchmarks: {perplexity: all}"),
        ({"benchmarks": {"perplexity": ["kn5", None]}},
         "benchmarks.perplexity[1]: None should be text or a whole number; write benchmarks: {perplexity: all}"),
        ({"lineage": {"kn5": "old"}},
         "lineage.kn5: 'old' should be a whole number or a number; write lineage: {kn5: 1998, lstm: 2012}"),
    ],
)  # fmt: skip
def test_another_shape_is_told_with_an_example(said, message):
    with pytest.raises(UsageError) as error:
        expand(CONF, "mine", STUDY | said)
    assert str(error.value) == f"study mine, {message}"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"lineage": {"kn55": 1998}}, "lineage: the study has no system 'kn55'; write kn5"),
        ({"baseline": "blistm"}, "baseline: the study has no system 'blistm'; write bilstm"),
        ({"elmo": {"cnn": "cnn_elmo"}}, "elmo: the study has no system 'cnn_elmo'; write cnn"),
        ({"scaling_laws": "gtp_*"}, "scaling_laws: no system is called gtp_*; write gpt"),
        ({"gains": [{"task": "sentiment"}]}, "gains[0]: has no metric or labels or pretraining or scratch"),
        ({"gains": [GAIN | {"scratch": "cmn"}]}, "gains: the study has no system 'cmn'; write cnn"),
        ({"label_efficiency": {"claim": "It is."}}, "label_efficiency: has no pretrained or scratch or metrics"),
        ({"label_efficiency": STUDY["label_efficiency"] | {"scratch": "gpt"}},
         "label_efficiency: the study has no system 'gpt'; write one of bert"),
        ({"ablations": {"pairs": {"title": "Pairs"}}}, "ablations.pairs: has no claim or metric or better or systems"),
    ],
)  # fmt: skip
def test_what_the_report_shows_is_of_systems_that_there_are(said, message):
    told(STUDY | said, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"better": "larger"}, "better: 'larger' should be 'higher' or 'lower'; write better: higher"),
        ({"systems": ["bilstm", "cnn", "cmn"]}, "the study has no system 'cmn'; write cnn"),
        ({"holds": []}, "holds: [] should be a list of at least 1; write holds: [[bert, bert_no_nsp]]"),
        ({"holds": [["bilstm", "gpt"]]}, "['bilstm', 'gpt'] is not a pair of its systems; write two of ["),
        ({"holds": [["cnn", "cnn"]]}, "['cnn', 'cnn'] is not a pair of its systems"),
        ({"alike": [["bilstm", "cnn"]]}, "ablations.pairs: write one of holds and alike"),
    ],
)
def test_an_ablation_is_whole(changed, message):
    told(STUDY | {"ablations": {"pairs": ABLATION | changed}}, message)


def test_what_is_published_as_alike_has_a_margin():
    alike = {key: said for key, said in ABLATION.items() if key != "holds"} | {"alike": [["bilstm", "cnn"]]}
    told(STUDY | {"ablations": {"pairs": alike}}, "ablations.pairs: alike has no margin; write how large")
    assert expand(CONF, "mine", STUDY | {"ablations": {"pairs": alike | {"margin": 0.5}}})


def told(said, message):
    with pytest.raises(UsageError) as error:
        expand(CONF, "mine", said)
    assert message in str(error.value)


@pytest.mark.parametrize("key", ["system", "++seed", "out", "init", "recipe", "tokens", "corpus", "objective"])
def test_what_follows_from_the_study_is_not_set_beside_it(key):
    said = {"corpus": "ptb", "systems": [{"of": "lstm", "set": {key: "other"}}]}
    told(said, f"study mine, system lstm: set: {key!r} follows from the study; say it beside `of`, or leave it out")
