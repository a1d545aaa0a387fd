"""Test `init=hf:…` and `init=` of a cell: stages that start with weights of transformers, or of another pretraining."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from omegaconf import OmegaConf

import retable
from pipelines.app.task_text import subsample
from pipelines.config.checkpoint import use_checkpoint_config
from pipelines.config.project import CONF
from retable.core.artifacts import read_json, write_json
from retable.core.digests import write_digests
from retable.core.errors import UsageError
from retable.data.bucketed import Bucketed
from retable.data.examples import Inputs, encoded
from retable.exchange.checkpoint import Checkpoint
from retable.exchange.families import weights_in_transformers
from retable.models.bert import BERT
from retable.objectives.classification import Classification
from retable.planning.conf import Conf
from retable.planning.study import expand
from retable.tasks.table import read_table
from retable.training.weights import read_weights
from tests.exchange.cases import TOKENIZERS
from tests.pipelines.conftest import track
from tests.pipelines.recipes import composed

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
ROWS = [("the cat sees a bird", 0), ("a bird sees the cat", 1), ("it sees it", 0), ("no cat saw it", 1)] * 10
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "max_position_embeddings": 32}
BERTISH = SIZES | {"intermediate_size": 64}


SPARE = 3  # additional rows of the embedding table, as in T5's checkpoints


def write(folder: Path, family: str, model: str, **settings):
    """Write a random checkpoint with transformers, and one of our tokenizers."""
    tokenizer, kind = TOKENIZERS[family](), getattr(transformers, model)
    torch.manual_seed(1)
    its = kind(kind.config_class(vocab_size=tokenizer.vocab_size + SPARE, **settings))
    its.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return its


@pytest.fixture(scope="module")
def labelled(project):
    """Return a project with files of a small sentence task in SST-2's format, and a tiny BERT."""
    folder = project.folder / "data/glue/SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = pd.DataFrame(ROWS, columns=["sentence", "label"])
        rows[["sentence"] if split == "test" else rows.columns].to_csv(folder / f"{split}.tsv", sep="\t", index=False)
    return project


@pytest.fixture(scope="module")
def bert(project):
    return write(project.folder / "tiny-bert", "bert", "BertForPreTraining", **BERTISH)


SST2 = ("task=sst2", "epochs=1")


def tune(labelled, *overrides: str) -> None:
    labelled.succeed("finetune", *SST2, *overrides, RETABLE_DATA="data")


def test_a_checkpoint_is_fine_tuned(labelled, bert):
    linear = ("optimizer=of_checkpoint", "+finetuning.warmup=0.1")
    tune(labelled, "recipe=bert/bert", "init=hf:tiny-bert", "out=tuned", *linear)
    cell = labelled.folder / "outputs/finetune/tuned"
    cfg = OmegaConf.load(cell / "config.yaml")
    assert (cfg.model.d_model, cfg.model.vocab_size, cfg.model.dropout, "norm" in cfg.model) == (16, 57, 0.1, False)
    assert cfg.schedule._target_.endswith("warmup_linear") and cfg.schedule.warmup == 0.1
    assert cfg.init == {"_target_": "retable.exchange.checkpoint.Checkpoint", "name": "tiny-bert"}
    run = json.loads((cell / "run.json").read_text())
    assert "tiny-bert/model.safetensors" in run["digests"] and "outputs/tokenize" not in str(run["digests"])
    assert (cell / "tokenizer.json").read_bytes() == (labelled.folder / "tiny-bert/tokenizer.json").read_bytes()
    weights = read_weights(cell / "model.safetensors")
    table = bert.bert.embeddings.word_embeddings.weight
    assert 0 < (weights["model.embedding.weight"] - table).abs().max() < 0.05  # only a few steps were made


def test_a_t5_writes_labels_and_its_encoder_is_read_alone(labelled):
    settings = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    its = write(labelled.folder / "tiny-t5", "t5", "T5ForConditionalGeneration", **settings)
    slow = ("init=hf:tiny-t5", "out=t5", "optimizer.lr=0", "max_steps=1")
    for recipe, answers in {"t5/t5_glue": ["answers=[bird,cat]"], "t5/t5_toy_encoder": []}.items():
        tune(labelled, f"recipe={recipe}", *slow, *answers, "system=t5")
        weights = read_weights(labelled.folder / "outputs/finetune/t5/model.safetensors")
        assert torch.equal(weights["model.embedding.weight"], its.shared.weight)
        assert any(name.startswith("model.decoder") for name in weights) == ("glue" in recipe)


