"""Test checkpoints and best weights that were damaged or changed after they were written."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from retable.core.errors import UsageError
from retable.training import checkpoints
from retable.training import fit as fitting
from retable.training.progress import Best
from tests.training.resuming import Killed, assert_same, gpt, kill, run, weights
from tests.training.test_fit import SCORES, judged


class Code:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """Return a training that was killed in step 8: its last checkpoint is that of step 6, the one before that of
    step 3.
    """
    path = tmp_path_factory.mktemp("killed")
    kill(gpt(), 8, path)
    names = ("last.ckpt", "previous.ckpt")
    assert [torch.load(path / name, weights_only=True)["global_step"] for name in names] == [6, 3]
    return path


@pytest.fixture
def cut(killed, tmp_path) -> None:
    """Return a killed training in the test's folder."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    flipped, place = bytearray(whole), {"flipped": len(whole) // 2, "its digest": -1, "its end": -65}.get(how, 0)
    flipped[place] ^= 1
    contents = {"cut": whole[:-1], "empty": b""}
    path.write_bytes(contents.get(how, bytes(flipped)))


def resumed(path: Path, uninterrupted, capsys) -> str:
    """Resume a training, which must end as an uninterrupted one. Return its messages before the first step."""
    capsys.readouterr()
    system = gpt()
    assert run(system, path) == uninterrupted("gpt").points
    assert_same(weights(system), uninterrupted("gpt").weights)
    return capsys.readouterr().err.partition("step")[0]


@pytest.mark.parametrize("how", ["flipped", "its digest", "its end", "cut", "empty"])
def test_in_place_of_a_damaged_one_the_one_before_is_taken(cut, how, uninterrupted, tmp_path, capsys):
    damage(tmp_path / "last.ckpt", how)
    said = resumed(tmp_path, uninterrupted, capsys)
    assert said == f"{tmp_path}/last.ckpt is damaged; training resumes from previous.ckpt\n"


def test_where_no_other_is_left_training_begins_anew(killed, uninterrupted, tmp_path, capsys):
    for number, damaged in enumerate((["last.ckpt", "previous.ckpt"], ["last.ckpt"])):
        folder = shutil.copytree(killed, tmp_path / str(number))
        if len(damaged) == 1:
            (folder / "previous.ckpt").unlink()
        for name in damaged:
            damage(folder / name, "flipped")
        names = " and ".join(f"{folder}/{name}" for name in damaged)
        said = resumed(folder, uninterrupted, capsys)
        assert said == f"{names} {'are' if number == 0 else 'is'} damaged; training starts again\n"


def dying(at: int) -> Callable[[Path, Path], None]:
    """Return a rename that kills the process at call number `at`, counted from 0."""
    renamed, replace = [], os.replace

    def die(source: Path, target: Path) -> None:
        if len(renamed) == at:
            raise Killed
        renamed.append(target)
        replace(source, target)

    return die


@pytest.mark.parametrize("rename", [0, 1, 2])
def test_a_kill_at_each_rename_of_a_checkpoint_loses_nothing(cut, rename, uninterrupted, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", dying(rename))
        run(gpt(), tmp_path)
    assert resumed(tmp_path, uninterrupted, capsys) == ""


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("form", ["torch", "pickle"])
def test_a_checkpoint_that_would_run_code_runs_none(cut, form, signed, uninterrupted, tmp_path, capsys):
    path, ran = tmp_path / "last.ckpt", tmp_path / "ran"
    if form == "torch":
        torch.save({"state_dict": Code(ran)}, path)
    else:
        path.write_bytes(pickle.dumps(Code(ran)) + b"..")
    if not signed:
        assert "last.ckpt is damaged; training resumes from previous.ckpt" in resumed(tmp_path, uninterrupted, capsys)
    else:  # an attacker who knows the format of checkpoints
        path.rename(tmp_path / "written")
        checkpoints.keep(tmp_path / "written", path)
        with pytest.raises(UsageError, match=rf"^{path} is refused: loading it could run code.*to train from the st"):
            run(gpt(), tmp_path)
    assert not ran.exists()


def test_best_weights_that_are_damaged_are_named(tmp_path):
    stopping = {"best": Best("validation/accuracy", 2), "checkpoint_every": 4}
    run(judged(SCORES)[0], tmp_path, **stopping)
    best = tmp_path / "best.safetensors"
    whole, beside = best.read_bytes(), best.with_suffix(".sha256")
    for change in (lambda: damage(best, "its digest"), best.unlink, lambda: damage(beside, "empty"), beside.unlink):
        change()
        with pytest.raises(UsageError, match=rf"^{best} is damaged; remove {tmp_path} to train from the start$"):
            run(judged(SCORES)[0], tmp_path, **stopping)
        best.write_bytes(whole)


@pytest.mark.parametrize("renames", [[0], [1], [1, 1], [1, 0, 1], [1, 1, 1]])
def test_kills_at_renames_of_the_best_weights_lose_nothing(renames, tmp_path, monkeypatch):
    best, written = tmp_path / "best.safetensors", tmp_path / "written"
    written.write_text("old")
    checkpoints.keep_weights(written, best)
    for rename in renames:  # training resumes from its checkpoint, and reaches the same weights again
        written.write_text("new")
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(os, "replace", dying(rename))
            checkpoints.keep_weights(written, best)
        assert checkpoints.require_weights(best).read_text() == "old"


def test_no_process_goes_on_before_all_have_read_the_best_weights(tmp_path, monkeypatch):
    """The first process then removes the folder of the best weights."""
    done, load = [], fitting.load_weights
    monkeypatch.setattr(SingleDeviceStrategy, "barrier", lambda *_, **__: done.append("barrier"))
    monkeypatch.setattr(fitting, "load_weights", lambda *given: (done.append("read"), load(*given)))
    run(judged(SCORES)[0], tmp_path, best=Best("validation/accuracy", 2))
    assert done[-3:] == ["barrier", "read", "barrier"]
