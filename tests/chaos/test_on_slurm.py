"""Test jobs on a Slurm of one node, from Debian's slurm-wlm and munge: they run, are ended, and are queued again."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipelines.executors.executor import engine
from tests.chaos.elsewhere import OWN, bytes_of, run, study_on
from tests.chaos.servers import free_port

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not shutil.which("slurmctld") or os.geteuid() != 0, reason="needs slurm-wlm and munge, and root"
    ),
]
TINY = "corpus=grammar_tiny"
GPT = ["recipe=transformer/gpt", "model.d_model=16", "model.n_layers=1", "batches.batch_size=4"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Start munged, slurmctld and slurmd for these tests, and stop them at the end.

    A job that is queued again starts after ten seconds, not after two minutes.
    """
    folder, host = tmp_path_factory.mktemp("slurm"), socket.gethostname()
    ports = [free_port() for _ in range(2)]
    (folder / "slurm.conf").write_text(
        f"""ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES State=UP GraceTime=60
PartitionName=first Nodes=ALL PriorityTier=10 State=UP
""",
        encoding="utf-8",
    )
    (key := folder / "munge.key").write_bytes(os.urandom(128))
    key.chmod(0o600)
    (folder / "spool").mkdir()
    daemons = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OWN.items():
            patch.setenv(name, value)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        for command in (
            ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
             f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/seed", f"--log-file={folder}/munged.log"],
            ["slurmctld", "-D"], ["slurmd", "-D"],
        ):  # fmt: skip
            with (folder / f"{command[0]}.txt").open("w") as log:
                daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
            time.sleep(1)
        until = time.monotonic() + 60
        while "idle" not in subprocess.run(["sinfo"], capture_output=True, text=True).stdout:
            assert time.monotonic() < until, [log.read_text() for log in folder.glob("*.txt")]
            time.sleep(0.5)
        yield folder
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait()


def test_jobs_have_their_codes_and_logs(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "says.py").write_text("import sys; print('said', sys.argv[1]); sys.exit(int(sys.argv[1]))")
    with engine("slurm") as runner, ThreadPoolExecutor(2) as threads:
        assert runner.slots == 2
        logs = [tmp_path / f"{n}.txt" for n in (0, 3)]
        codes = [threads.submit(runner.run, "says", [log.stem], os.environ, log) for log in logs]
        assert [code.result() for code in codes] == [0, 3]
    assert "said 3\n" in logs[1].read_text(encoding="utf-8")


def test_a_training_at_the_end_of_its_time_is_queued_again(slurm, tiny, monkeypatch):
    """Slurm sends SIGUSR1 before the time limit; the training writes a checkpoint and resumes in the same job."""
    run(tiny, "pretrain", TINY, *GPT, "epochs=20", "system=still")
    monkeypatch.chdir(tiny)
    log = tiny / "again.txt"
    with engine("slurm") as runner, ThreadPoolExecutor(1) as threads:
        code = threads.submit(
            runner.run, "pipelines.pretrain", [TINY, *GPT, "epochs=20", "system=again"], os.environ, log
        )
        while not log.exists() or "step " not in log.read_text(encoding="utf-8"):
            assert not code.done(), log.read_text(encoding="utf-8")
            time.sleep(0.05)
        (job,) = jobs("%A")
        subprocess.run(["scancel", "--signal=USR1", job], check=True)
        assert code.result() == 0, log.read_text(encoding="utf-8")
    assert "SIGUSR1: stopped after step" in log.read_text(encoding="utf-8")
    cells = [bytes_of(tiny / f"outputs/pretrain/grammar_tiny/{name}-1", "*.safetensors", "curve.csv")
             for name in ("still", "again")]  # fmt: skip
    assert cells[0] == cells[1]


def test_a_study(slurm, tmp_path):
    assert study_on("slurm", tmp_path / "slurm") == study_on("local", tmp_path / "local")


