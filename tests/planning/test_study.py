"""Test compact studies, their cells, and the messages for mistakes."""

from pathlib import Path

import pytest
import yaml

from pipelines.config.project import DEFAULT
from pipelines.study.dvc_project import data_of
from retable.core.errors import UsageError
from retable.planning.conf import Conf
from retable.planning.graph import keys_of, params_of, params_text, pipeline_of, pipeline_text, settings_of
from retable.planning.schema import REPORT_KEYS
from retable.planning.study import Study, expand, folder_of_more_seeds, more_seeds, read_study

ROOT = Path(__file__).parent.parent.parent
CONF = Conf(ROOT / "conf")
STUDIES = sorted(path.parent.name for path in ROOT.glob("studies/*/study.yaml"))


def places(**study):
    return list(expand(CONF, "mine", study).cells)


def cell(place, **study):
    return expand(CONF, "mine", study).cells[place]


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
    made = cell("pretrain/ptb/small-2", corpus="ptb", systems=[{"of": "lstm_small", "as": "small", "seeds": [2],
                                                               "set": {"optimizer.lr": 0.5, "clip_norm": None,
                                                                       "objective.tie": False}}])  # fmt: skip
    recipe = CONF.choice("lstm_small")
    assert made.command == (
        f"python -m pipelines.pretrain corpus=ptb tokenizer=word recipe={recipe} system=small seed=2 optimizer.lr=0.5"
        " clip_norm=null objective.tie=False"  # Hydra reads `None` as a word
    )
    assert made.reads == ("tokenize/ptb/word",)


def test_a_tokenizer_is_the_entrys_or_the_studys_or_the_recipes():
    bert = {"of": "bert"}
    assert cell("pretrain/ptb/bert-1", corpus="ptb", systems=[bert]).tokenizer == "word_marked"
    assert cell("pretrain/ptb/bert-1", corpus="ptb", tokenizer="bpe", systems=[bert]).tokenizer == "bpe"
    entries = [bert | {"tokenizer": "word_english"}]
    assert cell("pretrain/ptb/bert-1", corpus="ptb", tokenizer="bpe", systems=entries).tokenizer == "word_english"


def test_a_system_starts_from_the_same_seed_or_else_the_first():
    systems = [{"of": "skipgram", "seeds": 2}, {"of": "gpt"},
               {"of": "bilstm", "embedding": "skipgram", "seeds": 2, "task": "sentiment"},
               {"of": "gpt", "as": "gpt_pretrained", "init": "gpt", "seeds": 2, "task": "sentiment"}]  # fmt: skip
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems}).cells
    trained = {cell.settings["system"] + cell.settings["seed"]: cell.settings for cell in cells.values()
               if "task" in cell.settings}  # fmt: skip
    assert trained["bilstm2"]["embedding"] == "outputs/embed/grammar/skipgram-2/vectors.bin"
    assert trained["gpt_pretrained2"]["init"] == "pretrain/grammar/gpt-1"


@pytest.mark.parametrize("folder", ["data", "${oc.env:RETABLE_DATA,data}"])
def test_a_system_starts_from_a_file_of_word_vectors(folder):
    path = f"{folder}/glove.6B.zip/glove.6B.50d.txt"
    entries = [{"of": "bilstm_tagger", "embedding": path, "task": "conll2000_chunking", "set": {"+lookup": "[lower]"}},
               {"of": "lstm", "embedding": path}]  # fmt: skip
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": entries}).cells
    of_stage = {cell.stage: cell for cell in cells.values() if cell.stage in ("finetune", "pretrain")}
    assert {cell.settings["embedding"] for cell in of_stage.values()} == {path} and len(of_stage) == 2
    assert of_stage["finetune"].reads == () and of_stage["pretrain"].reads == ("tokenize/grammar/word",)
    assert of_stage["finetune"].settings["+lookup"] == "[lower]"
    assert all("data/glove.6B.zip" in data_of(cell) for cell in of_stage.values())


def test_vectors_of_an_unknown_system_are_refused():
    entries = [{"of": "bilstm", "embedding": 5, "task": "sentiment"}]
    with pytest.raises(UsageError, match="the study has no pretrained system 5"):
        expand(CONF, "mine", {"corpus": "grammar", "systems": entries})


