"""Compact studies, the cells that they stand for, and what is said of a mistake."""

from pathlib import Path

import pytest
import yaml

from pipelines.config.project import DEFAULT
from retable.core.errors import UsageError
from retable.planning.conf import Conf
from retable.planning.graph import keys_of, params_of, params_text, pipeline_of, pipeline_text, settings_of
from retable.planning.schema import REPORTED
from retable.planning.study import Study, expand, read_study

ROOT = Path(__file__).parent.parent.parent
CONF = Conf(ROOT / "conf")
STUDIES = sorted(path.parent.name for path in ROOT.glob("studies/*/study.yaml"))


def places(**said):
    return list(expand(CONF, "mine", said).cells)


def cell(place, **said):
    return expand(CONF, "mine", said).cells[place]


def with_own(folder, file, text) -> Conf:
    """The configurations of the project, and before them one of a study's own."""
    (path := folder / f"{file}.yaml").parent.mkdir(parents=True)
    path.write_text(text)
    return Conf(ROOT / "conf", folder)


def read(name) -> Study:
    return read_study(CONF, ROOT / "studies" / name / "study.yaml")


def test_systems_bring_the_cells_that_they_are_made_from():
    assert places(corpus="ptb", systems=[{"of": ["kn5", "lstm"], "seeds": 2}], benchmarks={"perplexity": "all"}) == [
        "prepare/ptb",
        "tokenize/ptb/word",
        *(f"pretrain/ptb/{system}-{seed}" for system in ("kn5", "lstm") for seed in (1, 2)),
        *(f"evaluate/ptb/{system}-{seed}" for system in ("kn5", "lstm") for seed in (1, 2)),
    ]


def test_a_cell_is_a_command():
    found = cell("pretrain/ptb/small-2", corpus="ptb", systems=[{"of": "lstm_small", "as": "small", "seeds": [2],
                                                                "set": {"optimizer.lr": 0.5}}])  # fmt: skip
    recipe = CONF.choice("lstm_small")
    assert found.command == (
        f"python -m pipelines.pretrain corpus=ptb tokenizer=word recipe={recipe} system=small seed=2 optimizer.lr=0.5"
    )
    assert found.reads == ("tokenize/ptb/word",)


def test_what_is_set_to_nothing_is_null():
    """Hydra takes `None` for a word."""
    said = {"of": "lstm_small", "set": {"clip_norm": None, "objective.tie": False}}
    assert cell("pretrain/ptb/lstm_small-1", corpus="ptb", systems=[said]).command.endswith(
        " clip_norm=null objective.tie=False"
    )


def test_a_tokenizer_is_the_entrys_or_the_studys_or_the_recipes():
    bert = {"of": "bert"}
    assert cell("pretrain/ptb/bert-1", corpus="ptb", systems=[bert]).tokenizer == "word_marked"
    assert cell("pretrain/ptb/bert-1", corpus="ptb", tokenizer="bpe", systems=[bert]).tokenizer == "bpe"
    said = [bert | {"tokenizer": "word_english"}]
    assert cell("pretrain/ptb/bert-1", corpus="ptb", tokenizer="bpe", systems=said).tokenizer == "word_english"


def test_a_system_starts_from_the_same_seed_or_else_the_first():
    systems = [{"of": "skipgram", "seeds": 2}, {"of": "gpt"},
               {"of": "bilstm", "embedding": "skipgram", "seeds": 2, "task": "sentiment"},
               {"of": "gpt", "as": "gpt_pretrained", "init": "gpt", "seeds": 2, "task": "sentiment"}]  # fmt: skip
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems}).cells
    trained = {cell.settings["system"] + cell.settings["seed"]: cell.settings for cell in cells.values()
               if "task" in cell.settings}  # fmt: skip
    assert trained["bilstm2"]["embedding"] == "outputs/embed/grammar/skipgram-2/vectors.bin"
    assert trained["gpt_pretrained2"]["init"] == "pretrain/grammar/gpt-1"