def test_a_gpts_special_tokens_stand_behind_all_rows_of_its_table(labelled, gpt):
    slow = ("init=hf:tiny-gpt", "out=gpt", "optimizer.lr=0", "max_steps=1")
    tune(labelled, "recipe=encoders/gpt_special_tokens", *slow)
    weights = read_weights(labelled.folder / "outputs/finetune/gpt/model.safetensors")
    assert torch.equal(weights["model.embedding.weight"][:-3], gpt.transformer.wte.weight)
    cfg = OmegaConf.load(labelled.folder / "outputs/finetune/gpt/config.yaml")
    assert len(weights["model.embedding.weight"]) == cfg.model.vocab_size + 3
    loaded = retable.load(labelled.folder / "outputs/finetune/gpt")
    assert len(loaded.classify(["the cat sees a bird", "it"])) == 2


@pytest.fixture(scope="module")
def gpt(project):
    return write(project.folder / "tiny-gpt", "gpt", "GPT2LMHeadModel", n_embd=16, n_layer=1, n_head=2, n_positions=32)


def test_without_a_recipe_a_checkpoint_has_the_settings_of_its_paper(labelled, bert, gpt):
    """The papers are Devlin et al. 2019, appendix A.3, and Radford et al. 2018, section 4.1."""
    for kind, model, lr, batch_size, warmup in (
        ("bert", "BERT", 5e-5, 16, 0.1), ("gpt", "GPTWithSpecialTokens", 6.25e-5, 32, 0.002),
    ):  # fmt: skip
        done = labelled.succeed("finetune", "task=sst2", f"init=hf:tiny-{kind}", "max_steps=1", RETABLE_DATA="data")
        cell = labelled.folder / f"outputs/finetune/grammar/sst2-finetuned_{kind}-1"
        assert f"{cell.relative_to(labelled.folder)}: validation/accuracy" in done.stdout
        cfg = OmegaConf.load(cell / "config.yaml")
        assert cfg.model._target_.rpartition(".")[2] == model and cfg.model.max_length == 32
        assert (cfg.optimizer.lr, cfg.epochs, cfg.batch_size, cfg.optimizer.weight_decay) == (lr, 3, batch_size, 0.01)
        assert cfg.schedule._target_ == "retable.training.schedules.warmup_linear"
        assert (cfg.schedule.warmup, cfg.schedule.final) == (warmup, 0.0)


def test_without_a_recipe_a_t5_writes_labels(labelled):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    write(labelled.folder / "small-t5", "t5", "T5ForConditionalGeneration", **sizes)
    labelled.succeed(
        "finetune", "task=sst2", "init=hf:small-t5", "answers=[bird,cat]", "max_steps=1", RETABLE_DATA="data"
    )
    cfg = OmegaConf.load(labelled.folder / "outputs/finetune/grammar/sst2-finetuned_t5-1/config.yaml")
    assert cfg.model._target_ == "retable.models.t5.T5"
    assert (cfg.optimizer.lr, cfg.epochs, cfg.batch_size, cfg.schedule.warmup) == (3e-4, 3, 16, 0.1)


def test_the_maximum_length_is_of_the_command_or_of_a_recipe_without_sizes(labelled, bert, monkeypatch):
    monkeypatch.chdir(labelled.folder)
    lengths = []
    for recipe, longest, overrides in (
        ("finetuned_bert", None, []),
        ("finetuned_bert", 8, []),
        ("bert", 8, []),
        ("bert", 8, ["model.max_length=8"]),
    ):
        cfg = composed("finetune", recipe, "init=hf:tiny-bert", "task=sst2")
        cfg.model.max_length = longest
        use_checkpoint_config(cfg, overrides)
        lengths.append((cfg.model.max_length, cfg.init.get("max_length")))
    assert lengths == [(32, None), (8, 8), (32, None), (8, 8)]


def test_more_positions_than_the_configuration_has_are_an_error(tmp_path):
    write(tmp_path, "bert", "BertForPreTraining", **BERTISH)
    settings = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", settings | {"max_position_embeddings": 16})
    for longest in ({}, {"max_length": 8}):
        with pytest.raises(UsageError, match=r"the weights lack positions\.weight as config\.json describes it"):
            _ = Checkpoint(str(tmp_path), **longest).weights