def test_a_training_at_a_real_limit(slurm, tiny, monkeypatch):
    """Slurm itself sends SIGUSR1, up to a minute early: during a long step, or before the training begins.

    The next try has no long step.
    """
    monkeypatch.setattr("pipelines.executors.on_slurm.NOTICE", 60)
    monkeypatch.setenv("SBATCH_TIMELIMIT", "2")
    said = long_step(tiny, monkeypatch, "limited", seconds=70, happens=lambda: None)
    assert "SIGUSR1: stopped after step 5" in said


def test_a_training_that_another_takes_the_place_of(slurm, tiny, monkeypatch):
    """A job of a partition with a higher tier needs the node: the training writes a checkpoint, and resumes after that
    job.
    """

    def preempt() -> None:
        subprocess.run(
            ["sbatch", "--wait", "--partition=first", "--exclusive", "--wrap=true", "--output=/dev/null"], check=True
        )

    assert "SIGTERM: stopped after step 5" in long_step(tiny, monkeypatch, "preempted", seconds=20, happens=preempt)


def long_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, seconds: int, happens: Callable[[], None]
) -> str:
    """Run a training whose fifth step takes this long, while something happens. Return its output.

    It must succeed, with the bytes of an undisturbed training.
    """
    monkeypatch.chdir(folder)
    arguments = [TINY, *GPT, f"system={name}", "epochs=2"]
    log, begun = folder / f"{name}.txt", folder / f"{name}.begun"
    run(folder, "pretrain", *arguments, f"system={name}_still")
    pause = f"+callbacks.pause={{_target_: tests.chaos.outage.Pause, step: 5, seconds: {seconds}, begun: {begun}}}"
    with engine("slurm") as runner, ThreadPoolExecutor(1) as threads:
        code = threads.submit(runner.run, "pipelines.pretrain", [*arguments, pause], os.environ, log)
        while not begun.exists():
            assert not code.done(), log.read_text(encoding="utf-8")
            time.sleep(0.05)
        happens()
        assert code.result() == 0, log.read_text(encoding="utf-8")
    cells = [bytes_of(folder / f"outputs/pretrain/grammar_tiny/{each}-1", "*.safetensors", "curve.csv")
             for each in (name, f"{name}_still")]  # fmt: skip
    assert cells[0] == cells[1]
    return log.read_text(encoding="utf-8")


def test_a_training_of_two_processes_is_one_cell_and_one_run(slurm, tiny, monkeypatch):
    """srun starts both processes, and Lightning uses them."""
    monkeypatch.chdir(tiny)
    log = tiny / "two.txt"
    two = ["trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2", "epochs=1", "system=two"]
    with engine("slurm") as runner:
        assert runner.run("pipelines.pretrain", [TINY, *GPT, *two], os.environ, log, devices=2) == 0, log.read_text()
    runs = MlflowClient(f"sqlite:///{tiny / 'mlflow.db'}").search_runs(["1"])
    assert [run.info.status for run in runs if run.info.run_name == "two-1"] == ["FINISHED"]
    assert (tiny / "outputs/pretrain/grammar_tiny/two-1/model.safetensors").exists()


def test_what_runs_at_the_end_is_asked_to_end(slurm, tiny, monkeypatch):
    monkeypatch.chdir(tiny)
    log = tiny / "ended.txt"
    threads = ThreadPoolExecutor(1)
    with engine("slurm") as runner:
        code = threads.submit(
            runner.run, "pipelines.pretrain", [TINY, *GPT, "epochs=4000", "system=ended"], os.environ, log
        )
        while not log.exists() or "step " not in log.read_text(encoding="utf-8"):
            assert not code.done(), log.read_text(encoding="utf-8")
            time.sleep(0.05)
    assert code.result() == 143 and "SIGTERM: stopped after step" in log.read_text(encoding="utf-8")
    assert list(Path("work/pretrain/grammar_tiny/ended-1").glob("*/last.ckpt"))


def jobs(what: str) -> list[str]:
    return subprocess.run(["squeue", "-h", "-o", what], capture_output=True, text=True, check=True).stdout.split()
