"""Test mistakes in a study and in its configurations: one error line names the file and the key."""

from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.planning.conf import Conf, read_yaml
from retable.planning.study import expand
from tests.planning.test_schema import ABLATION, CONF, GAIN, STUDY

LSTM, KN5 = [{"of": "lstm"}], [{"of": "kn5"}]
EFFICIENCY = STUDY["label_efficiency"]
ALIKE = {key: said for key, said in ABLATION.items() if key != "holds"} | {"alike": [["bilstm", "cnn"]]}


def system(**said) -> dict:
    return {"systems": [{"of": "lstm"} | said]}


def ablation(**said) -> dict:
    return STUDY | {"ablations": {"pairs": ABLATION | said}}


# Keys of a study of lstm on ptb, and what the error line names.
MISTAKES = [
    ({"corpuss": "ptb"}, ", corpuss: ", "write corpus"),
    (system(of="lstn"), ", systems: ", "recipe 'lstn'; write lstm"),
    ({"corpus": "pbt"}, ": ", "corpus 'pbt'; write ptb"),
    ({"corpus": None}, ", system lstm has no corpus", "corpus: grammar"),
    ({"systems": ["lstm"]}, ", systems[0]: 'lstm' ", "write systems: [{of: lstm}]"),
    (system(sedes=2), ", systems[0].sedes: ", "write seeds"),
    (system(seeds=0), ", systems[0].seeds: 0 ", "write seeds: 3, or [1, 2]"),
    ({"systems": LSTM * 2}, ": pretrain/ptb/lstm-1 ", "twice; rename one of the two"),
    (system(**{"as": "lstm=2.5"}), ", systems, as: 'lstm=2.5' ", "write ASCII letters, digits and _ - +"),
    (system(of="gpt", **{"as": "lstm"}), ", systems: lstm has recipe gpt", "lstm_of_mine"),
    (system(of="bilstm"), ", system bilstm: ", "task: sentiment"),
    (system(of="bilstm", task="sentiments"), ", system bilstm: ", "task 'sentiments'; write sentiment"),
    ({"benchmarks": {"perplexities": "all"}}, ", benchmarks: ", "'perplexities'; write perplexity"),
    ({"benchmarks": {"perplexity": ["ltsm"]}}, ", benchmarks.perplexity: ", "'ltsm'; write lstm"),
    (system(of="bert") | {"benchmarks": {"perplexity": ["bert"]}}, ", benchmarks.perplexity: ", "not a LanguageModel"),
    ({"systems": [{"of": "gpt"}, {"of": "lstm", "embedding": "gpt"}]}, ", system lstm, embedding: ", "write init for"),
    ({"systems": [{"of": "gpt"}, {"of": "kn5", "init": "gpt"}]}, ", system kn5: ", "leave init out"),
    ({"systems": [{"of": "gpt"}, {"of": "skipgram", "init": "gpt"}]}, ", system skipgram: ", "leave init out"),
    (system(init="lstn", **{"as": "on"}), ", system on, init: ", "'lstn'; write"),
    (system(of="gpt", decoding="greedy"), ", system gpt: decoding ", "task: translation"),
    ({"corpus": "grammar", "benchmarks": {"steering": "all"}}, ": benchmark steering ", "{of: lstm_prefixes, task:"),
    ({"systems": KN5, "mixtures": {"one": ["kn5"]}}, ", mixtures.one: ['kn5'] ", "two or more systems"),
    ({"mixtures": {"one": {"of": ["lstm"], "weight": "equal"}}}, ", mixtures.one.weight: ", "write weights"),
    ({"mixtures": {"one": {"of": ["lstm"], "weights": "same"}}}, ", mixtures.one.weights: 'same' ", "weights: equal"),
    ({"adaptations": {"neural_cash": "lstm"}}, ", adaptations: ", "'neural_cash'; write neural_cache"),
    ({"systems": KN5, "adaptations": {"dynamic": "kn5"}}, ", adaptations.dynamic: ", "not a NeuralLM"),
    ({"systems": {"of": "lstm"}}, ", systems: {'of': 'lstm'} ", "write systems: [{of: lstm}]"),
    ({"benchmarks": ["perplexity"]}, ", benchmarks: ['perplexity'] ", "write benchmarks: {perplexity: all}"),
    ({"benchmarks": {"perplexity": ["lstm", None]}}, ", benchmarks.perplexity[1]: None ", "text or a whole number"),
    ({"lineage": {"lstm": "old"}}, ", lineage.lstm: 'old' ", "write lineage: {kn5: 1998, lstm: 2012}"),
    (STUDY | {"lineage": {"kn55": 1998}}, ", lineage: ", "'kn55'; write kn5"),
    (STUDY | {"baseline": "blistm"}, ", baseline: ", "'blistm'; write bilstm"),
    (STUDY | {"elmo": {"cnn": "cnn_elmo"}}, ", elmo: ", "'cnn_elmo'; write cnn"),
    (STUDY | {"scaling_laws": "gtp_*"}, ", scaling_laws: ", "gtp_*; write gpt"),
    (STUDY | {"gains": [{"task": "sentiment"}]}, ", gains[0]: ", "no metric or labels or pretraining or scratch"),
    (STUDY | {"gains": [GAIN | {"scratch": "cmn"}]}, ", gains: ", "'cmn'; write cnn"),
    (STUDY | {"label_efficiency": {"claim": "It is."}}, ", label_efficiency: ", "no pretrained or scratch or metrics"),
    (STUDY | {"label_efficiency": EFFICIENCY | {"scratch": "gpt"}}, ", label_efficiency: ", "'gpt'; write one of bert"),
    (
        STUDY | {"ablations": {"pairs": {"title": "Pairs"}}},
        ", ablations.pairs: ",
        "no claim or metric or better",
    ),
    (ablation(better="larger"), ", ablations.pairs.better: 'larger' ", "write better: higher"),
    (ablation(systems=["bilstm", "cnn", "cmn"]), ", ablations.pairs", "'cmn'; write cnn"),
    (ablation(holds=[]), ", ablations.pairs.holds: [] ", "write holds: [[bert, bert_no_nsp]]"),
    (ablation(holds=[["bilstm", "gpt"]]), ", ablations.pairs", "['bilstm', 'gpt'] is not a pair of the ablation"),
    (ablation(holds=[["cnn", "cnn"]]), ", ablations.pairs", "['cnn', 'cnn'] is not a pair of the ablation's systems"),
    (ablation(alike=[["bilstm", "cnn"]]), ", ablations.pairs: ", "one of the keys holds and alike"),
    (STUDY | {"ablations": {"pairs": ALIKE}}, ", ablations.pairs: ", "the key alike needs a key margin"),
    *(
        (system(set={key: "other"}), f", system lstm: set: {key!r} ", "follows from the study")
        for key in ("system", "++seed", "out", "init", "recipe", "tokens", "corpus", "objective")
    ),
    (system(rates=["fast"]), ", system lstm, rates: 'fast' ", "write rates: [1e-3, 2e-3]"),
]
SST2 = "# @package _global_\ndefaults: [sst2, _self_]\n"
OF_TASK = {"systems": [{"of": "bilstm", "task": "odd"}]}
ODD_FILES = [
    ("benchmark/odd", "# @package benchmark.odd\nsplit: test\n", {"benchmarks": {"odd": "all"}}, "module.Name"),
    ("benchmark/odd", "# @package benchmark.odd\n_target_: retable.metrics.units.Sums\n",
     {"benchmarks": {"odd": "all"}}, "retable.metrics.units.Sums"),
    ("task/odd", f"{SST2}out: ${{task_name}}/${{epochs}}\n", OF_TASK, "out: ${task_name}/${epochs}"),
    ("task/odd", f"{SST2}out: ${{hydra:runtime.choices.recipe}}-${{seed}}\n", OF_TASK, "out: ${hydra:runtime"),
    ("task/odd", "# @package _global_\ntask: {files: {train: a.csv}}\n", OF_TASK, "no type; write defaults"),
    ("task/odd", "# @package _global_\ntask: {_target_: retable.tasks.odd.OddTask}\n", OF_TASK, "_target_"),
    ("decoding/odd", "discriminator: a/b\n", {"texts": {"odd": "lstm"}}, "discriminator: 'a/b'"),
    ("recipe/encoders/odd", "stage: finetune\n", {"systems": [{"of": "odd", "task": "squad"}]}, "override /model"),
]  # fmt: skip