def test_pretraining_goes_on_from_a_system_wherever_it_stands():
    systems = [{"of": "gpt", "as": "gpt_on", "init": "gpt", "seeds": 2}, {"of": "gpt", "seeds": 2}]
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems, "benchmarks": {"perplexity": "all"}}).cells
    on = cells["pretrain/grammar/gpt_on-2"]
    assert on.settings["init"] == "pretrain/grammar/gpt-2"
    assert on.reads == ("tokenize/grammar/word", "pretrain/grammar/gpt-2")
    assert "evaluate/grammar/gpt_on-2" in cells
    other = systems[0] | {"corpus": "grammar_small"}
    found = cell("pretrain/grammar_small/gpt_on-1", corpus="grammar", systems=[other, systems[1]])
    assert found.settings["init"] == "pretrain/grammar/gpt-1"


def test_a_checkpoint_of_transformers_brings_no_cells_and_where_a_task_is_learnt_no_tokens():
    systems = [{"of": "bert", "as": "{init}_on", "init": "hf:mine/bert", "tokenizer": "wordpiece_uncased"},
               {"of": "bert", "as": "from_{init}", "init": "hf:mine/bert", "task": "sst2"}]  # fmt: skip
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems}).cells
    on, tuned = cells["pretrain/grammar/bert_on-1"], cells["finetune/grammar/sst2-from_bert-1"]
    assert on.settings["init"] == tuned.settings["init"] == "hf:mine/bert"
    assert on.reads == ("tokenize/grammar/wordpiece_uncased",)
    assert tuned.reads == () and "tokenizer" not in tuned.settings
    assert on.command.endswith(" init=hf:mine/bert system=bert_on seed=1")


def test_names_are_made_of_recipes_and_starts():
    systems = [{"of": ["gpt", "gpt_rotary"]},
               {"of": "gpt", "init": ["gpt", "gpt_rotary"], "as": "from_{init}", "task": "sentiment"}]  # fmt: skip
    found = places(corpus="grammar", systems=systems)
    assert [place.rpartition("/")[2] for place in found[-2:]] == ["sentiment-from_gpt-1", "sentiment-from_gpt_rotary-1"]


def test_the_default_is_of_forty_stages_at_most():
    """Its time is that of its trainings and a second for each stage."""
    plan, report = 1, 1
    assert len(read(DEFAULT).cells) + plan + report <= 40


def test_rates_are_a_system_each():
    systems = [{"of": ["lstm", "elman"], "rates": ["5e-3", 0.01], "set": {"epochs": 2}}]
    study = expand(CONF, "mine", {"corpus": "grammar", "systems": systems})
    told = {place: cell.settings for place, cell in study.cells.items() if cell.stage == "pretrain"}
    assert study.rates["lstm"] == {"lstm_rate_1": 0.005, "lstm_rate_2": 0.01}
    assert [place.rpartition("/")[2] for place in told] == [
        "lstm_rate_1-1", "lstm_rate_2-1", "elman_rate_1-1", "elman_rate_2-1",
    ]  # fmt: skip
    assert [settings["optimizer.lr"] for settings in told.values()] == ["5e-3", "0.01"] * 2
    assert all(settings["epochs"] == "2" for settings in told.values())


def test_what_starts_from_a_system_with_rates_is_made_from_each():
    systems = [{"of": "skipgram", "rates": [0.1, 0.2]},
               {"of": "bilstm", "as": "on_skipgram", "embedding": "skipgram", "task": "sentiment"}]  # fmt: skip
    study = expand(CONF, "mine", {"corpus": "grammar", "systems": systems})
    told = {place: cell.settings["embedding"] for place, cell in study.cells.items() if cell.stage == "finetune"}
    assert told == {
        f"finetune/grammar/sentiment-on_skipgram_rate_{k}-1": f"outputs/embed/grammar/skipgram_rate_{k}-1/vectors.bin"
        for k in (1, 2)
    }
    assert study.rates["on_skipgram"] == {"on_skipgram_rate_1": 0.1, "on_skipgram_rate_2": 0.2}
    with pytest.raises(UsageError, match=r"on_skipgram starts from skipgram, which has rates; .*, skipgram_rate_1$"):
        expand(CONF, "mine", {"corpus": "grammar", "systems": [systems[0], systems[1] | {"rates": [1e-3]}]})
    with pytest.raises(UsageError, match="skipgram, rates: 'fast' is no number"):
        expand(CONF, "mine", {"corpus": "grammar", "systems": [{"of": "skipgram", "rates": ["fast"]}]})


