import errno
import fcntl
import json
import os
import shutil
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from retable.core.digests import write_digests
from retable.core.errors import UsageError
from retable.core.publishing import check_owner, check_path, exclusive, publish, recover

LONG = pytest.mark.long
FACTS = {"stage": "pretrain", "system": "lstm", "corpus": "ptb", "seed": 1, "task": None}


def fill(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)
    (folder / "run.json").write_text(json.dumps(FACTS))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


OUT, BENCH = Path("outputs/pretrain/ptb/lstm-1"), Path("work/pretrain/ptb/lstm-1")
PARTIAL, ASIDE = BENCH / "key/payload", BENCH / "replaced"
NEW, OLD = ["digests.json", "new", "run.json"], ["old", "run.json"]


def test_a_block_that_ends_well_takes_the_cells_place():
    fill(OUT, "old")
    fill(PARTIAL, "left by a kill")
    with publish(OUT, PARTIAL, ASIDE) as folder:
        fill(folder, "new")
        assert files(OUT) == OLD  # the old files stay until the end
    assert files(OUT) == NEW
    assert files(BENCH) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_fails_leaves_nothing(error):
    with pytest.raises(error), publish(OUT, PARTIAL, ASIDE) as folder:
        fill(folder, "half")
        raise error
    assert not OUT.exists() and not PARTIAL.exists()
    fill(OUT, "old")
    with pytest.raises(error), publish(OUT, PARTIAL, ASIDE) as folder:
        fill(folder, "half")
        raise error
    assert files(OUT) == OLD and not PARTIAL.exists()


@pytest.mark.parametrize("number", [1, 2])
def test_a_rename_that_the_system_refuses_leaves_the_cell(monkeypatch, number):
    fill(OUT, "old")
    own, renames = Path.rename, []

    def rename(path: Path, target: Path) -> Path:
        renames.append(path)
        if len(renames) == number:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return own(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="Read-only"), publish(OUT, PARTIAL, ASIDE) as folder:
        fill(folder, "new")
    assert files(OUT) == OLD and files(BENCH) == []
    with publish(OUT, PARTIAL, ASIDE) as folder:
        fill(folder, "new")
    assert files(OUT) == NEW and files(BENCH) == []


def killed_at(operation: int) -> int:
    """Make the cell in a process that ends instead of this file-system operation.

    Return its exit code, 0 if there are fewer operations.
    """

    def work() -> None:
        seen = 0

        def hook(event: str, _: object) -> None:
            nonlocal seen
            if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
                seen += 1
                if seen > operation:
                    os._exit(9)

        sys.addaudithook(hook)
        with publish(OUT, PARTIAL, ASIDE) as folder:
            fill(folder, "new")
        os._exit(0)

    process = get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.long
@pytest.mark.parametrize(
    ("twice", "removed"),
    [(True, False), *(pytest.param(*each, marks=LONG) for each in ((False, True), (True, True), (False, False)))],
)
def test_a_kill_at_any_operation_loses_no_cell_and_stops_no_later_run(twice, removed):
    """Between the two renames the cell is moved aside; the next run, whose block fails here, restores it before it
    begins.
    """
    operation, seen = 0, set()
    while True:
        shutil.rmtree("outputs", ignore_errors=True), shutil.rmtree("work", ignore_errors=True)
        fill(OUT, "old")
        if (code := killed_at(operation)) == 0:
            break
        assert code == 9
        seen |= {path.name for path in BENCH.glob("*")}
        if twice:
            killed_at(0), killed_at(1)
        if removed:  # as DVC does before it runs a stage
            shutil.rmtree(OUT, ignore_errors=True)
        with pytest.raises(ValueError), publish(OUT, PARTIAL, ASIDE) as folder:
            raise ValueError
        assert files(OUT) in ([OLD, NEW, []] if removed else [OLD, NEW])
        with publish(OUT, PARTIAL, ASIDE) as folder:
            fill(folder, "new")
        assert files(OUT) == NEW and files(BENCH) == []
        operation += 1
    assert seen == {"key", "replaced", "replaced.old"}


def test_a_cell_that_a_kill_left_aside_is_still_no_others():
    fill(ASIDE, "old")
    recover(OUT, ASIDE)
    assert files(OUT) == OLD and files(BENCH) == []
    assert "is another cell: seed 1, not 2" in refused(OUT, FACTS | {"seed": 2})