def test_pretraining_goes_on_from_a_system_wherever_it_stands():
    systems = [{"of": "gpt", "as": "gpt_on", "init": "gpt", "seeds": 2}, {"of": "gpt", "seeds": 2}]
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems, "benchmarks": {"perplexity": "all"}}).cells
    on = cells["pretrain/grammar/gpt_on-2"]
    assert on.settings["init"] == "pretrain/grammar/gpt-2"
    assert on.reads == ("tokenize/grammar/word", "pretrain/grammar/gpt-2")
    assert "evaluate/grammar/gpt_on-2" in cells
    other = systems[0] | {"corpus": "grammar_small"}
    continued = cell("pretrain/grammar_small/gpt_on-1", corpus="grammar", systems=[other, systems[1]])
    assert continued.settings["init"] == "pretrain/grammar/gpt-1"


def test_a_checkpoint_of_transformers_brings_no_cells_and_where_a_task_is_learnt_no_tokens():
    systems = [{"of": "bert", "as": "{init}_on", "init": "hf:mine/bert", "tokenizer": "wordpiece_uncased"},
               {"of": "bert", "as": "from_{init}", "init": "hf:mine/bert", "task": "sst2"}]  # fmt: skip
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems}).cells
    on, tuned = cells["pretrain/grammar/bert_on-1"], cells["finetune/grammar/sst2-from_bert-1"]
    assert on.settings["init"] == tuned.settings["init"] == "hf:mine/bert"
    assert on.reads == ("tokenize/grammar/wordpiece_uncased",)
    assert tuned.reads == () and "tokenizer" not in tuned.settings
    assert on.command.endswith(" init=hf:mine/bert system=bert_on seed=1")


@pytest.mark.parametrize("start", ["hf:gpt2", "hf:gpt2@main", "hf:mine/gpt2@refs/pr/1", "hf:folder/of/gpt2"])
def test_the_name_of_a_checkpoint_has_no_owner_and_no_revision(start):
    systems = [{"of": "gpt", "as": "from_{init}", "init": start, "task": "sst2"}]
    cells = expand(CONF, "mine", {"corpus": "grammar", "systems": systems}).cells
    assert cells["finetune/grammar/sst2-from_gpt2-1"].settings["init"] == start


def test_a_sentence_encoder_needs_a_checkpoint_and_no_tokens():
    entry = {"of": "sentence_encoder", "as": "minilm", "init": "hf:mine/minilm"}
    content = {"corpus": "sts", "systems": [entry], "benchmarks": {"sentence_similarity": "all"}}
    cells = expand(CONF, "mine", content).cells
    assert [*cells] == ["pretrain/sts/minilm-1", "prepare/sts", "evaluate/sts/minilm-1"]
    assert cells["pretrain/sts/minilm-1"].reads == ()
    measured = cells["evaluate/sts/minilm-1"]
    assert measured.reads == ("pretrain/sts/minilm-1", "prepare/sts") and "tokenizer" not in measured.settings
    with pytest.raises(UsageError, match=r"system minilm: sentence_encoder is not trained here; add a checkpoint"):
        expand(CONF, "mine", content | {"systems": [entry | {"init": None}]})
    with pytest.raises(UsageError, match=r"pretrain/sts/minilm-1 is not a LanguageModel"):
        expand(CONF, "mine", content | {"benchmarks": {"perplexity": "minilm"}})


def test_the_default_is_of_forty_stages_at_most():
    """Its time is that of its trainings, and one second per stage."""
    plan, report = 1, 1
    assert len(read(DEFAULT).cells) + plan + report <= 40


def test_rates_are_a_system_each():
    systems = [{"of": ["lstm", "elman"], "rates": ["5e-3", 0.01], "set": {"epochs": 2}}]
    study = expand(CONF, "mine", {"corpus": "grammar", "systems": systems})
    pretrained = {place: cell.settings for place, cell in study.cells.items() if cell.stage == "pretrain"}
    assert study.rates["lstm"] == {"lstm_rate_1": 0.005, "lstm_rate_2": 0.01}
    assert [place.rpartition("/")[2] for place in pretrained] == [
        "lstm_rate_1-1", "lstm_rate_2-1", "elman_rate_1-1", "elman_rate_2-1",
    ]  # fmt: skip
    assert [settings["optimizer.lr"] for settings in pretrained.values()] == ["5e-3", "0.01"] * 2
    assert all(settings["epochs"] == "2" for settings in pretrained.values())


