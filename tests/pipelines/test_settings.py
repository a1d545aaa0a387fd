"""Test invalid settings of stages: one error line with the name that the user wrote, before anything is read."""

from typing import get_type_hints

import pytest
from hydra import initialize_config_dir

from pipelines.config.errors import one_line_errors
from pipelines.config.project import CONF
from pipelines.config.schema import STAGES, PlainName
from tests.pipelines.checked import check

LSTM = ["pretrain", "corpus=grammar_tiny", "recipe=recurrent/lstm"]
GPT = ["pretrain", "corpus=grammar_tiny", "recipe=transformer/gpt"]
TASK = ["finetune", "corpus=grammar_tiny", "recipe=encoders/bilstm", "task=sentiment"]
REFUSED = [
    (LSTM, "epochs=0", "epochs=0 should be greater than 0"), (LSTM, "epochs=-1", "epochs=-1 should be greater than 0"),
    (LSTM, "validations=0", "validations=0 should be greater than 0"),
    (LSTM, "checkpoint_every=0", "checkpoint_every=0 should be greater than or equal to 1"),
    (LSTM, "batches.batch_size=0", "batches.batch_size=0 should be"),
    (LSTM, "batches.length=0", "batches.length=0 should be"),
    (LSTM, "validation_scorer.rows=0", "validation_scorer.rows=0 should be"),
    (LSTM, "scorer.rows=0", "scorer.rows=0 should be"),
    (LSTM, "optimizer.lr=-1", "optimizer.lr=-1 should be greater than or equal to 0"),
    (LSTM, "optimizer.lr=abc", "optimizer.lr=abc should be a number"),
    (LSTM, "optimizer.lr=1e30", "optimizer.lr=1e+30 should be less than or equal to 1000"),
    (LSTM, "optimizer.lr=nan", "optimizer.lr=NaN should be a finite number"),
    (LSTM, "+optimizer.beta2=3", "optimizer.beta2=3 should be less than 1"),
    (LSTM, "~optimizer.lr", "optimizer.lr is missing; adamw requires it"),
    (LSTM, "optimizer._partial_=false", "optimizer._partial_ must be true"),
    (LSTM, "clip_norm=abc", "clip_norm=abc should be a number or null"),
    (LSTM, "seed=1e30", "seed=1e+30 should be a whole number"), (LSTM, "seed=-1", "seed=-1 should be"),
    (LSTM, "out=null", "is not a valid place for a cell"), (LSTM, "out=''", "out='' is not a valid place for a cell"),
    (LSTM, f"system={'x' * 300}", "should be a text of at most 200 characters"),
    (LSTM, "init=", "init='' should be plain names separated by /, as in corpus/name or settings by name"),
    (LSTM, "model._target_=retable.models.recurrent", "model: retable.models.recurrent is a module; write "
     "retable.models.recurrent.NAME of Recurrent, "),
    *((LSTM, f"+trainer.{name}=abc", f"trainer.{name}=abc should be a ")
      for name in ("max_epochs", "min_steps", "num_sanity_val_steps", "limit_val_batches", "log_every_n_steps")),
    (LSTM, "+trainer.enable_progress_bar=abc", "trainer.enable_progress_bar=abc should be true or false"),
    (LSTM, "budget=1e400flops", "budget=1e400flops is not a budget"),
    (LSTM, "compile=abc", "compile=abc should be true or false"),
    (LSTM, "objective.tie=3", "objective.tie=3 should be true or false"),
    (LSTM, "schedule.warmup=-1", "schedule.warmup=-1 should be"),
    (LSTM, "schedule.warmup=1e30", "schedule.warmup=1e+30 should be"),
    (LSTM, "+scorer.extra=1", "Carried takes no scorer.extra; write one of rows, segment"),
    (LSTM, "+experiment=foo", "pretrain has no setting experiment; write one of averaging, batches"),
    (LSTM, "+epoch=3", "pretrain has no setting epoch; write epochs"),
    (LSTM, "+finetuning.lr=1", "pretrain has no setting finetuning"),
    (LSTM, "+batches.seed=3", "batches.seed=3 cannot be set: it comes from the data"),
    (LSTM, "+model.n_layer=3", "LSTM takes no model.n_layer; write n_layers"),
    (LSTM, "model._target_=torch.load", "model: _target_=torch.load is not in retable.models.*"),
    (LSTM, "model._target_=retable.models.recurrent.Lstm", "there is no retable.models.recurrent.Lstm"),
    (LSTM, "scorer._target_=shutil.copyfile", "scorer: _target_=shutil.copyfile is not in"),
    (LSTM, "+model._args_=[1]", "model._args_ is not a setting"),
    (LSTM, "trainer.precision=64-false", "Precision '64-false' is invalid"),
    (LSTM, "trainer.devices=99", "trainer.devices=99 should be at most"),
    (LSTM, "trainer.devices=0", "trainer.devices=0 should be"),
    (LSTM, "+trainer.accumulate_grad_batches=0", "trainer.accumulate_grad_batches=0 should be"),
    (LSTM, "+trainer.acumulate=2", "Lightning's Trainer"),
    (LSTM, "+callbacks.mine._target_=pathlib.Path", "callbacks.mine cannot be pathlib.Path; it must be Callback"),
    (LSTM, "+logger.mine._target_=pathlib.Path", "logger.mine cannot be pathlib.Path; it must be Logger"),
    (GPT, "finetuning.lr=1", "pretrain has no setting finetuning"),
    (GPT, "+model.norm=middle", "model.norm=middle should be 'p"),
    (GPT, "batches.length=1.5", "batches.length=1.5 should be a whole number"),
    (TASK, "finetuning.epochs=0", "finetuning.epochs=0 should be greater than 0"),
    (TASK, "patience=0", "patience=0 should be greater than or equal to 1"),
    (TASK, "+finetuning.patience=0", "patience=0 should be greater than or equal to 1"),
    (TASK, "dropout=abc", "dropout=abc should be a number"),
    (TASK, "optimizer.lr=x", "optimizer.lr=x should be a number"),
    (TASK, "+finetuning.layer_decy=1", "no task has a setting finetuning.layer_decy; write layer_decay"),
    (TASK, "examples=1.5", "examples=1.5 should be a multiple of 1"),
    (["evaluate", "corpus=grammar_tiny"], "benchmark.perplexity.splits=3", "splits=3 should be a list"),
    (["evaluate", "corpus=grammar_tiny"], "benchmark.perplexity=7", "perplexity=7 must be a mapping with a _target_"),
    (["generate", "decoding=beam"], "decoding.num_beams=0", "decoding.num_beams=0 should be"),
    (["generate", "decoding=top_p"], "decoding.top_p=2", "decoding.top_p=2 should be"),
    (["generate", "decoding=top_p"], "seed=x", "seed=x should be a whole number"),
    (["generate"], "prompts=[]", 'prompts=[] should be one prompt or more, such as [""] or null'),
    (["evaluate"], "cell=", "cell='' should be plain names separated by /, as in corpus/name"),
    (["adapt"], "cell=", "cell='' should be plain names separated by /, as in corpus/name"),
    (["evaluate", "benchmark=[]"], "cell=x/y-1", "no benchmark is set; write one or more, as in "),
    (["prepare", "corpus=grammar_tiny"], "corpus.write.words.train=0", "corpus.write.words"),
    (["tokenize", "corpus=grammar_tiny", "tokenizer=bpe"], "tokenizer.train.vocab_size=x", "vocab_size=x should be a"),
    (["tokenize", "corpus=grammar_tiny"], "workers=0", "workers=0 should be"),
    (["scaling"], "device=gpu", "device=gpu should be 'cpu' or 'cuda'"),
    (["scaling"], "lengths=[1,x]", "a whole number (item 1)"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def composing():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@pytest.mark.parametrize(("command", "override", "said"), REFUSED, ids=[override for _, override, _ in REFUSED])
def test_a_setting_that_cannot_be(command, override, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end, one_line_errors():
        check(command, [override])
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("error: ") and said in line
    assert not [*tmp_path.iterdir()]


# Every setting that is a folder in a cell's path, with a command of its stage.
PLAIN = {
    (stage, name): TASK if stage == "finetune" else [stage]
    for stage, schema in STAGES.items()
    for name, annotation in get_type_hints(schema, include_extras=True).items()
    if annotation == PlainName
}


def test_the_names_of_folders_are_known():
    assert {name for _, name in PLAIN} == {"system", "task_name", "reported_as", "strategy"}
    assert {stage for stage, _ in PLAIN} == {"pretrain", "embed", "finetune", "adapt", "mix", "generate"}


@pytest.mark.parametrize("value", ["a/b", "..", ".", "../../a", "/a", "a/", "/", "", "a\nb"])
@pytest.mark.parametrize(("stage", "name"), PLAIN)
def test_a_name_that_is_no_folder_is_refused(stage, name, value, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end, one_line_errors():
        check(PLAIN[stage, name], [f"{name}='{value}'"])
    (line,) = capsys.readouterr().err.splitlines()
    shown = " ".join(value.split()) or "''"
    wanted = "a text in one line" if "\n" in value else "a name without /, such as lstm"
    assert end.value.code == 2 and line == f"error: {name}={shown} should be {wanted}"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("command", "override"), [
    (LSTM, "budget=10min"), (LSTM, "clip_norm=null"), (LSTM, "+max_steps=3"), (LSTM, "trainer.precision=64-true"),
    (LSTM, "+trainer.fast_dev_run=true"), (LSTM, "+optimizer.beta2=0.99"), (GPT, "schedule.warmup=1.4"),
    (TASK, "examples=1e3"), (TASK, "finetuning.epochs=0.5"), (["tokenize", "corpus=grammar_tiny"], "workers=2"),
    (LSTM, "+callbacks.mine._target_=lightning.pytorch.callbacks.ModelSummary"),
    (LSTM, "+trainer.accumulate_grad_batches=2"), (["generate"], "prompts=[the old,3]"),
])  # fmt: skip
def test_a_setting_that_can_be(command, override):
    check(command, [override])


def test_a_setting_is_called_as_the_user_calls_it(capsys):
    """For example, `dropout` is a setting of both the model and the head."""
    with pytest.raises(SystemExit), one_line_errors():
        check(TASK, ["+finetuning.dropout=3"])
    assert "error: finetuning.dropout=3 should be" in capsys.readouterr().err
