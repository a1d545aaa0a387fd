"""Slurm as an engine: each process is a job of `sbatch`.

A job is queued again if its node dies, if another job preempts it, or if its time limit is reached.
"""

import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

from retable.core.errors import UsageError

COMMANDS = ("sbatch", "sinfo", "scontrol", "scancel")
_GPUS = re.compile(r"\bgpu:(?:[^:,(]+:)?(\d+)")  # number of GPUs in an entry of a node's devices
NOTICE = 120  # seconds before the time limit at which Slurm sends SIGUSR1, so that a job can write its checkpoint


class Cluster:
    """The Slurm cluster that this machine submits to.

    The user sets partition, account and time limit in sbatch's variables SBATCH_PARTITION, SBATCH_ACCOUNT and
    SBATCH_TIMELIMIT.
    """

    def __init__(self) -> None:
        if missing := next((name for name in COMMANDS if not shutil.which(name)), None):
            raise UsageError(f"{missing} is not installed here; run the command on a machine that submits to Slurm")
        # columns: CPU cores as allocated/idle/other/total, number of nodes, and devices of each node, as in gpu:h100:8
        done = subprocess.run(["sinfo", "--noheader", "--format=%C %D %G"], capture_output=True, text=True)
        if done.returncode:
            raise UsageError(f"Slurm does not answer: {' '.join(done.stderr.split())}")
        nodes = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
        self.slots = sum(int(cores.split("/")[3]) for cores, _, _ in nodes)
        self.gpus = sum(int(n) * sum(map(int, _GPUS.findall(devices))) for _, n, devices in nodes)

    def start(self, job: dict[str, Any], devices: int, gpus: bool, nodes: int) -> "Submitted":
        command = shlex.join([sys.executable, "-m", job["module"], *job["arguments"]])
        # Jobs are queued again after the exit codes 99, 138 and 143. 99: the checkpoint was written near the time
        # limit. 138: SIGUSR1 came before its handler was set. 143: SIGTERM, sent at preemption or by `end`; `end` also
        # sets Requeue=0, so that jobs which it stops are not queued again.
        again = "case $code in 99|138|143) scontrol requeue $SLURM_JOB_ID;; esac"
        script = f"#!/bin/sh\ntrap : TERM\nsrun {command}\ncode=$?\n{again}\nexit $code\n"
        options = [
            f"--nodes={nodes}", f"--ntasks-per-node={devices}", *[f"--gpus-per-node={devices}"] * gpus,
            f"--chdir={job['folder']}", f"--output={job['out']}", f"--error={job['err']}", "--open-mode=append",
            f"--job-name={job['module']}", "--requeue", f"--signal=USR1@{NOTICE}",
        ]  # fmt: skip
        return Submitted(subprocess.Popen(
            ["sbatch", "--wait", "--parsable", *options], text=True, env=job["environment"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ), script)  # fmt: skip


class Submitted:
    """A submitted job, and the `sbatch` process that waits for its end."""

    def __init__(self, waits: subprocess.Popen[str], script: str):
        assert waits.stdin is not None and waits.stdout is not None and waits.stderr is not None
        self._waits = waits
        with waits.stdin as stdin:
            stdin.write(script)
        self.id = waits.stdout.readline().partition(";")[0].strip()
        if not self.id:
            raise UsageError(f"Slurm rejected the job: {' '.join(waits.stderr.read().split())}")

    def poll(self) -> int | None:
        return self._waits.poll()

    def end(self) -> None:
        subprocess.run(["scontrol", "update", f"JobId={self.id}", "Requeue=0"], capture_output=True)
        subprocess.run(["scancel", "--state=PENDING", self.id], check=False)
        subprocess.run(["scancel", "--signal=TERM", self.id], check=False)

    def kill(self) -> None:
        subprocess.run(["scancel", self.id], check=False)