def test_what_starts_from_a_system_with_rates_is_made_from_each():
    systems = [{"of": "skipgram", "rates": [0.1, 0.2]},
               {"of": "bilstm", "as": "on_skipgram", "embedding": "skipgram", "task": "sentiment"}]  # fmt: skip
    study = expand(CONF, "mine", {"corpus": "grammar", "systems": systems})
    vectors_of = {place: cell.settings["embedding"] for place, cell in study.cells.items() if cell.stage == "finetune"}
    assert vectors_of == {
        f"finetune/grammar/sentiment-on_skipgram_rate_{k}-1": f"outputs/embed/grammar/skipgram_rate_{k}-1/vectors.bin"
        for k in (1, 2)
    }
    assert study.rates["on_skipgram"] == {"on_skipgram_rate_1": 0.1, "on_skipgram_rate_2": 0.2}
    with pytest.raises(UsageError, match=r"on_skipgram starts from skipgram, which has .*such as skipgram_rate_1$"):
        expand(CONF, "mine", {"corpus": "grammar", "systems": [systems[0], systems[1] | {"rates": [1e-3]}]})


def test_a_selection_takes_those_that_can_answer():
    systems = [{"of": ["kn5", "lstm", "bert", "skipgram"]}]
    cells = places(corpus="ptb", tokenizer="word", systems=systems, benchmarks={"perplexity": "all"})
    assert cells[-2:] == ["evaluate/ptb/kn5-1", "evaluate/ptb/lstm-1"]
    cells = places(corpus="ptb", tokenizer="word", systems=systems, benchmarks={"perplexity": {"all but": ["kn5"]}})
    assert [place for place in cells if place.startswith("evaluate")] == ["evaluate/ptb/lstm-1"]


def test_the_benchmarks_of_a_cell_are_one_evaluation_in_the_studys_order():
    study = {"corpus": "ptb", "systems": [{"of": ["kn5", "lstm"]}]}
    asked = {"positions": "all", "gradients": "lstm", "perplexity": ["kn5", "lstm"]}
    cells = places(**study, benchmarks=asked)
    assert cells[-2:] == ["evaluate/ptb/kn5-1", "evaluate/ptb/lstm-1"]
    one = cell("evaluate/ptb/lstm-1", **study, benchmarks=asked)
    assert one.choices("benchmark") == ["positions", "gradients", "perplexity"]
    assert one.command.endswith(" cell=ptb/lstm-1 benchmark='[positions,gradients,perplexity]'")


@pytest.mark.parametrize(("mixture", "made_from", "weights"), [
    (["kn5", "cache"], ["pretrain/ptb/kn5-1", "pretrain/ptb/cache-1"], None),
    (["rnn_dynamic", "kn5"], ["adapt/ptb/rnn_dynamic-1", "pretrain/ptb/kn5-1"], None),
    ({"of": ["rnn-1", "rnn-2"], "weights": "equal"}, ["pretrain/ptb/rnn-1", "pretrain/ptb/rnn-2"], "equal"),
    ({"of": ["rnn-1", "rnn-2"]}, ["pretrain/ptb/rnn-1", "pretrain/ptb/rnn-2"], None),
], ids=str)  # fmt: skip
def test_a_mixture_is_of_its_systems(mixture, made_from, weights):
    study = {"corpus": "ptb", "systems": [{"of": ["kn5", "cache"]}, {"of": "rnn", "seeds": 2}]}
    mixed = cell("mix/ptb/both-1", **study, adaptations={"dynamic": "rnn-1"}, mixtures={"both": mixture})
    assert [*mixed.made_from] == made_from and mixed.settings.get("weights") == weights
    assert mixed.settings["cells"] == f"[{','.join(made_from)}]"


def test_a_system_that_goes_on_learning_is_called_after_the_trained_one_and_its_way():
    keys = {"corpus": "ptb", "systems": [{"of": ["kn5", "rnn"]}, {"of": "lstm_small", "seeds": 2}]}
    keys |= {"adaptations": {"neural_cache": "all", "dynamic_rms": "lstm_small-2"}, "benchmarks": {"perplexity": "all"}}
    adapted = [f"{name}_neural_cache-{seed}" for name, seed in (("rnn", 1), ("lstm_small", 1), ("lstm_small", 2))]
    adapted.append("lstm_small_dynamic_rms-2")
    cells = places(**keys)
    assert [place for place in cells if place.startswith("adapt")] == [f"adapt/ptb/{name}" for name in adapted]
    assert {f"evaluate/ptb/{name}" for name in ("kn5-1", "lstm_small-2", *adapted)} <= {*cells}
    one = cell(f"adapt/ptb/{adapted[-1]}", **keys)
    assert one.made_from == ("pretrain/ptb/lstm_small-2",) and one.settings["cell"] == "ptb/lstm_small-2"
    assert one.command.endswith(" adaptation=dynamic_rms system=lstm_small_dynamic_rms seed=2")
    assert "tokenize/ptb/word" in one.reads
    evaluation = cell(f"evaluate/ptb/{adapted[-1]}", **keys)
    assert evaluation.settings["stage"] == "adapt" and evaluation.made_from == (one.place,)