def test_labels_of_a_file_are_learnt_from_one_command_and_predicted(labelled, bert):
    rows = [(text, "bird" if label else "cat") for text, label in ROWS]
    pd.DataFrame(rows, columns=["said", "kind"]).to_csv(labelled.folder / "rows.csv", index=False)
    command = ("task=own_labels", "task.files.train=rows.csv", "task.sentences=[said]", "task.label=kind")
    done = labelled.succeed("finetune", *command, "init=hf:tiny-bert", "epochs=1", "model.max_length=8")
    assert "own_labels/validation/accuracy 0.5 (" in done.stdout  # the score with its interval
    assert "are the same, 'cat'; try" in done.stderr or "are the same, 'bird'; try" in done.stderr
    cell = labelled.folder / "outputs/finetune/own_labels/finetuned_bert-1"
    table = bert.bert.embeddings.position_embeddings.weight
    positions = read_weights(cell / "model.safetensors")["model.positions.weight"]
    torch.testing.assert_close(positions, table[:8], atol=0.01, rtol=0)
    (labelled.folder / "rows.csv").unlink()  # predictions do not need the training file
    loaded = retable.load(cell)
    assert loaded.labels == ("bird", "cat") and loaded.classify(["the cat sees a bird"])[0] in loaded.labels


@pytest.mark.parametrize(("overrides", "message"), [
    (["init=hf:tiny-bert", "model.max_length=2"], "model.max_length=2 is out of range; write 3 to 32"),
    (["init=hf:tiny-bert", "model.max_length=33"], "model.max_length=33 is out of range; write 3 to 32"),
    (["init=hf:tiny-bert", "model.max_length=abc"], "model.max_length=abc should be a whole number"),
    (["init=hf:tiny-bert", "model.max_length=[8]"], 'model.max_length="[8]" should be a whole number'),
    (["init=hf:tiny-bert,random", "-m"], "init=hf:tiny-bert,random has a checkpoint and a value without hf:; write re"),
    (["init=hf:tiny-bert,hf:tiny-gpt", "-m"], "init=hf:tiny-bert,hf:tiny-gpt names checkpoints of several kinds: BERT"),
    (["init=hf:tiny-bert", "task=own_labels"], "task.files.train has no value; write task.files.train=…"),
])  # fmt: skip
def test_a_checkpoint_is_not_fine_tuned(labelled, bert, gpt, overrides, message):
    settings = overrides if "task=own_labels" in overrides else ["task=sst2", *overrides]
    assert labelled.refuse("finetune", *settings, RETABLE_DATA="data").startswith(f"error: {message}")


@pytest.mark.parametrize(("overrides", "message"), [
    (["recipe=transformer/gpt"], "init=hf:tiny-bert is a BERT, but the recipe's model is a GPT; write "),
    (["recipe=bert/bert", "model.n_layers=3"], "init=hf:tiny-bert sets the model's settings; remove mod"),
    (["recipe=bert/bert", "init=hf:none/of/these"],
     "none/of/these is not a folder and cannot be downloaded from the hub"),
])  # fmt: skip
def test_what_does_not_fit_is_said_in_one_line(labelled, bert, overrides, message):
    line = labelled.refuse("finetune", *SST2, "init=hf:tiny-bert", *overrides, RETABLE_DATA="data")
    assert line.startswith(f"error: {message}")


# One step without any change, so the weights are the initial ones.
SLOW = ("optimizer.lr=0", "++max_steps=1", "batches.length=32")
ENCODED = ("corpus=grammar_tiny", "tokenizer=pretrained")


@pytest.fixture(scope="module")
def continued(labelled, bert):
    """Continue the pretraining of BERT. Return its tokens and the cell."""
    labelled.succeed("tokenize", *ENCODED, "tokenizer.train.path=tiny-bert")
    labelled.succeed("pretrain", *ENCODED, *SLOW, "recipe=bert/bert", "init=hf:tiny-bert", "system=on")
    labelled.succeed("evaluate", *ENCODED, "cell=grammar_tiny/on-1", "benchmark=held_out")
    return labelled.folder / "outputs/pretrain/grammar_tiny/on-1"