@pytest.mark.parametrize(
    "place", ["", ".", "..", "../x", "a/../b", "/tmp/x", "a//b", "a/", "a/./b", "a\nb", None, 3, "a" * 250]
)
def test_what_is_no_place_is_refused(place):
    for good in ("ptb", "ptb/lstm-1", "mine/a b+epochs-0.5", "a.b/-x", "ü/1"):
        check_path(good)
    with pytest.raises(UsageError, match="out="):
        check_path(place)


def refused(out: Path, facts=FACTS) -> str:
    before = {path: path.read_bytes() for path in Path("outputs").rglob("*") if path.is_file()}
    with pytest.raises(UsageError) as error:
        check_owner(out, facts)
    assert {path: path.read_bytes() for path in Path("outputs").rglob("*") if path.is_file()} == before
    return str(error.value)


def test_only_a_cell_is_replaced_and_only_by_itself():
    check_owner(OUT, FACTS)
    OUT.mkdir(parents=True)
    check_owner(OUT, FACTS)
    fill(OUT, "model.safetensors")
    check_owner(OUT, FACTS)
    write_digests(OUT)
    (OUT / "model.safetensors").unlink()
    check_owner(OUT, FACTS)  # a damaged cell may be made again

    another = refused(OUT, FACTS | {"system": "kn5", "seed": 2})
    assert another.startswith(
        f"{OUT} is another cell: system lstm, not kn5 and seed 1, not 2; set out= to another folder"
    )
    assert refused(OUT, {"stage": "embed"}).startswith(f"{OUT} is another cell: stage pretrain, not embed;")
    assert refused(OUT.parent).startswith(f"{OUT.parent} has no run.json, so it is not a cell and is not replaced;")
    assert refused(OUT / "inside").startswith(f"{OUT} is a cell and cannot contain another cell;")
    (OUT / "run.json").write_text("{")
    assert refused(OUT).startswith(f"{OUT}/run.json is damaged, so the cell in its folder is unknown;")

    shutil.rmtree(OUT)
    fill(Path("elsewhere"), "old")
    OUT.symlink_to(Path("elsewhere").resolve())
    assert "is not a folder" in refused(OUT)
    OUT.unlink()
    OUT.write_text("")
    assert "is not a folder" in refused(OUT)


def in_another(work) -> str:
    """Return the message with which a fork is refused."""
    ours, theirs = get_context("fork").Pipe()

    def run() -> None:
        try:
            work()
            theirs.send("")
        except UsageError as error:
            theirs.send(str(error))

    process = get_context("fork").Process(target=run)
    process.start()
    received = ours.recv()
    process.join()
    return received


def take(name: str = "lstm-1") -> None:
    with exclusive(BENCH.with_name(name), OUT.with_name(name)):
        pass


def test_one_process_makes_a_cell():
    with exclusive(BENCH, OUT):
        message = in_another(take)
        assert message.startswith(f"{OUT} is being made by process {os.getpid()} on ") and message.endswith(
            "; wait for this process or stop it, then try again"
        )
        assert in_another(lambda: take("gpt-1")) == ""  # another cell is free
        assert BENCH.exists()
    assert in_another(take) == ""


def test_a_lock_is_waited_for_and_one_whose_file_was_removed_is_taken_again(monkeypatch):
    """The file is held at the first try, and removed by its holder between the second one and its check."""
    locked, slept, seen = fcntl.lockf, [], []

    def lockf(file, how) -> None:
        seen.append(file)
        if len(seen) == 1:
            raise BlockingIOError
        locked(file, how)
        if len(seen) == 2:
            Path(file.name).unlink()
            Path(file.name).touch()

    monkeypatch.setattr(fcntl, "lockf", lockf)
    monkeypatch.setattr("time.sleep", slept.append)
    with exclusive(BENCH, OUT, patiently=True):
        assert in_another(take).startswith(f"{OUT} is being made by process {os.getpid()} on ")
    assert len(slept) == 1 and seen[0].closed and seen[1].closed and len(seen) == 3


def test_a_killed_process_holds_no_lock():
    def die() -> None:
        with exclusive(BENCH, OUT):
            os._exit(9)

    process = get_context("fork").Process(target=die)
    process.start()
    process.join()
    assert process.exitcode == 9 and (BENCH / "lock").exists()
    assert in_another(take) == ""
    assert not BENCH.exists()


def test_what_is_on_the_bench_stays_there_and_empty_folders_do_not():
    with exclusive(BENCH, OUT):
        fill(BENCH / "key", "last.ckpt")
    assert files(BENCH) == ["last.ckpt", "run.json"]
    shutil.rmtree(BENCH / "key")
    take()
    assert Path("work").exists() and not list(Path("work").iterdir())