def refused(conf: Conf, said: dict) -> str:
    with pytest.raises(UsageError) as error:
        expand(conf, "mine", {"corpus": "ptb", "systems": LSTM} | said)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("said", "place", "named"), MISTAKES)
def test_a_mistake_in_a_study_is_named_with_its_place(said, place, named):
    line = refused(CONF, said)
    assert line.startswith(f"study mine{place}") and named in line


@pytest.mark.parametrize(("file", "text", "said", "named"), ODD_FILES)
def test_a_mistake_in_a_file_of_ones_own_is_named(tmp_path, file, text, said, named):
    (path := tmp_path / f"{file}.yaml").parent.mkdir(parents=True)
    path.write_text(text)
    line = refused(Conf(Path(__file__).parent.parent.parent / "conf", tmp_path), said)
    assert named in line and "odd" in line


def test_what_is_alike_with_a_margin_is_taken():
    assert expand(CONF, "mine", STUDY | {"ablations": {"pairs": ALIKE | {"margin": 0.5}}})


@pytest.mark.parametrize(("text", "named"), [
    (b"a: [1", "not valid YAML"),
    (b"\xff\xfe", "not valid YAML"), (b"- a", "write one `key: value` per line"), (b"{[]: 1}", "not valid YAML"),
    (b"a: 1\nb: {c: 1, c: 2}\n", "c occurs twice"), (b"a: 1\nb: 2\na: 3\n", "a occurs twice"),
])  # fmt: skip
def test_a_file_that_can_not_be_read_is_named(tmp_path, text, named):
    (tmp_path / "mine.yaml").write_bytes(text)
    with pytest.raises(UsageError) as error:
        read_yaml(tmp_path / "mine.yaml")
    assert "mine.yaml" in str(error.value) and named in str(error.value) and "\n" not in str(error.value)
