"""Test what connects a pretrained cell with a task: its weights, the marks around a sentence, and the recipes."""

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from pipelines.app.init_from import freeze, load_pretrained
from pipelines.app.task_text import subsample
from pipelines.config.project import CONF, STUDIES
from retable.core.errors import UsageError
from retable.core.stages import TASK_STAGES
from retable.data.bucketed import Bucketed
from retable.data.examples import Inputs, encoded
from retable.inference.build import build_model, build_objective
from retable.objectives.classification import Classification
from retable.objectives.regression import Regression
from retable.planning.conf import Conf
from retable.planning.study import read_study
from retable.tasks.reading import ends_of_sequences, pack
from retable.tasks.sentences import Example
from retable.tokenizers import word, wordpiece
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import read_weights, save_weights
from tests.pipelines.recipes import composed

LINES = ["the cat sees a bird", "a bird sees the cat", "it sees it"]
MARKED = word.train(LINES, marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]", "<extra_id_0>"])
SMALL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 24}
# For each kind a recipe for fine-tuning, and the recipe of its pretraining.
CELLS = [
    ("bert", "bert"), ("electra", "electra"), ("gpt", "gpt"), ("bilstm_elmo", "elmo"),
    ("t5_toy_encoder", "t5_toy_spans"),
]  # fmt: skip


def recipe(stage: str, name: str, *overrides: str) -> DictConfig:
    cfg = composed(stage, name, *overrides)
    for key in set(SMALL) & set(cfg.model):
        if "elmo" not in str(cfg.model._target_):
            cfg.model[key] = SMALL[key]
    return cfg


def finetuned(model: str, tokenizer: Tokenizer = MARKED):
    return build_model(recipe("finetune", model), tokenizer)


@pytest.mark.parametrize(("model", "pretrained"), CELLS)
def test_a_backbone_takes_what_its_pretraining_left(model, pretrained, tmp_path):
    cfg = recipe("pretrain", pretrained)
    if "generator" in cfg.objective:
        cfg.objective.generator.d_model = 8
    torch.manual_seed(1)
    trained = build_objective(cfg, MARKED, build_model(cfg, MARKED))
    save_weights(trained, path := tmp_path / "model.safetensors")
    backbone = finetuned(model)
    load_pretrained(backbone, backbone, read_weights(path), path)
    theirs, n_loaded = dict(trained.model.named_parameters()), 0
    for name, parameter in backbone.named_parameters():
        name = name.removeprefix("elmo.")
        if name in theirs and parameter.shape == theirs[name].shape:
            assert torch.equal(parameter, theirs[name]), name
            n_loaded += 1
    assert n_loaded == sum(not name.startswith("decoder.") for name in theirs)


def test_electra_is_the_discriminator_not_the_generator(tmp_path):
    cfg = recipe("pretrain", "electra")
    cfg.objective.generator.d_model = SMALL["d_model"]  # as wide as the discriminator, so its weights would fit
    trained = build_objective(cfg, MARKED, build_model(cfg, MARKED)).eval()
    save_weights(trained, path := tmp_path / "model.safetensors")
    backbone = finetuned("electra").eval()
    load_pretrained(backbone, backbone, read_weights(path), path)
    read = torch.tensor([MARKED.encode("the cat sees a bird")]), torch.tensor([5])
    assert torch.equal(backbone(*read), trained.model(*read))
    assert not torch.allclose(backbone(*read), trained.generator(*read), atol=0.1)


def test_weights_of_another_model_are_refused(tmp_path):
    save_weights(torch.nn.ModuleDict({"model": finetuned("gpt")}), path := tmp_path / "model.safetensors")
    for other in ("bert", "t5_toy_encoder", "bilstm_elmo"):
        with pytest.raises(UsageError, match="has weights that do not fit the model"):
            load_pretrained(torch.nn.Identity(), finetuned(other), read_weights(path), path)


def test_what_is_pretrained_in_parts_is_not_frozen_as_a_whole():
    with pytest.raises(UsageError, match=r"remove frozen=true, or write model\.frozen=true to freeze those parts"):
        freeze(finetuned("bilstm_elmo"))


PLAIN = word.train(LINES)
PIECES = wordpiece.train(LINES, vocab_size=40, lowercase=True, alphabet=30)  # this tokenizer drops line ends


@pytest.mark.parametrize(("models", "tokenizer", "ends"), [
    (("gpt", "bilstm", "bilstm_elmo", "t5_toy_encoder"), PLAIN, ("<eos>", "<eos>")),
    (("gpt",), PIECES, ("[SEP]", "[SEP]")),
    (("bert", "electra"), MARKED, ("[CLS]", "[SEP]")),
])  # fmt: skip
def test_a_sentence_stands_between_the_ends_of_lines_or_marks(models, tokenizer, ends):
    for model in models:
        ends_of = ends_of_sequences(finetuned(model, tokenizer), tokenizer)
        assert tuple(tokenizer.words[place] for place in ends_of) == ends, model
    if tokenizer is MARKED:
        with pytest.raises(UsageError, match=r"BERT needs \[CLS\] and \[SEP\].*tokenizer=word_marked"):
            ends_of_sequences(finetuned(models[0], PLAIN), PLAIN)


