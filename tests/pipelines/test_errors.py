"""Test mistakes of users: one clear line on standard error, exit code 2, and no half-written files."""

import json
import logging
import os
import shlex
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from dvc.repo import Repo
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config.errors import one_line, one_line_errors
from pipelines.study.dvc_lock import noted_stages
from retable.core.publishing import exclusive
from tests.pipelines import in_process
from tests.pipelines.conftest import ROOT, Project

TINY = "corpus=grammar_tiny"
GPT, SENTIMENT = f"{TINY} recipe=transformer/gpt", f"{TINY} task=sentiment"
NOWHERE = "is not a valid place for a cell; write plain names, as in out=corpus/name"
# A command, and parts of its error line.
REFUSED = [
    ("pretrain modle.d_model=3", "error: unknown setting modle.d_model; write model.d_model; +modle.d_model= adds"),
    ("pretrain model=bert_typo", "error: conf/model/bert_typo.yaml does not exist; write bert"),
    ("pretrain recipe=bert/bert_base_typo", "conf/recipe/bert/bert_base_typo.yaml does not exist", "bert/bert_base"),
    ("pretrain recipe=bert_base", "conf/recipe/bert_base.yaml does not exist", "bert/bert_base"),
    ("pretrain logger=null", "write ~GROUP"),
    ("evaluate benchmark=nothing_like_it", "conf/benchmark/nothing_like_it.yaml does not exist",
     "perplexity, perplexity_train, phenomena"),
    ("evaluate benchmark=[perplexity,phenomenon]", "conf/benchmark/phenomenon.yaml does not exist; write phenomena"),
    ("evaluate stage=pretrain cell=grammar/lstm-9",
     "`retable repro` in a study that contains pretrain/grammar/lstm-9, or `python -m pipelines.pretrain`"),
    (f"pretrain {GPT} optimizer=sgd", "sgd takes no optimizer.beta2", "~optimizer.beta2"),
    (f"pretrain {GPT} objective=prefix_lm", "PrefixLM takes no objective.bias", "~objective.bias"),
    (f"pretrain {GPT} objective=prefix_lm ~objective.bias", "GPT", "prefix", "recipe=t5/prefix_lm",
     "objective=causal_lm"),
    (f"pretrain {TINY} recipe=encoders/bilstm", "BiLSTM", "causal_lm", "recipe=recurrent/lstm"),
    (f"finetune {SENTIMENT} optimizer=sgd", "adamw", "write optimizer._target_=retable.training.optimizers.sgd"),
    (f"finetune {SENTIMENT} schedule=constant", "warmup_cosine",
     "write schedule._target_=retable.training.schedules.constant"),
    # Tasks read the settings of their optimizer and schedule under `finetuning`.
    *((f"finetune {SENTIMENT} recipe=encoders/bilstm optimizer={optimizer}{setting}", message)
      for optimizer, setting, message in (
          ("momentum_sgd", "", "finetuning.optimizer.momentum is missing; momentum_sgd requires it"),
          ("momentum_sgd", " optimizer.momentum=0.9", "value yet; write +finetuning.optimizer.momentum="),
          ("momentum_sgd", " finetuning.optimizer.momentum=0.9", "value yet; write +finetuning.optimizer.momentum="),
          ("momentum_sgd", " +finetuning.optimizer.momentum=0.9", "finetuning.schedule.rate is missing"),
          ("momentum_sgd", " schedule.rate=0.1", "value yet; write +finetuning.schedule.rate="),
          ("adadelta", " optimizer.rho=0.9", "value yet; write +finetuning.optimizer.rho="),
          ("adagrad_l2", " optimizer.lr=0.1", "unknown setting optimizer.lr; write finetuning.lr"),
      )),
    (f"finetune {SENTIMENT} recipe=taggers/ma_hovy_bilstm schedule.rate=0.1",
     "unknown setting schedule.rate; write finetuning.schedule.rate"),
    (f"finetune {SENTIMENT} recipe=encoders/bilstm ~finetuning.lr",
     "recipe=encoders/bilstm has no setting finetuning.lr; write +finetuning.lr="),
    (f"finetune {SENTIMENT} task.sentences=[text]", "'text'", "'sentence'", "train.tsv"),
    (f"embed {TINY} objective=weighted_least_squares", "write recipe=vectors/glove"),
    (f"embed {TINY} recipe=vectors/glove objective=negative_sampling", "write recipe=vectors/skipgram, vectors/cbow"),
    (f"embed {TINY} objective=full_softmax word_by_word=true", "write word_by_word=false"),
    (f"embed {TINY} clip_norm=5", "write clip_norm=null"),
    (f"embed {TINY} threads=0", "threads=0"),
    *((f"pretrain {TINY} recipe=counted/kn3 {name}=1",
       f"error: {name.lstrip('+').partition('.')[0]} has no effect on this recipe, ",
       "a count-based model; leave ")
      for name in ("budget", "+epochs", "+max_steps", "+clip_norm", "+optimizer.lr", "+patience",
                   "+batches.batch_size")),
    (f"pretrain {TINY} recipe=counted/snm budget=1min", "budget has no effect on this recipe, "),
    (f"pretrain {TINY} embedding=outputs/embed/x/y-1/vectors.bin", "outputs/embed/x/y-1/vectors.bin is missing",
     "study that contains embed/x/y-1"),
    # Refused before anything is read: this corpus has no tokens.
    *((f"pretrain corpus=grammar out={out}", NOWHERE) for out in ("'../../x'", "'a//b'", "null")),
    ("pretrain --bogus", "error: unknown option --bogus; `--hydra-help` lists the options"),
    ("prepare --mutlirun", "unknown option --mutlirun; write --multirun; "),
    ("embed --cfg nope", "invalid choice: 'nope'"),
    ("evaluate --config-dir", "expected one argument"),
    ("prepare --resolve", "error: The --resolve flag can only be used in conjunction with --cfg or --help"),
    ("prepare --run --multirun", "error: Only one of --run, --multirun, --cfg, --info and --shell_completion can be"),
    ("pretrain epochs=3 -m seed=1,2", "error: seed=1,2 comes after an option and would not be read; write -m before"),
    ("pretrain seed=3 --config-dir=. epochs=1", "epochs=1 comes after an option"),
    (f"evaluate {TINY} cell=nope", "outputs/pretrain/nope/model.safetensors is missing"),
    (f"pretrain {TINY} recipe=recurrent/lstm init=nope", "outputs/nope/config.yaml is missing"),
    *((f"pretrain {TINY} recipe=recurrent/lstm {setting}={value}",
       f"{setting}={value} should be plain names separated by /")
      for setting in ("init", "tokens") for value in ("../../../etc/passwd", "/etc", "a//b", "a/./b")),
    *((f"{stage} {TINY} {setting}={place}", "; it cannot be created; write another path")
      for stage, setting in (("pretrain", "hydra.run.dir"), ("pretrain -m seed=1,2", "hydra.sweep.dir"))
      for place in ("/proc/1/x", "/dev/null/x", "/dev/null")),
    (f"pretrain {TINY} trainer.max_epochs=3", "unknown setting trainer.max_epochs; write epochs; +trainer.max_epo"),
    ("pretrain seed.x=1", "unknown setting seed.x; "),
    ("finetune task=sst2 task.files={train:a,tset:b}", "unknown setting task.files.tset; write task.files.test; "),
    (f"pretrain {TINY} batches.length=1000000", " rows of 1000000; lower batches.batch_size or batches.length"),
    *((f"finetune {TINY} task=sentiment recipe=counted/{name}", f"recipe=counted/{name} is a count-based model and "
       "cannot be trained on task=sentiment; write a neural recipe, such as recipe=encoders/bilstm")
      for name in ("kn5", "cache")),
    ("pretrain out=größe/ü-1", "error: out=größe/ü-1 cannot be parsed; put quotes round the value, as in "
     "'out=\"größe/ü-1\"'"),
    ("pretrain ключ=1", "error: ключ=1 is not a setting; write names of letters a to z, digits, _ and ., as in"),
    ("pretrain a.b[0]=1", "a.b[0]=1 is not a setting; "),
    ("pretrain seed", "error: seed has no value; write seed=VALUE"),
    ("pretrain seed=[1", "seed=[1 cannot be parsed; close its brackets, or put quotes round the value, as in 'seed="),
    # torch sees no GPU, even on a machine with one.
    (f"pretrain {TINY} trainer=gpu", "accelerator=gpu: torch finds no GPU here; write cpu, or auto"),
    (f"finetune {TINY} trainer=ddp trainer.accelerator=gpu", "accelerator=gpu: torch finds no GPU here"),
    (f"embed {TINY} trainer=fsdp trainer.accelerator=cpu", "needs all weights in each process; write trainer=ddp, or"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_a_command_that_cannot_be_is_refused_in_one_line(project, case):
    command, *parts = case
    line = project.refuse(*command.split(" "), CUDA_VISIBLE_DEVICES="")
    assert all(part in line for part in parts), line


@given(st.text(st.sampled_from("ab0ö \\\"'[]{}(),:=$.~@€"), min_size=1, max_size=8))
def test_the_quotes_that_are_proposed_are_read(value):
    """The shell and then Hydra read the proposed quotes, and the result is the value itself."""
    try:
        OverridesParser.create().parse_override(f"x={value}")
    except HydraException:
        message = one_line(OverrideParseException(f"x={value}", ""))
        assert message.startswith(f"x={value} cannot be parsed; ")
        (argument,) = shlex.split(message.partition(", as in ")[2])
        assert OverridesParser.create().parse_override(argument).value() == value


@pytest.mark.parametrize("stage", [["prepare"], ["pretrain"], ["evaluate"], ["pretrain", "-m"]], ids=" ".join)
@pytest.mark.parametrize(
    ("one", "other"), [("seed=1", "seed=2"), ("seed=1", "+seed=1"), ("recipe=a", "recipe=b"), ("x.y=1", "++x.y=1,2")]
)
def test_a_setting_that_occurs_twice(tmp_path, stage, one, other):
    done = in_process.run(stage[0], [*stage[1:], one, TINY, other], tmp_path, os.environ)
    assert (done.returncode, done.stderr) == (2, f"error: {one} and {other} set the same name; remove one of the two\n")
    assert not any(tmp_path.iterdir())


@pytest.fixture
def text(tmp_path):
    """Return overrides that prepare three text files of the test."""
    paths = {split: tmp_path / f"{split}.txt" for split in ("train", "validation", "test")}
    for path in paths.values():
        path.write_text("a line of text\n")
    return paths, ["corpus=ptb", *(f"corpus.write.{split}={path}" for split, path in paths.items())]


PAIR = '{{"sentence_good": "a {} cat", "sentence_bad": "a cat", "UID": "x", "linguistics_term": "y"}}\n'
# A benchmark, its file, and the lines of the file; {} is replaced by a word.
OF_BENCHMARKS = {
    "lambada": ("passages.path", "a.jsonl", '{{"text": "the cat {} saw the dog"}}\n'),
    "blimp": ("pairs.folder", "blimp/a.jsonl", PAIR),
    "sst2_prompt": ("questions.path", "a.tsv", "the cat {} sat\t1\n"),
    "unlabelled_cola": ("sentences.path", "a.tsv", "x\t1\t\tthe cat {} sat\n"),
}


@pytest.mark.parametrize("benchmark", OF_BENCHMARKS)
def test_a_reserved_word_of_a_benchmark_is_refused_by_file_and_line(benchmark, cells, tmp_path):
    setting, name, line = OF_BENCHMARKS[benchmark]
    (file := tmp_path / name).parent.mkdir(exist_ok=True)
    header = "sentence\tlabel\n" * (benchmark == "sst2_prompt")
    text = header + "".join(line.format(word) for word in ("old", "young", "<eos>", "old"))
    file.write_text(text.replace("\t1\t\tthe cat old", "\t0\t\tthe cat old"), encoding="utf-8")
    message = cells.refuse("evaluate", TINY, "cell=grammar_tiny/kn3-1", f"benchmark={benchmark}", "out=refused/x",
                           f"benchmark.{benchmark}.{setting}={tmp_path / name.partition('/')[0]}")  # fmt: skip
    assert message.startswith(f"error: {file}, line {3 + bool(header)}: ") and "contains <eos>, which" in message


def test_missing_data_folder(project):
    line = project.refuse("prepare", "corpus=ptb", RETABLE_DATA="nowhere")
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


@pytest.mark.parametrize("corpus", ["ptb", "tinyshakespeare"])
def test_control_characters_of_a_text_are_counted_and_kept(bare_project, text, corpus):
    """All control characters of Unicode, as Python defines them, except white space and separators."""
    paths, overrides = text
    controls = [chr(i) for i in range(256) if unicodedata.category(chr(i)) == "Cc" and not chr(i).isspace()]
    lines = ["one plain line", *(f"with a {each} in it" for each in controls), "tab\tand nel\x85 and é"]
    paths["train"].write_text("".join(f"{line}\n" for line in lines) + "end\n" * 200, encoding="utf-8")
    if corpus == "tinyshakespeare":
        overrides = ["corpus=tinyshakespeare", f"corpus.write.source={paths['train']}"]
    done = bare_project.succeed("prepare", *overrides)
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    prepared = Path(f"outputs/prepare/{corpus}/train.txt")
    assert warning.startswith(f"warning: {prepared}: {len(controls)} lines have control characters, ")
    assert "first line 2;" in warning
    written = (bare_project.folder / prepared).read_text(encoding="utf-8")
    assert all(f"with a {each} in it\n" in written for each in controls)


def test_a_plain_text_is_prepared_without_a_warning(bare_project, text):
    assert bare_project.succeed("prepare", *text[1]).stderr == ""


@pytest.mark.parametrize(("group", "text", "message"), [
    ("recipe", "defaults: [/recipe/recurrent/lstm, _self_]\nepochs: 2\n", "recipe=own lacks the first line"),
    ("task", "defaults: [/task_type/sentences, _self_]\ntask: {label: verdict}\n",
     "task=own lacks the first line"),
    ("task", "# @package _global_\ntask: {label: verdict}\n", "task=own has no type; write `defaults: ["),
    ("task", "# @package _global_\ndefaults: [/task_type/tags, _self_]\ntask: {_target_: retable.tasks.odd.Odd}\n",
     "there is no retable.tasks.odd; write as _target_ the full name of an existing class or function, not "),
    ("model", "_target_: retable.models.recurrent.Odd\n",
     "there is no retable.models.recurrent.Odd; write as _target_"),
    *(("benchmark", f"{header}_target_: retable.evaluation.perplexity.Perplexity\n",
       "benchmark=own lacks its first line; add `# @package benchmark.own`")
      for header in ("", "# @package benchmark.perplexity\n")),
])  # fmt: skip
def test_file_of_ones_own_that_is_read_otherwise_than_meant(project, tmp_path, group, text, message):
    (tmp_path / group).mkdir()
    (tmp_path / group / "own.yaml").write_text(text)
    stage = {"task": "finetune", "benchmark": "evaluate"}.get(group, "pretrain")
    line = project.refuse(stage, f"--config-dir={tmp_path}", "corpus=grammar_tiny", f"{group}=own")
    assert message in line


def test_recipe_that_says_nothing_of_tasks(project):
    line = project.refuse("finetune", "corpus=grammar_tiny", "recipe=recurrent/lstm", "task=sentiment")
    assert "recipe=recurrent/lstm" in line and "task=sentiment" in line
    override = line.partition("'")[2].partition("'")[0]
    few = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "task=sentiment", "max_steps=1", "system=as_told"]
    project.succeed("finetune", *few, override)


@pytest.mark.parametrize(("stage", "overrides", "message"), [
    ("pretrain", ["corpus=grammar", "out=grammar_tiny"], "outputs/pretrain/grammar_tiny has no run.json, so"),
    ("tokenize", ["corpus=grammar", "out=grammar_tiny/word/mine"],
     "outputs/tokenize/grammar_tiny/word is a cell and"),
    ("tokenize", ["corpus=grammar_tiny", "tokenizer=character", "text=glue", "out=grammar_tiny/word"],
     "is missing"),
    ("pretrain", ["corpus=grammar_tiny", "recipe=counted/kn3", "out=grammar_tiny/here-1"],
     "outputs/pretrain/grammar_tiny/here-1 is another cell: system here, not kn3; set out= to another folder"),
    ("pretrain", ["corpus=grammar_tiny", "recipe=counted/unigram", "system=here", "out=grammar_tiny/here-1",
                  "seed=2"], "is another cell: seed 1, not 2;"),
])  # fmt: skip
def test_a_cell_in_the_place_of_something_else(project, stage, overrides, message):
    here = project.folder / "outputs/pretrain/grammar_tiny/here-1"
    if not here.exists():
        project.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=here")
    assert message in project.refuse(stage, *overrides)


def test_a_cell_that_a_kill_left_aside_comes_back_before_another_is_refused(project):
    here, unigram = project.folder / "outputs/pretrain/grammar_tiny/aside-1", ["corpus=grammar_tiny", "system=aside"]
    project.succeed("pretrain", *unigram, "recipe=counted/unigram")
    aside = project.folder / "work/pretrain/grammar_tiny/aside-1/replaced"
    aside.parent.mkdir(parents=True)
    here.rename(aside)
    done = project.run("pretrain", *unigram, "recipe=counted/kn3", "system=kn3", "out=grammar_tiny/aside-1")
    assert done.returncode == 2 and "aside-1 is another cell: system aside, not kn3;" in done.stderr
    assert (here / "model.safetensors").exists() and not aside.parent.exists()


def test_a_cell_that_another_process_makes(project):
    out = "pretrain/grammar_tiny/twice-1"
    with exclusive(bench := project.folder / "work" / out, Path("outputs", out)):
        line = project.forked.refuse("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=twice")
        assert line.startswith(f"error: outputs/{out} is being made by process {os.getpid()} on ")
        assert [path.name for path in bench.iterdir()] == ["lock"]
    project.succeed("pretrain", "corpus=grammar_tiny", "recipe=counted/unigram", "system=twice")
    assert not bench.exists()


def test_truncated_checkpoint(project):
    settings = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "model.d_model=8", "batches.batch_size=4",
                "batches.length=16", "epochs=0.6", "checkpoint_every=3", "system=cut",
                "+callbacks.mortal._target_=dying.Mortal"]  # fmt: skip
    project.forked.run("pretrain", *settings, DIE_AT="10")
    (checkpoint,) = (project.folder / "work").rglob("last.ckpt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    done = project.succeed("pretrain", *settings)
    warning = f"{checkpoint.relative_to(project.folder)} is damaged; training resumes from previous.ckpt"
    assert warning in done.stderr.splitlines()


# A file after a merge, cut off, empty, of another kind, of another version, and with an invalid stage.
DAMAGED = ["<<<<<<< HEAD\nschema: '2.0'\n=======\n", "stages: {a: [}", "", "abc", "[1]", "schema: '9.9'\nstages: 3\n",
           "schema: '2.0'\nstages: {one: 3}\n"]  # fmt: skip
AGAIN = {
    "dvc.lock": "; `git checkout -- dvc.lock` brings the committed one back; after a merge keep either one, and run "
    "`retable repro`",
    "dvc.yaml": "; `retable graph` writes it again",
}


@pytest.mark.parametrize("text", DAMAGED)
@pytest.mark.parametrize("name", AGAIN)
def test_a_file_of_dvcs_that_is_none(text, name, tmp_path, monkeypatch, capsys):
    """DVC reads an empty dvc.yaml as one without stages; Retable reads dvc.lock itself."""
    monkeypatch.chdir(tmp_path)
    # Handlers of DVC, and of the root logger after some imports, print to closed streams of earlier tests.
    monkeypatch.setattr(logging.getLogger("dvc"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logging.getLogger("dvc"), "propagate", False)
    repo = Repo.init(no_scm=True)
    Path("dvc.yaml").write_text("stages: {one: {cmd: echo}}")
    Path(name).write_text(text)
    if name == "dvc.yaml" and not text:
        return
    for read in (repo.status, *([noted_stages] if name == "dvc.lock" else [])):
        with pytest.raises(SystemExit) as ended, one_line_errors():
            read()
        (line,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2 and line.startswith("error: ") and name in line and line.endswith(AGAIN[name])


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="a tmpfs can only be mounted by root")
def test_full_disk(project, tmp_path):
    place, disk = "outputs/tokenize/grammar_tiny/word", tmp_path / "disk"
    tokens = project.folder / place
    disk.mkdir()
    pages = sum(-(-path.stat().st_size // 4096) + 1 for path in tokens.rglob("*"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * pages + 64}k", "none", str(disk)], check=True)
    try:
        (disk / "src").symlink_to(ROOT / "src")
        shutil.copytree(tokens, disk / place)
        line = Project(disk, project.forks, own_process=True).refuse(
            "pretrain", "corpus=grammar_tiny", "recipe=counted/kn5", "logger=none"
        )
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "disk is full" in line