def test_what_is_steered_is_made_from_its_discriminator_too():
    steered = {"benchmarks": {"steering": "all"}, "texts": {"fudge": "lstm"}}
    systems = [{"of": "lstm"}, {"of": "lstm_prefixes", "task": "sentiment_prefixes"}]
    judge = "from_scratch/grammar_small/sentiment_prefixes-lstm_prefixes-1"
    for place in ("evaluate/grammar_small/lstm-1", "generate/grammar_small/lstm-1-fudge"):
        steering_cell = cell(place, corpus="grammar_small", systems=systems, **steered)
        assert steering_cell.made_from == ("pretrain/grammar_small/lstm-1", judge)
        assert judge in steering_cell.reads


def test_a_systems_name_goes_before_anothers_seed():
    systems, asked = [{"of": "gpt", "seeds": 2}, {"of": "gpt", "as": "gpt-2"}], {"perplexity": "gpt-2"}
    assert "evaluate/ptb/gpt-2-1" in places(corpus="ptb", systems=systems, benchmarks=asked)
    assert "evaluate/ptb/gpt-2" in places(corpus="ptb", systems=systems[:1], benchmarks=asked)


def test_a_system_may_be_called_as_the_recipe_that_it_starts_from():
    """The last of several pretraining steps may have the name from which others start; or names contain those of
    starts.
    """
    systems = [{"of": ["gpt", "gpt_rotary"]}, {"of": "gpt_rotary", "as": "gpt", "init": "gpt", "task": "sentiment"},
               {"of": "gpt", "init": ["gpt", "gpt_rotary"], "as": "from_{init}", "task": "sentiment"}]  # fmt: skip
    names = {place.rpartition("/")[2] for place in places(corpus="grammar", systems=systems)}
    assert {"sentiment-gpt-1", "sentiment-from_gpt-1", "sentiment-from_gpt_rotary-1"} <= names


def test_settings_are_in_params_as_they_are_said():
    """Also values that DVC would interpolate, and values that YAML reads differently from Hydra."""
    given = {"epochs": "${oc.env:N,4}", "optimizer.lr": "1e-3", "model.d_model": "64", "clip_norm": None,
             "objective.tie": True, "dropout": "0.50", "model.rank": "[2, 3]"}  # fmt: skip
    study = expand(CONF, "mine", {"corpus": "ptb", "systems": [{"of": "lstm", "set": given}]})
    params = yaml.safe_load(params_text(params_of(study, dict.fromkeys(study.cells, ())), "study.yaml"))
    entry = params["pretrain"]["lstm-1"]
    assert settings_of(entry) == study.cells["pretrain/ptb/lstm-1"].settings
    assert entry["of"] == {"out": "ptb/lstm-1", "reads": ["outputs/tokenize/ptb/word"], "name": "lstm"}
    assert entry["model"]["d_model"] == 64
    pipeline = yaml.safe_load(pipeline_text(pipeline_of(study, params, ["code"], "code/retable"), "study.yaml"))
    assert pipeline["stages"]["pretrain"] == {
        "foreach": "${pretrain}",
        "do": {
            "desc": "${item.of.name}",
            "cmd": "python -m pipelines.pretrain @outputs/plan/pretrain/${item.of.out}.yaml",
            "deps": ["outputs/plan/pretrain/${item.of.out}.yaml", "${item.of.reads[0]}"],
            "outs": ["outputs/pretrain/${item.of.out}"],
        },
    }


