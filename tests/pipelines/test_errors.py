"""Mistakes of use: one clear line on standard error, exit code 2, nothing half-written."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipelines.config.errors import one_line_errors
from retable.core.publishing import exclusive


def files(folder):
    return {p.relative_to(folder) for top in ("outputs", "results") for p in (folder / top).rglob("*") if p.is_file()}


def refuse(project, stage, *overrides, **environment) -> str:
    before = files(project.folder)
    done = project.run(stage, *overrides, **environment)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2
    assert line.startswith("error: ")
    assert files(project.folder) == before
    return line


@pytest.fixture
def text(tmp_path):
    """Overrides that prepare three text files of the test's own."""
    paths = {split: tmp_path / f"{split}.txt" for split in ("train", "validation", "test")}
    for path in paths.values():
        path.write_text("a line of text\n")
    return paths, ["corpus=ptb", *(f"corpus.write.{split}={path}" for split, path in paths.items())]


def test_missing_data_folder(project):
    line = refuse(project, "prepare", "corpus=ptb", RETABLE_DATA="nowhere")
    assert "nowhere/ptb/ptb.train.txt" in line and "RETABLE_DATA" in line


def test_each_file_of_a_folder_of_data_counts(bare_project, tmp_path):
    (folder := tmp_path / "data/wikitext-2").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"wiki.{split}.tokens").write_text(f" a line of {split} \n")
    digests = []
    for line in (" a line of train \n", " another line \n"):
        (folder / "wiki.train.tokens").write_text(line)
        bare_project.succeed("prepare", "corpus=wikitext2", RETABLE_DATA=str(tmp_path / "data"))
        run = json.loads((bare_project.folder / "outputs/prepare/wikitext2/run.json").read_text())
        digests.append({Path(path).name: digest for path, digest in run["digests"].items()})
    assert [*digests[0]] == ["wiki.test.tokens", "wiki.train.tokens", "wiki.valid.tokens"]
    assert {name for name in digests[0] if digests[0][name] != digests[1][name]} == {"wiki.train.tokens"}


def test_empty_corpus(project, text):
    paths, overrides = text
    paths["validation"].write_text(" \n\n")
    line = refuse(project, "prepare", *overrides)
    assert "holds no words" in line and str(paths["validation"]) in line


def test_bytes_that_are_not_utf8(project, text):
    paths, overrides = text
    paths["train"].write_bytes(b"fine\nna\xefve\n")
    line = refuse(project, "prepare", *overrides)
    assert "line 2" in line and "UTF-8" in line and "0xef" in line


def test_unknown_key(project):
    line = refuse(project, "pretrain", "modle.d_model=3")
    assert line == "error: there is no setting modle.d_model; write model.d_model; +modle.d_model= adds one"


def test_unknown_model(project):
    line = refuse(project, "pretrain", "model=bert_typo")
    assert line == "error: there is no conf/model/bert_typo.yaml; write bert"


def test_unknown_recipe(project):
    for name in ("bert/bert_base_typo", "bert_base"):
        line = refuse(project, "pretrain", f"recipe={name}")
        assert f"there is no conf/recipe/{name}.yaml" in line and "bert/bert_base" in line


@pytest.mark.parametrize(
    ("group", "text", "message"),
    [
        ("recipe", "defaults: [/recipe/recurrent/lstm, _self_]\nepochs: 2\n", "recipe=own begins without the line"),
        ("task", "defaults: [/task_type/sentences, _self_]\ntask: {label: verdict}\n",
         "task=own begins without the line"),
        ("task", "# @package _global_\ntask: {label: verdict}\n", "task=own has no type; write `defaults: ["),
        ("task", "# @package _global_\ndefaults: [/task_type/tags, _self_]\ntask: {_target_: retable.tasks.odd.Odd}\n",
         "there is no retable.tasks.odd; write as _target_, in place of retable.tasks.odd.Odd, "),
        ("model", "_target_: retable.models.recurrent.Odd\n",
         "there is no retable.models.recurrent.Odd; write as _target_"),
    ],
)  # fmt: skip
def test_file_of_ones_own_that_is_read_otherwise_than_meant(project, tmp_path, group, text, message):
    (tmp_path / group).mkdir()
    (tmp_path / group / "own.yaml").write_text(text)
    stage = "finetune" if group == "task" else "pretrain"
    line = refuse(project, stage, f"--config-dir={tmp_path}", "corpus=grammar_tiny", f"{group}=own")
    assert message in line


@pytest.mark.parametrize("header", ["", "# @package benchmark.perplexity\n"])
def test_benchmark_of_ones_own_under_another_name(project, tmp_path, header):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/own.yaml").write_text(f"{header}_target_: retable.evaluation.perplexity.Perplexity\n")
    line = refuse(project, "evaluate", f"--config-dir={tmp_path}", "corpus=grammar_tiny", "benchmark=own")
    assert "benchmark=own begins without the line `# @package benchmark.own`" in line


