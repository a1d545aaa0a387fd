"""Test that the machine changes no number: its threads and its clock; and that a read-only folder loses none."""

import errno
import math
import os
import shutil
import subprocess
import sys

import pytest
import torch
from dvc.dirs import site_cache_dir
from mlflow.tracking import MlflowClient

from pipelines.app.run_folder import _same_threads
from pipelines.config.errors import one_line_errors
from retable.core.artifacts import read_record, read_run
from retable.core.digests import digest
from tests.pipelines.conftest import ENVIRONMENT, GPT, ROOT, SHORT

LSTM = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "model.d_model=8", "epochs=0.5", "checkpoint_every=3"]


def test_goes_on_with_as_many_threads_as_it_began_with(tmp_path, capsys):
    torch.set_num_threads(2)
    with _same_threads(tmp_path):
        (tmp_path / "last.ckpt").touch()
    torch.set_num_threads(1)
    with _same_threads(tmp_path):
        assert torch.get_num_threads() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"resuming with 2 threads, as at the start, instead of 1; remove {tmp_path} to start again"


def test_begins_anew_with_the_threads_that_there_are(tmp_path, capsys):
    for number in (2, 1):
        torch.set_num_threads(number)
        with _same_threads(tmp_path):
            assert torch.get_num_threads() == number
    assert capsys.readouterr().err == "" and not any(tmp_path.iterdir())


@pytest.mark.long
def test_another_number_of_threads_is_of_the_cell(project, monkeypatch):
    """In a separate process, because torch in a fork already has its number of threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    done = project.start("pretrain", *SHORT, *GPT, "batches.batch_size=4", "system=on_two")
    assert done.returncode == 0, done.stderr
    cell = project.folder / "outputs/pretrain/grammar_tiny/on_two-1"
    assert read_record(cell)["threads"] == read_run(cell)["threads"] == 2


@pytest.mark.long
def test_a_clock_that_is_put_back(project):
    """No time or speed is negative, and the bytes are the same as on another day."""
    for system, put_back in (("even", []), ("uneven", ["+callbacks.clock._target_=clocks.PutBack"])):
        project.forked.succeed("pretrain", *LSTM, *put_back, f"system={system}")
    even, uneven = (project.folder / f"outputs/pretrain/grammar_tiny/{system}-1" for system in ("even", "uneven"))
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert digest(even / file) == digest(uneven / file)
    record = read_record(uneven)
    spent = {name: value for name, value in record.items() if name.endswith(("seconds", "_per_second"))}
    assert {"startup_seconds", "seconds", "training_seconds", "tokens_per_second"} <= spent.keys()
    assert all(math.isfinite(value) and value >= 0 for value in spent.values())
    assert 0 < record["training_seconds"] <= record["seconds"] < 3000 and record["tokens_per_second"] > 0
    run = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}").get_run(record["mlflow_run_id"])
    assert run.info.status == "FINISHED" and run.info.end_time >= run.info.start_time


@pytest.mark.parametrize(("number", "said"), [
    (errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the disk is full"),
    (errno.EROFS, "outputs/x: Read-only file system"), (errno.EACCES, "outputs/x: Permission denied"),
    (errno.EXDEV, "outputs/ and work/ are on different mounts (outputs/x)"),
])  # fmt: skip
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_the_system_refuses_is_said_in_one_line(capsys, number, said, wrapped):
    with pytest.raises(SystemExit) as end, one_line_errors():
        try:
            raise OSError(number, os.strerror(number), "outputs/x")
        except OSError as error:
            if wrapped:  # as logging does
                raise ValueError("Unable to configure handler 'file'") from error
            raise
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith(f"error: {said}") and "resumes from its last checkpoint" in line


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a folder")
def test_a_folder_that_can_not_be_written(project, bare_project):
    """A read-only mount, as of an archive or a faulty disk, because permissions do not restrict root."""
    for folder in ("outputs", "work"):
        shutil.copytree(project.folder / folder, bare_project.folder / folder)
    bpe = ["corpus=grammar_tiny", "tokenizer=bpe", "tokenizer.train.vocab_size=300"]
    read_only = "Read-only file system; change that and run this again"
    for place in ("outputs", "work", "."):
        mounted = str(bare_project.folder / place)
        subprocess.run(["mount", "--bind", mounted, mounted], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", mounted], check=True)
            line = bare_project.refuse("tokenize", *bpe)
        finally:
            subprocess.run(["umount", mounted], check=True)
        assert read_only in line
    bare_project.succeed("tokenize", *bpe)


@pytest.mark.long
def test_outside_of_the_folder_are_only_the_caches_that_the_readme_lists(project, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = readme.partition("Only caches of ")[2].partition(" are written outside the folder")[0]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL", "MLFLOW"))}
    small = ["model.d_model=8", "+max_steps=2", "system=at_home"]
    command = [sys.executable, "-m", "pipelines.pretrain", "corpus=grammar_tiny", "recipe=recurrent/lstm", *small]
    own = environment | ENVIRONMENT | {"HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=project.folder, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert all(path.parts[0] == ".cache" and path.parts[1] in listed for path in left), left
    assert f"`{site_cache_dir()}`" in listed
