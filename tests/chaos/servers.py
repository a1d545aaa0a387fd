"""Start the servers of a team on this machine: PostgreSQL, and a store with the S3 protocol."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

PASSWORD = "hunter2-of-the-team"  # pragma: allowlist secret
# Environment variables of S3's clients; the test's store accepts any key.
KEYS = {"AWS_ACCESS_KEY_ID": "team", "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_DEFAULT_REGION": "us-east-1"}


def find_postgres() -> Path | None:
    """Return the folder with the programs of the newest installed PostgreSQL."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
    return max((Path(place).resolve().parent for place in places), default=None)


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Start PostgreSQL. Return the address of an empty database, with its password. Skip the test if it is missing."""
    if (programs := find_postgres()) is None:
        pytest.skip("there is no PostgreSQL: apt-get install postgresql")
    port = free_port()
    # PostgreSQL does not run as root.
    user: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    with TemporaryDirectory(prefix="postgres-", dir="/tmp") as name:  # the user `nobody` may read it
        folder = Path(name)
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        (folder / "data").mkdir()
        if user:
            for path in (folder, folder / "data", folder / "password"):
                shutil.chown(path, user["user"], user["group"])
        made = [programs / "initdb", "-D", folder / "data", "-U", "retable", "-A", "scram-sha-256", "--no-sync",
                "--pwfile", folder / "password"]  # fmt: skip
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)
        runs = [programs / "postgres", "-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", str(port)]
        with _running(runs, port, cwd=folder, **user):
            yield f"postgresql://retable:{PASSWORD}@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def s3(bucket: str) -> Iterator[dict[str, str]]:
    """Start an S3 store. Return the environment variables with which clients find an empty bucket, including keys."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with _running([sys.executable, "-m", "moto.server", "-p", str(port)], port):
        keys = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": PASSWORD}
        boto3.client("s3", endpoint_url=address, region_name=KEYS["AWS_DEFAULT_REGION"], **keys).create_bucket(
            Bucket=bucket
        )
        yield {"AWS_ENDPOINT_URL": address, **KEYS}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def _running(command: Sequence[object], port: int, **options: Any) -> Iterator[None]:
    with TemporaryDirectory() as name, Path(name, "said").open("w+b") as said:
        server = subprocess.Popen([*map(str, command)], stdout=said, stderr=said, **options)
        try:
            while not listens(port):
                if server.poll() is not None:
                    said.seek(0)
                    raise RuntimeError(said.read().decode())
                time.sleep(0.1)
            yield
        finally:
            server.send_signal(signal.SIGINT)  # with SIGINT, PostgreSQL does not wait for connected clients
            server.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