def test_a_selection_takes_those_that_can_answer():
    systems = [{"of": ["kn5", "lstm", "bert", "skipgram"]}]
    found = places(corpus="ptb", tokenizer="word", systems=systems, benchmarks={"perplexity": "all"})
    assert found[-2:] == ["evaluate/ptb/kn5-1", "evaluate/ptb/lstm-1"]
    found = places(corpus="ptb", tokenizer="word", systems=systems, benchmarks={"perplexity": {"all but": ["kn5"]}})
    assert [place for place in found if place.startswith("evaluate")] == ["evaluate/ptb/lstm-1"]


def test_the_benchmarks_of_a_cell_are_one_evaluation_in_the_studys_order():
    said = {"corpus": "ptb", "systems": [{"of": ["kn5", "lstm"]}]}
    asked = {"positions": "all", "gradients": "lstm", "perplexity": ["kn5", "lstm"]}
    found = places(**said, benchmarks=asked)
    assert found[-2:] == ["evaluate/ptb/kn5-1", "evaluate/ptb/lstm-1"]
    one = cell("evaluate/ptb/lstm-1", **said, benchmarks=asked)
    assert one.choices("benchmark") == ["positions", "gradients", "perplexity"]
    assert one.command.endswith(" cell=ptb/lstm-1 benchmark='[positions,gradients,perplexity]'")


def test_a_mixture_is_of_its_systems():
    found = cell(
        "mix/ptb/both-1", corpus="ptb", systems=[{"of": ["kn5", "cache"]}], mixtures={"both": ["kn5", "cache"]}
    )
    assert found.made_from == ("pretrain/ptb/kn5-1", "pretrain/ptb/cache-1")
    assert found.settings["cells"] == "[pretrain/ptb/kn5-1,pretrain/ptb/cache-1]"


def test_a_system_that_goes_on_learning_is_called_after_the_trained_one_and_its_way():
    said = {"corpus": "ptb", "systems": [{"of": ["kn5", "rnn"]}, {"of": "lstm_small", "seeds": 2}]}
    said |= {"adaptations": {"neural_cache": "all", "dynamic_rms": "lstm_small-2"}, "benchmarks": {"perplexity": "all"}}
    adapted = [
        *("rnn_neural_cache-1", "lstm_small_neural_cache-1", "lstm_small_neural_cache-2"),
        "lstm_small_dynamic_rms-2",
    ]
    found = places(**said)
    assert [place for place in found if place.startswith("adapt")] == [f"adapt/ptb/{name}" for name in adapted]
    assert {f"evaluate/ptb/{name}" for name in ("kn5-1", "lstm_small-2", *adapted)} <= {*found}
    one = cell(f"adapt/ptb/{adapted[-1]}", **said)
    assert one.made_from == ("pretrain/ptb/lstm_small-2",) and one.settings["cell"] == "ptb/lstm_small-2"
    assert one.command.endswith(" adaptation=dynamic_rms system=lstm_small_dynamic_rms seed=2")
    assert "tokenize/ptb/word" in one.reads
    evaluation = cell(f"evaluate/ptb/{adapted[-1]}", **said)
    assert evaluation.settings["stage"] == "adapt" and evaluation.made_from == (one.place,)


def test_what_learns_while_it_reads_is_mixed_like_any_system():
    said = {"corpus": "ptb", "systems": [{"of": ["kn5", "rnn"]}], "adaptations": {"dynamic": "rnn"}}
    found = cell("mix/ptb/both-1", **said, mixtures={"both": ["rnn_dynamic", "kn5"]})
    assert found.made_from == ("adapt/ptb/rnn_dynamic-1", "pretrain/ptb/kn5-1")


def test_an_ensemble_is_a_mixture_of_equal_weights():
    said = {"corpus": "ptb", "systems": [{"of": "lstm", "seeds": 2}]}
    found = cell("mix/ptb/two-1", **said, mixtures={"two": {"of": ["lstm-1", "lstm-2"], "weights": "equal"}})
    assert found.made_from == ("pretrain/ptb/lstm-1", "pretrain/ptb/lstm-2") and found.settings["weights"] == "equal"
    fitted = cell("mix/ptb/two-1", **said, mixtures={"two": {"of": ["lstm-1", "lstm-2"]}})
    assert "weights" not in fitted.settings