PAIR, SEPARATE = [("the cat sees", "it sees")], ["<eos> the cat sees <eos>", "<eos> it sees <eos>"]
LEFT_TO_RIGHT = ["<eos> the cat sees [SEP] it sees <eos>", "<eos> it sees [SEP] the cat sees <eos>"]
IN_SEGMENTS = ["[CLS] the cat sees [SEP] it sees [SEP]", "0 0 0 0 0 1 1 1"]


@pytest.mark.parametrize(("model", "tokenizer", "symmetric", "expected"), [
    *((model, MARKED, symmetric, SEPARATE) for symmetric in (False, True)
      for model in ("bag_of_words", "deep_averaging", "bilstm", "bilstm_elmo", "t5_toy_encoder")),
    *((model, MARKED, symmetric, IN_SEGMENTS) for symmetric in (False, True) for model in ("bert", "electra")),
    ("gpt", MARKED, False, LEFT_TO_RIGHT[:1]), ("gpt", MARKED, True, LEFT_TO_RIGHT),  # in both orders of the pair
    ("gpt", PLAIN, False, ["<eos> the cat sees <eos> it sees <eos>"]),
])  # fmt: skip
def test_a_pair_is_read_as_the_model_reads_pairs(model, tokenizer, symmetric, expected):
    inputs = pack(finetuned(model, tokenizer), tokenizer, PAIR, symmetric)
    parts = [inputs.sequences[0], *([] if inputs.others is None else [inputs.others[0]])]
    lines = [" ".join(tokenizer.words[i] for i in part) for part in parts]
    if inputs.segments is not None:
        lines.append(" ".join("01"[i >= inputs.segments[0]] for i in range(len(inputs.sequences[0]))))
    assert lines == expected


def test_a_sentence_too_long_for_the_model_is_shortened():
    cfg = recipe("finetune", "gpt", "model.max_length=6")
    inputs = pack(build_model(cfg, MARKED), MARKED, PAIR, False)
    assert " ".join(MARKED.words[i] for i in inputs.sequences[0]) == "<eos> the cat [SEP] it <eos>"
    assert inputs.truncated == 1


def build_head(cfg: DictConfig):
    cfg.task_name = "some"
    return instantiate(cfg.task).objective(build_model(cfg, MARKED), MARKED, **cfg.head)


def test_the_head_is_that_of_the_tasks_labels():
    cfg = recipe("finetune", "bilstm", "task=stsb")
    head = build_head(cfg)
    assert isinstance(head, Regression) and (head.low, head.high) == (0, 5)
    assert head.head.in_features == 4 * cfg.model.d_model
    cfg = recipe("finetune", "bilstm", "task=mnli", "d_hidden=7")
    head = build_head(cfg)
    assert not isinstance(head, Regression) and (head.head[0].out_features, head.head[-1].out_features) == (7, 3)


def test_settings_of_the_training_are_a_recipes_or_none():
    cfg = recipe("finetune", "bilstm")
    assert (cfg.dropout, cfg.d_hidden, cfg.patience, cfg.validations) == (0.1, None, None, 1)
    assert cfg.optimizer.layer_decay == 1
    cfg = recipe("finetune", "bilstm", "+finetuning.patience=3", "+finetuning.dropout=0.5")
    assert cfg.patience == 3 and cfg.dropout == cfg.model.dropout == 0.5


EXAMPLES = [Example((f"sentence {i}",), i % 2) for i in range(200)]


def test_labels_are_drawn_by_the_seed_without_replacement():
    few, more = subsample(EXAMPLES, 50, seed=1), subsample(EXAMPLES, 120, seed=1)
    assert len(few) == len(set(few)) == 50 and few == subsample(EXAMPLES, 50, seed=1) != subsample(EXAMPLES, 50, seed=2)
    assert set(few) < set(more) and more == sorted(more, key=EXAMPLES.index)
    assert subsample(EXAMPLES, 200, seed=1) == EXAMPLES  # with all examples, training is the same as with null
    counts = [sum(example in subsample(EXAMPLES, 20, seed) for seed in range(400)) for example in EXAMPLES[::20]]
    assert all(abs(count - 40) < 5 * 6 for count in counts)  # binomial: mean 40, standard deviation 6


@pytest.mark.parametrize("number", [0, -1, 201, 0.5, "all"])
def test_more_labels_than_there_are_and_none_are_refused(number):
    with pytest.raises(UsageError, match=f"^examples={number}, but there are 200 training examples; write 1 to 200"):
        subsample(EXAMPLES, number, seed=1)