def test_pretraining_goes_on_from_a_checkpoint(continued, bert):
    weights, theirs = read_weights(continued / "model.safetensors"), dict(bert.named_parameters())
    for ours, its in {
        "model.embedding.weight": "bert.embeddings.word_embeddings.weight",
        "model.pooler.bias": "bert.pooler.dense.bias",
        "head.dense.weight": "cls.predictions.transform.dense.weight",
        "head.decoder.bias": "cls.predictions.bias",
        "next_sentence.weight": "cls.seq_relationship.weight",
    }.items():
        assert torch.equal(weights[ours], theirs[its]), ours
    assert json.loads((continued / "run.json").read_text())["drawn"] == []


def test_a_cell_gone_on_with_is_measured(labelled, continued):
    (metrics,) = labelled.folder.glob("outputs/evaluate/grammar_tiny/on-1/metrics.json")
    assert json.loads(metrics.read_text())["held_out/loss"] > 0


def test_pretraining_goes_on_from_a_cell_under_another_objective_too(labelled, continued):
    same = ("recipe=bert/bert", "init=pretrain/grammar_tiny/on-1", *SLOW)
    model = ["d_model=16", "n_layers=2", "n_heads=2", "max_length=32", "norm=post"]
    model = [f"model.{each}" for each in model] + ["+model.vocab_size=57", "+objective.vocab_size=57"]
    labelled.succeed("pretrain", *ENCODED, *same, *model, "system=again")
    began, after = (read_weights(labelled.folder / f"outputs/pretrain/grammar_tiny/{name}-1/model.safetensors")
                    for name in ("on", "again"))  # fmt: skip
    assert all(torch.equal(began[name], weight) for name, weight in after.items())
    without = ("objective.next_sentence=false", "batches.next_sentence=none", "objective.tie=false")
    labelled.succeed("pretrain", *ENCODED, *same, *model, *without, "system=other")
    cell = labelled.folder / "outputs/pretrain/grammar_tiny/other-1"
    assert json.loads((cell / "run.json").read_text())["drawn"] == ["head.decoder.weight"]
    assert (
        read_weights(cell / "model.safetensors")["head.dense.weight"] - began["head.dense.weight"]
    ).abs().max() < 1e-5


@pytest.mark.parametrize(("overrides", "message"), [
    (
        ["recipe=bert/bert", "init=hf:tiny-bert", "tokenizer=word"],
        "grammar_tiny/word was not encoded by the tokenizer of tiny-bert; first run python -m pipelines.tokenize_text "
        "corpus=grammar_tiny tokenizer=pretrained tokenizer.train.path=hf:tiny-bert, then repeat this command",
    ),
    (["recipe=recurrent/lstm", "init=pretrain/grammar_tiny/on-1"],
     "outputs/pretrain/grammar_tiny/on-1 was trained on the tokens grammar_tiny/pretrained, not g"),
    (["recipe=recurrent/lstm", "init=pretrain/grammar_tiny/on-1", "tokenizer=pretrained"],
     "outputs/pretrain/grammar_tiny/on-1/model.safetensors has weights that do not fit the model LSTM"),
    (["recipe=counted/kn5", "init=pretrain/grammar_tiny/on-1"],
     "a count-based model cannot start from other weights; remove init="),
    (["recipe=counted/kn5", "init=hf:tiny-bert"], "init=hf:tiny-bert is a BERT, but the recipe's model is a "),
    (["recipe=recurrent/lstm", "init=pretrain/grammar_tiny/none-1"],
     "outputs/pretrain/grammar_tiny/none-1/config.yaml"),
])  # fmt: skip
def test_what_pretraining_can_not_go_on_with_is_said_in_one_line(labelled, continued, overrides, message):
    assert labelled.refuse("pretrain", "corpus=grammar_tiny", *overrides).startswith(f"error: {message}")


def test_the_cells_of_a_study_go_on_and_by_hand_they_are_the_same(labelled, continued):
    short = {"optimizer.lr": 0, "epochs": 0.01, "batches.length": 32}
    small = {"model.d_model": 16, "model.n_layers": 2, "model.n_heads": 2, "model.max_length": 32, "model.norm": "post"}
    systems = [{"of": "bert", "as": "study_bert", "init": "hf:tiny-bert", "set": short},
               {"of": "bert", "as": "study_on", "init": "study_bert",
                "set": short | small | {"+model.vocab_size": 57, "+objective.vocab_size": 57}}]  # fmt: skip
    cells = expand(Conf(CONF), "mine", dict(corpus="grammar_tiny", tokenizer="pretrained", systems=systems)).cells
    made = {place: cell for place, cell in cells.items() if cell.stage == "pretrain"}
    params = track(labelled.folder, [*made.values()])
    for cell in made.values():
        overrides = shlex.split(cell.command)[3:]
        labelled.succeed("pretrain", *overrides, DVC_STAGE=cell.stage)
        before = (labelled.folder / "outputs" / cell.place / "config.yaml").read_bytes()
        assert "a try" not in labelled.succeed("pretrain", *overrides).stderr
        assert (labelled.folder / "outputs" / cell.place / "config.yaml").read_bytes() == before
    params.unlink()
    first, second = (labelled.folder / "outputs" / place for place in made)
    assert json.loads((second / "run.json").read_text())["made_from"][-1] == "pretrain/grammar_tiny/study_bert-1"
    began, after = (read_weights(cell / "model.safetensors") for cell in (first, second))
    assert all(torch.equal(began[name], weight) for name, weight in after.items())