def test_what_is_steered_is_made_from_its_discriminator_too():
    steered = {"benchmarks": {"steering": "all"}, "texts": {"fudge": "lstm"}}
    systems = [{"of": "lstm"}, {"of": "lstm_prefixes", "task": "sentiment_prefixes"}]
    judge = "from_scratch/grammar_small/sentiment_prefixes-lstm_prefixes-1"
    for place in ("evaluate/grammar_small/lstm-1", "generate/grammar_small/lstm-1-fudge"):
        found = cell(place, corpus="grammar_small", systems=systems, **steered)
        assert found.made_from == ("pretrain/grammar_small/lstm-1", judge)
        assert judge in found.reads


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"corpuss": "ptb"}, "study mine, corpuss: there is no such key; write corpus"),
        ({"corpus": "ptb", "systems": [{"of": "lstn"}]}, "study mine, systems: there is no recipe 'lstn'; write lstm"),
        ({"corpus": "pbt", "systems": [{"of": "lstm"}]}, "study mine: there is no corpus 'pbt'; write ptb"),
        ({"systems": [{"of": "lstm"}]}, "study mine, system lstm: no corpus; give the study one: corpus: grammar"),
        ({"corpus": "ptb", "systems": ["lstm"]},
         "study mine, systems[0]: 'lstm' should be settings by their names; write systems: [{of: lstm}]"),
        ({"corpus": "ptb", "systems": [{"of": "lstm", "sedes": 2}]},
         "study mine, systems[0].sedes: there is no such key; write seeds"),
        ({"corpus": "ptb", "systems": [{"of": "lstm", "seeds": 0}]},
         "study mine, systems[0].seeds: 0 should be greater than or equal to 1 or a list; write seeds: 3, or [1, 2]"),
        ({"corpus": "ptb", "systems": [{"of": "lstm"}, {"of": "lstm"}]},
         "study mine: pretrain/ptb/lstm-1 stands there twice; call one of the two something else, as: …"),
        ({"corpus": "ptb", "systems": [{"of": "lstm", "as": "lstm=2.5"}]},
         "study mine, systems, as: 'lstm=2.5' is no name; write letters, digits and _ - + of ASCII, as in lstm_2x64"),
        ({"corpus": "ptb", "systems": [{"of": "gpt", "as": "lstm"}]},
         "study mine, systems: lstm is of recipe gpt, and another is called lstm; leave `as` out, or write "
         "another name, such as: lstm_of_mine"),
        ({"corpus": "ptb", "systems": [{"of": "bilstm"}]},
         "study mine, system bilstm: bilstm is trained on a task; give it one: task: sentiment"),
        ({"corpus": "ptb", "systems": [{"of": "bilstm", "task": "sentiments"}]},
         "study mine, system bilstm: there is no task 'sentiments'; write sentiment"),
        ({"corpus": "ptb", "systems": [{"of": "lstm"}], "benchmarks": {"perplexities": "all"}},
         "study mine, benchmarks: there is no benchmark 'perplexities'; write perplexity"),
        ({"corpus": "ptb", "systems": [{"of": "lstm"}], "benchmarks": {"perplexity": ["ltsm"]}},
         "study mine, benchmarks.perplexity: the study has no pretrained system 'ltsm'; write lstm"),
        ({"corpus": "ptb", "systems": [{"of": "bert"}], "benchmarks": {"perplexity": ["bert"]}},
         "study mine, benchmarks.perplexity: pretrain/ptb/bert-1 is no LanguageModel, which this asks for; leave "
         "it out"),
        ({"corpus": "ptb", "systems": [{"of": "gpt"}, {"of": "lstm", "embedding": "gpt"}]},
         "study mine, system lstm, embedding: pretrain/ptb/gpt-1 is not for embedding=; write init for models, "
         "embedding for vectors"),
        ({"corpus": "ptb", "systems": [{"of": "gpt"}, {"of": "kn5", "init": "gpt"}]},
         "study mine, system kn5: kn5 is counted from nothing; leave init out"),
        ({"corpus": "ptb", "systems": [{"of": "gpt"}, {"of": "skipgram", "init": "gpt"}]},
         "study mine, system skipgram: skipgram learns its vectors from nothing; leave init out"),
        ({"corpus": "ptb", "systems": [{"of": "gpt", "as": "gpt_on", "init": "gtp"}, {"of": "gpt"}]},
         "study mine, system gpt_on, init: the study has no pretrained system 'gtp'; write gpt"),
        ({"corpus": "ptb", "systems": [{"of": "gpt", "decoding": "greedy"}]},
         "study mine, system gpt: decoding is for systems of a task; give it one, task: translation, or leave decoding "
         "out"),
        ({"corpus": "grammar", "systems": [{"of": "lstm"}], "benchmarks": {"steering": "all"}},
         "study mine: benchmark steering is steered by from_scratch/grammar/sentiment_prefixes-lstm_prefixes-1, which "
         "the study does not train; give it that system, as in {of: lstm_prefixes, task: sentiment_prefixes}"),
        ({"corpus": "ptb", "systems": [{"of": "kn5"}], "mixtures": {"one": ["kn5"]}},
         "study mine, mixtures.one: ['kn5'] are not two systems or more of one text, of a seed each; name those"),
        ({"corpus": "ptb", "systems": [{"of": "kn5"}], "mixtures": {"one": {"of": ["kn5"], "weight": "equal"}}},
         "study mine, mixtures.one.weight: there is no such key; write weights"),
        ({"corpus": "ptb", "systems": [{"of": "kn5"}], "mixtures": {"one": {"of": ["kn5"], "weights": "same"}}},
         "study mine, mixtures.one.weights: 'same' should be 'fitted' or 'equal'; write weights: equal"),
        ({"corpus": "ptb", "systems": [{"of": "kn5"}], "adaptations": {"neural_cash": "kn5"}},
         "study mine, adaptations: there is no adaptation 'neural_cash'; write neural_cache"),
        ({"corpus": "ptb", "systems": [{"of": "kn5"}], "adaptations": {"dynamic": "kn5"}},
         "study mine, adaptations.dynamic: pretrain/ptb/kn5-1 is no NeuralLM, which this asks for; leave it out"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(said, message):
    with pytest.raises(UsageError) as error:
        expand(CONF, "mine", said)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("{files: {train: a.csv}}", "system bilstm: conf/task/odd.yaml has no type; write defaults: "),
        ("{_target_: retable.tasks.odd.OddTask}", "there is no retable.tasks.odd; write as _target_, in place of "),
    ],
)
def test_a_task_is_of_a_kind_that_there_is(tmp_path, task, message):
    conf = with_own(tmp_path, "task/odd", f"# @package _global_\ntask: {task}\n")
    with pytest.raises(UsageError, match=message):
        expand(conf, "mine", {"corpus": "ptb", "systems": [{"of": "bilstm", "task": "odd"}]})