def test_unknown_benchmark(project):
    line = refuse(project, "evaluate", "benchmark=nothing_like_it")
    assert "there is no conf/benchmark/nothing_like_it.yaml" in line and "perplexity, phenomena" in line
    line = refuse(project, "evaluate", "benchmark=[perplexity,phenomenon]")
    assert "there is no conf/benchmark/phenomenon.yaml; write phenomena" in line


def test_setting_of_the_recipe_that_another_choice_does_not_take(project):
    line = refuse(project, "pretrain", "corpus=grammar_tiny", "recipe=transformer/gpt", "optimizer=sgd")
    assert "sgd takes no optimizer.beta2" in line and "~optimizer.beta2" in line


def test_causal_objective_on_an_encoder(project):
    line = refuse(project, "pretrain", "corpus=grammar_tiny", "recipe=encoders/bilstm")
    assert "BiLSTM" in line and "causal_lm" in line and "recipe=recurrent/lstm" in line


def test_recipe_for_another_objective(project):
    pair = ["corpus=grammar_tiny", "recipe=transformer/gpt", "objective=prefix_lm"]
    line = refuse(project, "pretrain", *pair)
    assert "PrefixLM takes no objective.bias" in line and "~objective.bias" in line
    line = refuse(project, "pretrain", *pair, "~objective.bias")
    assert "GPT" in line and "prefix" in line and "recipe=t5/prefix_lm" in line and "objective=causal_lm" in line


def test_recipe_that_says_nothing_of_tasks(project):
    line = refuse(project, "finetune", "corpus=grammar_tiny", "recipe=recurrent/lstm", "task=sentiment")
    assert "recipe=recurrent/lstm" in line and "task=sentiment" in line
    said = line.partition("'")[2].partition("'")[0]
    few = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "task=sentiment", "max_steps=1", "system=as_told"]
    project.succeed("finetune", *few, said)


@pytest.mark.parametrize(("group", "own", "other"), [("optimizer", "adamw", "sgd"),
                                                     ("schedule", "warmup_cosine", "constant")])  # fmt: skip
def test_choice_in_whose_place_a_task_has_its_own(project, group, own, other):
    line = refuse(project, "finetune", "corpus=grammar_tiny", "task=sentiment", f"{group}={other}")
    assert own in line and f"write {group}._target_=retable.training.{group}s.{other}" in line


def test_null_is_no_choice(project):
    assert "write ~GROUP" in refuse(project, "pretrain", "logger=null")


def test_missing_stage_output(project):
    line = refuse(project, "evaluate", "stage=pretrain", "cell=grammar/lstm-9")
    assert "`retable repro` of a study that has pretrain/grammar/lstm-9, or `python -m pipelines.pretrain`" in line


@pytest.mark.parametrize("out", ["", "..", "../../x", "/x", "a//b", "a/../b", "null", "3"])
def test_a_cell_in_no_place_for_one(project, out):
    """Said before anything is read: there are no tokens of this corpus."""
    line = refuse(project, "pretrain", "corpus=grammar", f"out={out!r}" if out not in ("null", "3") else f"out={out}")
    assert "is no place for a cell; write plain names, as in out=corpus/name" in line


@pytest.mark.parametrize(
    ("stage", "overrides", "message"),
    [
        ("pretrain", ["corpus=grammar", "out=grammar_tiny"], "outputs/pretrain/grammar_tiny has no run.json, and only"),
        ("tokenize", ["corpus=grammar", "out=grammar_tiny/word/mine"],
         "outputs/tokenize/grammar_tiny/word is a cell, and"),
        ("tokenize", ["corpus=grammar_tiny", "tokenizer=character", "text=glue", "out=grammar_tiny/word"],
         "is missing"),
        ("pretrain", ["corpus=grammar_tiny", "recipe=counted/kn3", "out=grammar_tiny/here-1"],
         "outputs/pretrain/grammar_tiny/here-1 is another cell, of system here for kn3; write another out=, or remove"),
        ("pretrain", ["corpus=grammar_tiny", "recipe=counted/unigram", "system=here", "out=grammar_tiny/here-1",
                      "seed=2"], "is another cell, of seed 1 for 2;"),
    ],
)  # fmt: skip
def test_a_cell_in_the_place_of_something_else(project, stage, overrides, message):
    here = project.folder / "outputs/pretrain/grammar_tiny/here-1"
    if not here.exists():
        project.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=here")
    assert message in refuse(project, stage, *overrides)