def test_an_electras_generator_follows_the_checkpoints_settings(tmp_path):
    write(tmp_path, "electra", "ElectraForPreTraining", **BERTISH, embedding_size=8)
    cfg = composed("pretrain", "electra", f"init=hf:{tmp_path}")
    use_checkpoint_config(cfg, [])
    assert (cfg.objective.generator.d_embedding, cfg.objective.generator.max_length, cfg.model.pooler) == (8, 32, False)
    assert cfg.objective.generator.norm == "post" and cfg.objective.vocab_size == cfg.model.vocab_size


def test_a_softmax_of_its_own_stays_one(tmp_path):
    write(tmp_path, "gpt", "GPT2LMHeadModel", n_embd=16, n_layer=1, n_head=2, n_positions=16, tie_word_embeddings=False)
    cfg = composed("pretrain", "gpt", f"init=hf:{tmp_path}")
    use_checkpoint_config(cfg, [])
    assert cfg.objective.tie is False and cfg.model.dropout == 0.0 and cfg.model.max_length == 16
    with pytest.raises(UsageError, match=r"remove model\.d_model=8"):
        use_checkpoint_config(composed("pretrain", "gpt", f"init=hf:{tmp_path}"), ["model.d_model=8"])


class InOrder(transformers.Trainer):
    """transformers' Trainer on batches in a given order; it records their losses."""

    def get_train_dataloader(self):
        self.losses = []
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, *given, **named):
        loss = super().compute_loss(*given, **named)
        self.losses.append(loss.item())
        return loss


def read_by_both(path: Path, reader) -> tuple[list, list[list[int]]]:
    """Return the sentences of a file with their labels, and the ids of transformers' tokenizer."""
    examples = [(row.fields["sentence"], int(row.fields["label"])) for row in read_table(path).rows]
    return examples, [reader(" ".join(text.split()), truncation=True, max_length=32).input_ids for text, _ in examples]


def as_theirs(batch) -> dict[str, torch.Tensor]:
    mask = (torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]).long()
    return {"input_ids": batch.input_ids, "attention_mask": mask, "labels": batch.labels}