@pytest.mark.parametrize(
    ("file", "text", "said", "message"),
    [
        ("benchmark/odd", "# @package benchmark.odd\nsplit: test\n", {"benchmarks": {"odd": "all"}},
         "study mine: conf/benchmark/odd.yaml names no class; give it one: _target_: module.Name"),
        ("benchmark/odd", "# @package benchmark.odd\n_target_: retable.metrics.units.Sums\n",
         {"benchmarks": {"odd": "all"}}, "study mine: retable.metrics.units.Sums of conf/benchmark/odd.yaml says not "),
        ("task/odd", "# @package _global_\ndefaults: [sst2, _self_]\nout: ${task_name}/${epochs}\n",
         {"systems": [{"of": "bilstm", "task": "odd"}]}, "conf/task/odd.yaml, out: ${task_name}/${epochs} is of more "),
        ("task/odd", "# @package _global_\ndefaults: [sst2, _self_]\nout: ${hydra:runtime.choices.recipe}-${seed}\n",
         {"systems": [{"of": "bilstm", "task": "odd"}]}, "conf/task/odd.yaml, out: ${hydra:runtime.choices.recipe}-${"),
        ("decoding/odd", "discriminator: a/b\n", {"texts": {"odd": "lstm"}},
         "conf/decoding/odd.yaml, discriminator: 'a/b' names no cell; write as conf/decoding/fudge.yaml does"),
        ("recipe/encoders/odd", "stage: finetune\n", {"systems": [{"of": "odd", "task": "squad"}]},
         "conf/recipe/encoders/odd.yaml says not which model it trains; write defaults: [override /model: lstm], or "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_of_ones_own_is_one_line(tmp_path, file, text, said, message):
    conf = with_own(tmp_path, file, text)
    with pytest.raises(UsageError) as error:
        expand(conf, "mine", {"corpus": "ptb", "systems": [{"of": "lstm"}]} | said)
    assert str(error.value).startswith(message)


def test_a_systems_name_goes_before_anothers_seed():
    systems, asked = [{"of": "gpt", "seeds": 2}, {"of": "gpt", "as": "gpt-2"}], {"perplexity": "gpt-2"}
    assert "evaluate/ptb/gpt-2-1" in places(corpus="ptb", systems=systems, benchmarks=asked)
    assert "evaluate/ptb/gpt-2" in places(corpus="ptb", systems=systems[:1], benchmarks=asked)


def test_a_system_may_be_called_as_the_recipe_that_it_starts_from():
    """Pretraining of several steps, whose last has the name that others start from."""
    systems = [{"of": "gpt"}, {"of": "gpt_rotary", "as": "gpt", "init": "gpt", "task": "sentiment"}]
    assert "finetune/grammar/sentiment-gpt-1" in places(corpus="grammar", systems=systems)


def test_settings_are_in_params_as_they_are_said():
    """What DVC would fill in, and what YAML takes for something else than Hydra."""
    given = {"epochs": "${oc.env:N,4}", "optimizer.lr": "1e-3", "model.d_model": "64", "clip_norm": None,
             "objective.tie": True, "dropout": "0.50", "model.rank": "[2, 3]"}  # fmt: skip
    study = expand(CONF, "mine", {"corpus": "ptb", "systems": [{"of": "lstm", "set": given}]})
    params = yaml.safe_load(params_text(params_of(study, dict.fromkeys(study.cells, ())), "study.yaml"))
    entry = params["pretrain"]["lstm-1"]
    assert settings_of(entry) == study.cells["pretrain/ptb/lstm-1"].settings
    assert entry["of"] == {"out": "ptb/lstm-1", "reads": ["outputs/tokenize/ptb/word"]}
    assert entry["model"]["d_model"] == 64
    said = yaml.safe_load(pipeline_text(pipeline_of(study, params, ["code"], "code/retable"), "study.yaml"))
    assert said["stages"]["pretrain"] == {
        "foreach": "${pretrain}",
        "do": {
            "cmd": "python -m pipelines.pretrain @outputs/plan/pretrain/${item.of.out}.yaml",
            "deps": ["outputs/plan/pretrain/${item.of.out}.yaml", "${item.of.reads[0]}"],
            "outs": ["outputs/pretrain/${item.of.out}"],
        },
    }


def test_keys_stay_when_a_study_gets_another_corpus():
    said = {"corpus": ["ptb"], "systems": [{"of": "lstm"}, {"of": "bilstm", "task": "sst2"}]}
    one, two = (expand(CONF, "mine", said | {"corpus": corpora}) for corpora in (["ptb"], ["ptb", "wikitext2"]))
    before, after = keys_of(one), keys_of(two)
    assert before.items() <= after.items()
    assert after["pretrain/ptb/lstm-1"] == "lstm-1" and after["pretrain/wikitext2/lstm-1"] == "wikitext2-lstm-1"


@pytest.mark.parametrize("study", STUDIES)
def test_studies_are_short(study):
    text = (ROOT / "studies" / study / "study.yaml").read_text(encoding="utf-8")
    reported = yaml.compose(text).value
    lines = sum(value.end_mark.line - key.start_mark.line for key, value in reported if key.value not in REPORTED)
    assert lines <= (90 if study == "gallery" else 30)  # which has a line for each size and each twin


def test_studies_make_a_cell_in_one_way():
    """Only which benchmarks measure it may differ; so one study restores what another has made."""
    cells = {}
    for study in map(read, STUDIES):
        for place, each in study.cells.items():
            said = {key: value for key, value in each.settings.items() if key != "benchmark"}
            assert cells.setdefault(place, said) == said, (study.name, place)
    assert len({yaml.safe_dump(said) for said in cells.values() if "stage" not in said}) == len(
        [said for said in cells.values() if "stage" not in said]
    )


def test_dvc_shows_a_studys_scores_and_curves():
    study = read(DEFAULT)
    params = params_of(study, dict.fromkeys(study.cells, ()))
    shown = pipeline_of(study, params, ["conf"], "src/retable", f"studies/{DEFAULT}/")
    assert shown["metrics"] == [f"studies/{DEFAULT}/results/metrics.json"]
    plots = {name: plot for each in shown["plots"] for name, plot in each.items()}
    assert all((ROOT / plot["template"]).is_file() for plot in plots.values())
    assert "outputs/pretrain/grammar_small/lstm-2/curve.csv" in plots["pretrain/grammar_small"]["y"]
    assert not any("kn5" in file for plot in plots.values() for file in plot["y"])