def test_a_cell_that_a_kill_left_aside_comes_back_before_another_is_refused(project):
    here, unigram = project.folder / "outputs/pretrain/grammar_tiny/aside-1", ["corpus=grammar_tiny", "system=aside"]
    project.succeed("pretrain", *unigram, "recipe=counted/unigram")
    aside = project.folder / "work/pretrain/grammar_tiny/aside-1/replaced"
    aside.parent.mkdir(parents=True)
    here.rename(aside)
    done = project.run("pretrain", *unigram, "recipe=counted/kn3", "system=kn3", "out=grammar_tiny/aside-1")
    assert done.returncode == 2 and "aside-1 is another cell, of system aside for kn3;" in done.stderr
    assert (here / "model.safetensors").exists() and not aside.parent.exists()


def test_a_cell_that_another_process_makes(project):
    out = "pretrain/grammar_tiny/twice-1"
    with exclusive(bench := project.folder / "work" / out, Path("outputs", out)):
        line = refuse(project, "pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=twice")
        assert line.startswith(f"error: outputs/{out} is being made by process {os.getpid()} on ")
        assert [path.name for path in bench.iterdir()] == ["lock"]
    project.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=twice")
    assert not bench.exists()


def test_truncated_checkpoint(project):
    settings = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "model.d_model=8", "batches.batch_size=4",
                "batches.length=16", "epochs=0.6", "checkpoint_every=3", "system=cut",
                "+callbacks.mortal._target_=dying.Mortal"]  # fmt: skip
    project.run("pretrain", *settings, DIE_AT="10")
    (checkpoint,) = (project.folder / "work").rglob("last.ckpt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    done = project.succeed("pretrain", *settings)
    said = f"{checkpoint.relative_to(project.folder)} is damaged; training goes on from previous.ckpt"
    assert said in done.stderr.splitlines()


def test_truncated_weights(project):
    cell = project.folder / "outputs/pretrain/grammar_tiny/cut_weights-1"
    project.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=cut_weights")
    weights = cell / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    line = refuse(project, "evaluate", "corpus=grammar_tiny", "cell=grammar_tiny/cut_weights-1")
    assert "cut_weights-1/model.safetensors" in line


def test_wrong_column_name(project):
    line = refuse(project, "finetune", "corpus=grammar_tiny", "task=sentiment", "task.sentences=[text]")
    assert "'text'" in line and "'sentence'" in line and "train.tsv" in line


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objective=weighted_least_squares"], "write recipe=vectors/glove"),
        (["recipe=vectors/glove", "objective=negative_sampling"], "write recipe=vectors/skipgram, vectors/cbow or"),
        (["objective=full_softmax", "word_by_word=true"], "write word_by_word=false"),
        (["clip_norm=5"], "write clip_norm=null"),
        (["threads=0"], "threads=0"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_word_vectors_that_cannot_be(project, overrides, message):
    assert message in refuse(project, "embed", "corpus=grammar_tiny", *overrides)


def test_an_input_layer_from_no_vectors(project):
    line = refuse(project, "pretrain", "corpus=grammar_tiny", "embedding=outputs/embed/x/y-1/vectors.bin")
    assert "outputs/embed/x/y-1/vectors.bin is missing" in line and "study that has embed/x/y-1" in line


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["pretrain", "trainer=gpu"], "accelerator=gpu: torch finds no GPU here; write cpu, or auto"),
        (["finetune", "trainer=ddp", "trainer.accelerator=gpu"], "accelerator=gpu: torch finds no GPU here"),
        (["embed", "trainer=fsdp", "trainer.accelerator=cpu"], "all weights on the processor, in each process; write"),
    ],
)
def test_what_a_machine_or_a_way_to_train_lacks(project, command, line):
    """No GPU is shown to torch, even where there is one."""
    assert line in refuse(project, *command, "corpus=grammar_tiny", CUDA_VISIBLE_DEVICES="")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="a tmpfs can only be mounted by root")
@pytest.mark.parametrize("text", ["<<<<<<< HEAD\nschema: '2.0'\n=======\n", "stages: {a: [}"])
def test_a_file_of_dvcs_that_is_none(text, tmp_path, monkeypatch, capsys):
    """After a merge, say."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo}}")
    Path("dvc.lock").write_text(text)
    with pytest.raises(SystemExit) as ended, one_line_errors():
        Repo.init(no_scm=True).status()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("error: DVC: ")


def test_full_disk(project, bare_project, tmp_path):
    (tmp_path / "outputs").mkdir()
    (tmp_path / "work").mkdir()
    shutil.copytree(project.folder / "outputs" / "tokenize", tmp_path / "outputs" / "tokenize")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path / "work")], check=True)
    try:
        line = refuse(bare_project, "pretrain", "corpus=grammar_tiny", "recipe=counted/kn5")
    finally:
        subprocess.run(["umount", str(tmp_path / "work")], check=True)
    assert "disk is full" in line