def test_more_seeds_are_the_cells_that_differ_only_in_the_seed():
    tuned = {"of": "gpt", "as": "tuned", "init": "gpt", "task": "sst2"}
    study = {"corpus": "ptb", "systems": [{"of": ["gpt", "kn5"]}, tuned], "benchmarks": {"perplexity": "all"}}
    here, other = expand(CONF, "here", study | {"more_seeds": "seeds"}), expand(CONF, "seeds", study | {"seeds": 3})
    places = ["pretrain/ptb/gpt", "pretrain/ptb/kn5", "finetune/ptb/sst2-tuned", "evaluate/ptb/gpt", "evaluate/ptb/kn5"]
    missing = {cell.place for cell in more_seeds(here, other)}
    assert missing == {f"{place}-{seed}" for place in places for seed in (2, 3)}
    folders = [folder_of_more_seeds(here, root) for root in ("studies/here/", "")]
    assert folders == ["studies/seeds", "../seeds"] and folder_of_more_seeds(other, "") == ""
    pipeline = pipeline_of(here, params_of(here, dict.fromkeys(here.cells, ())), [], "", "studies/here/")
    assert "studies/seeds/records" in pipeline["stages"]["report"]["deps"]


@pytest.mark.parametrize(("changed", "message"), [
    ({"seeds": 1}, "adds no seeds of these systems"),
    ({"seeds": 2, "set": {"epochs": 3}}, "pretrain/ptb/lstm-2 of study seeds has epochs=3, but the cell of this "),
    ({"seeds": 2, "tokenizer": "bpe"}, "has tokenizer=bpe, but the cell of this study has tokenizer=word; give"),
])  # fmt: skip
def test_more_seeds_have_the_same_settings(changed, message):
    here, other = (expand(CONF, name, {"corpus": "ptb", "systems": [{"of": "lstm"} | each]})
                   for name, each in (("here", {}), ("seeds", changed)))  # fmt: skip
    with pytest.raises(UsageError, match=f"study here, more_seeds: .*{message}"):
        more_seeds(here, other)


def test_keys_stay_when_a_study_gets_another_corpus():
    study = {"corpus": ["ptb"], "systems": [{"of": "lstm"}, {"of": "bilstm", "task": "sst2"}]}
    one, two = (expand(CONF, "mine", study | {"corpus": corpora}) for corpora in (["ptb"], ["ptb", "wikitext2"]))
    before, after = keys_of(one), keys_of(two)
    assert before.items() <= after.items()
    assert after["pretrain/ptb/lstm-1"] == "lstm-1" and after["pretrain/wikitext2/lstm-1"] == "wikitext2-lstm-1"


@pytest.mark.parametrize("study", STUDIES)
def test_studies_are_short(study):
    text = (ROOT / "studies" / study / "study.yaml").read_text(encoding="utf-8")
    reported = yaml.compose(text).value
    lines = sum(value.end_mark.line - key.start_mark.line for key, value in reported if key.value not in REPORT_KEYS)
    assert lines <= (90 if study == "gallery" else 30)  # it has a line for each size and each twin


def test_studies_make_a_cell_in_one_way():
    cells = {}
    for study in map(read, STUDIES):
        for place, each in study.cells.items():
            settings = {key: value for key, value in each.settings.items() if key != "benchmark"}
            assert cells.setdefault(place, settings) == settings, (study.name, place)
    assert len({yaml.safe_dump(settings) for settings in cells.values() if "stage" not in settings}) == len(
        [settings for settings in cells.values() if "stage" not in settings]
    )


def test_dvc_shows_a_studys_scores_and_curves():
    study = read(DEFAULT)
    params = params_of(study, dict.fromkeys(study.cells, ()))
    shown = pipeline_of(study, params, ["conf"], "src/retable", f"studies/{DEFAULT}/")
    assert shown["metrics"] == [f"studies/{DEFAULT}/results/metrics.json"]
    plots = {name: plot for each in shown["plots"] for name, plot in each.items()}
    assert all((ROOT / plot["template"]).is_file() for plot in plots.values())
    assert "outputs/pretrain/english_small/lstm-1/curve.csv" in plots["pretrain/english_small"]["y"]
    encoders = {"corpus": "sts", "systems": [{"of": "sentence_encoder", "as": "minilm", "init": "hf:mine/minilm"}]}
    (drawn := expand(CONF, "mine", encoders)).cells["pretrain/sts/minilm-1"].settings["recipe"] = "own/encoder"
    plots = pipeline_of(drawn, params_of(drawn, dict.fromkeys(drawn.cells, ())), ["conf"], "src/retable")["plots"]
    assert [*plots[0]] == ["scores"] and len(plots) == 1  # a recipe of the user, in any folder
    plots = {name: plot for each in shown["plots"] for name, plot in each.items()}
    assert not any("kn5" in file for plot in plots.values() for file in plot["y"])