@pytest.mark.parametrize(("labels", "steps"), [(100, 160), (1000, 384), (10000, 1878)])
def test_a_recipe_of_few_labels_is_berts_with_its_own_training(labels, steps):
    cfg, bert = recipe("finetune", f"bert_{labels}_labels"), recipe("finetune", "bert")
    assert cfg.model == bert.model and bert.examples is None
    batches = Bucketed(encoded(Inputs([[0]] * labels), [0] * labels), cfg.batch_size, 1)
    assert cfg.examples == labels and batches.steps_per_epoch * cfg.epochs == steps
    assert cfg.patience >= cfg.epochs * cfg.validations  # no training is cut short, and the best is kept


def test_the_study_of_labels_names_what_its_systems_learn_from():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        train = compose("prepare", overrides=["corpus=grammar_toy_3m"]).corpus.write.task_examples.train
    study = read_study(Conf(CONF), STUDIES / "labels/study.yaml")
    systems = {"bert": None, "bert_pretrained": "pretrain/grammar_toy_3m/bert-1"}
    expected = {(f"{system}_{n}_labels", f"bert/bert_{n}_labels", init) for system, init in systems.items()
                for n in (1000, train)}  # fmt: skip
    expected |= {(f"{system}_100_labels", f"bert/{system}_100_labels", init) for system, init in systems.items()}
    trained = [cell.settings for cell in study.cells.values() if cell.stage in TASK_STAGES]
    cells = [(settings["system"], settings["recipe"], settings.get("init")) for settings in trained]
    assert {cell for cell in cells if "labels" in cell[0]} == expected and len(cells) == 78
    assert [study.reported["label_efficiency"][name] for name in ("scratch", "pretrained")] == [*systems]


def test_only_the_recipe_that_asks_for_it_has_an_auxiliary_loss():
    assert recipe("finetune", "gpt_toy").auxiliary == 0
    cfg = recipe("finetune", "gpt_toy_auxiliary")
    assert Classification(build_model(cfg, MARKED), 2, 0.0, cfg.auxiliary).auxiliary == 0.5
    assert recipe("finetune", "gpt", "auxiliary=0.1").auxiliary == 0.1


def test_the_encoder_is_that_of_the_t5s_of_the_ablations():
    pretrained, encoder = (composed("pretrain", name).model for name in ("t5_toy_spans", "t5_toy_encoder"))
    assert encoder == OmegaConf.merge(pretrained, {"_target_": encoder._target_})


@pytest.mark.parametrize(("name", "baseline", "elmo"), [
    ("bilstm_elmo", "bilstm", "elmo"), ("bilstm_elmo_glue", "bilstm_glue", "elmo_glue"),
    ("elmo_tagger", "bilstm_tagger", "elmo"), ("few_tags_elmo", "few_tags", "elmo_1x128"),
    ("elmo_role_labeller", "role_labeller", "elmo"), ("bilstm_attention", "bilstm_glue", None),
])  # fmt: skip
def test_a_recipe_is_its_baseline_with_one_thing_changed(name, baseline, elmo):
    """The change is attention, or a frozen ELMo with the settings of its pretraining."""
    changed, plain = (composed("finetune", each, "task=sentiment") for each in (name, baseline))
    assert changed.finetuning == plain.finetuning
    assert {**changed.model, "_target_": ""} | {**plain.model, "_target_": ""} == {**changed.model, "_target_": ""}
    if elmo:
        assert changed.model.elmo == {**composed("pretrain", elmo).model, "_partial_": True} and changed.model.frozen


def test_glues_recipes_have_one_width():
    names = ("bilstm_glue", "bilstm_attention", "bilstm_elmo_glue", "neural_bag_glue", "cnn")
    models = [composed("pretrain", name).model for name in names]
    assert {model.get("d_embedding") or model.d_model for model in models} == {100}
    cfg = recipe("finetune", "bilstm_glue")
    assert (cfg.max_steps, cfg.patience, cfg.d_hidden, cfg.pooling) == (1200, 3, 512, None)


@pytest.mark.parametrize(("task", "model", "message"), [
    ("conll2012_roles", "bilstm_crf", "has no predicate input; write recipe=taggers/role_labeller"),
    ("squad", "role_labeller", "the task has no predicates, but the model needs them "),
    ("sentiment", "role_labeller", "the task has no predicates, but the model needs them "),
    ("swag", "role_labeller", "the task has no predicates, but the model needs them "),
])  # fmt: skip
def test_a_model_that_can_not_do_a_task_is_refused_before_its_data_are_read(task, model, message):
    cfg = composed("finetune", model, f"task={task}")
    cfg.merge_with({"task_name": task, "text": "none"})
    with pytest.raises(UsageError, match=message):
        instantiate(cfg.task).require(get_class(cfg.model._target_), cfg.model.get("d_predicate", 0))