@pytest.mark.parametrize("data", ["tiny", pytest.param("SST-2", marks=[pytest.mark.real, pytest.mark.long])])
def test_fine_tuning_is_that_of_transformers_own_trainer(labelled, bert, data, request, tmp_path):
    """One checkpoint is fine-tuned with the stage and with transformers' Trainer.

    With the same initial head and batches, and without dropout, losses of all steps, weights and predictions are equal.
    """
    root = labelled.folder / "data" if data == "tiny" else request.getfixturevalue("data_dir").resolve()
    folder, labels, epochs = labelled.folder / "tiny-bert", 40 if data == "tiny" else 320, 2
    cell = labelled.folder / f"outputs/finetune/beside-{data}"
    done = labelled.run(
        "finetune", "task=sst2", "recipe=bert/bert", f"init=hf:{folder}", f"out={cell.name}", f"examples={labels}",
        "seed=1", "dropout=0", f"epochs={epochs}", "batch_size=16", "optimizer.lr=1e-3", "~schedule.warmup",
        "schedule._target_=retable.training.schedules.linear_decay", RETABLE_DATA=str(root),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    checkpoint, reader = Checkpoint(str(folder)), transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(1)
    model = BERT(**{k: v for k, v in checkpoint.model.items() if k not in ("_target_", "dropout")}, dropout=0.0)
    drawn = Classification(model, 2, 0.0)
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        folder, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    theirs.classifier.load_state_dict(drawn.head.state_dict())
    examples, rows = read_by_both(root / "glue/SST-2/train.tsv", reader)
    some = subsample([*zip(examples, rows, strict=True)], labels, seed=1)
    batches = Bucketed(encoded(Inputs([ids for _, ids in some]), [label for (_, label), _ in some]), 16, seed=1)
    arguments = transformers.TrainingArguments(  # transformers' AdamW and linear schedule
        output_dir=str(tmp_path), max_steps=epochs * batches.steps_per_epoch, learning_rate=1e-3, weight_decay=0.01,
        max_grad_norm=1.0, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, seed=1,
        remove_unused_columns=False,
    )  # fmt: skip
    order = [as_theirs(batches.batch(step)) for step in range(arguments.max_steps)]
    trainer = InOrder(theirs, arguments, train_dataset=order)
    trainer.train()

    curve = pd.read_csv(cell / "curve.csv")
    losses = list(curve.loc[curve["metric"] == "train/loss", "value"])
    assert len(losses) == epochs * -(-labels // 16) and losses == pytest.approx(trainer.losses, abs=1e-5)
    drawn.load_state_dict(read_weights(cell / "model.safetensors"))
    its = dict(theirs.named_parameters())
    for name, weight in weights_in_transformers(drawn).items():
        torch.testing.assert_close(weight, its[name].detach(), atol=1e-4, rtol=1e-3)

    asked, ids = read_by_both(root / "glue/SST-2/dev.tsv", reader)
    whole = encoded(Inputs(ids), [label for _, label in asked])
    with torch.no_grad():
        logits = theirs.eval()(**as_theirs(whole.pad(np.arange(len(ids))))).logits
    units = pd.read_csv(cell / "units.csv").query("split == 'validation'")
    sure = (logits[:, 0] - logits[:, 1]).abs() > 1e-3
    assert sure.float().mean() > 0.95 and (logits.argmax(1).numpy() == units["prediction"])[sure.numpy()].all()


def test_a_cell_goes_to_transformers(labelled, continued):
    folder = labelled.folder / "gone"
    folder.mkdir()  # an existing folder must be empty
    labelled.succeed("cli.main", "export", "pretrain/grammar_tiny/on-1", "gone", "--license", "mit")
    theirs, info = transformers.BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    weights = read_weights(continued / "model.safetensors")
    assert torch.equal(theirs.bert.embeddings.word_embeddings.weight, weights["model.embedding.weight"])
    card = ModelCard.load(folder / "README.md").data
    assert (card.license, card.datasets, card.model_name) == ("mit", ["grammar_tiny"], "grammar_tiny-on-1")
    assert {"loss", "masked_accuracy"} <= {result.metric_type for result in card.eval_results}
    measured = labelled.folder / "outputs/evaluate/grammar_tiny/on-1"
    run = read_json(measured / "run.json")
    run["digests"] |= {path: "older" for path in run["digests"] if "model.safetensors" in path}
    write_json(measured / "run.json", run)  # the scores of the weights before
    write_digests(measured)
    labelled.succeed("cli.main", "export", "pretrain/grammar_tiny/on-1", "gone_again")
    assert ModelCard.load(labelled.folder / "gone_again/README.md").data.eval_results is None


def test_a_fine_tuned_cell_goes_to_transformers_and_labels_the_same(labelled, bert):
    tune(labelled, "recipe=bert/bert", "init=hf:tiny-bert", "out=sst2/goes-1", "optimizer.lr=3e-2")
    labelled.succeed("cli.main", "export", "finetune/sst2/goes-1", "goes", RETABLE_DATA="data")
    pipeline = transformers.pipeline("text-classification", str(labelled.folder / "goes"), device="cpu", top_k=None)
    ours = retable.load(labelled.folder / "outputs/finetune/sst2/goes-1")
    texts = [text for text, _ in ROWS[:4]]
    for row, shares in zip(pipeline(texts), ours.probabilities(texts), strict=True):
        assert {each["label"]: each["score"] for each in row} == pytest.approx(
            dict(zip(("negative", "positive"), shares.tolist(), strict=True)), abs=1e-5
        )
    assert ModelCard.load(labelled.folder / "goes/README.md").data.pipeline_tag == "text-classification"


def test_what_is_no_network_does_not_go_to_transformers(labelled):
    labelled.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram")
    assert "unigram-1 is not a neural model of tokens, so transformers cannot load it" in labelled.refuse(
        "cli.main", "export", "pretrain/grammar_tiny/unigram-1", "nothing"
    )
