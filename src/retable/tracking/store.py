"""The project's MLflow store: create it if needed, open it, and find runs by key."""

import contextlib
import fcntl
import getpass
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from alembic.util import CommandError
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST, ErrorCode
from mlflow.tracking import MlflowClient
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from retable.core.artifacts import root
from retable.core.errors import UsageError

EXPERIMENT = "retable"
# An environment variable of MLflow's server, which Retable also uses for stores without a server.
ARTIFACTS = "MLFLOW_DEFAULT_ARTIFACT_ROOT"
# Errors of the store, its database and tables, the network or the disk, and errors for a missing database driver. A
# training run must continue after any error in NO_ANSWER.
NO_ANSWER = (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError)
_NOT_FOUND = (
    ErrorCode.Name(RESOURCE_DOES_NOT_EXIST),
    ErrorCode.Name(INVALID_PARAMETER_VALUE),
)  # Errors for an unknown run, and for a text that is not an id.
_SECRET = re.compile(r"(?<=://)\S+(?=@)|(?<=password=)[^\s&]+")  # User and password in an address.


def open_store() -> tuple[MlflowClient, str]:
    with exclusive():
        return (client := _client()), _experiment(client)


def concealed(message: str) -> str:
    """Replace the user and password of each address in a message by ***."""
    return _SECRET.sub("***", message)


def begun(client: MlflowClient, experiment: str, key: str) -> list[str]:
    """Return the ids of the runs with this key, oldest first.

    There are several runs if several machines created a run with this key at the same moment.
    """
    return tagged(client, experiment, "retable.key", key)


def tagged(client: MlflowClient, experiment: str, tag: str, value: str) -> list[str]:
    runs = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time"])
    return [run.info.run_id for run in runs]


def create(client: MlflowClient, experiment: str, name: str, key: str, tags: Mapping[str, Any]) -> str:
    named = {"retable.key": key, **tags}
    with contextlib.suppress(KeyError, OSError):  # some containers run under a user id without a name
        named["mlflow.user"] = getpass.getuser()
    return client.create_run(experiment, run_name=name, tags=named).info.run_id


def is_known(client: MlflowClient, run_id: str) -> bool:
    """Check whether the store has a run.

    A cell's run may be in the store of another machine, or in a store that was removed.
    """
    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException as error:
        if error.error_code in _NOT_FOUND:
            return False
        raise


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Let only one process at a time open the store.

    If two processes created the tables of a new store, one of them would fail. The lock is next to an SQLite database,
    which projects and users may share. For any other store, the lock is in the project's folder.
    """
    database = _database(_address()) or root() / "mlflow.db"
    # Read-only access is enough to lock a file that another user owns.
    file = os.open(f"{database}.lock", os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _address() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root() / 'mlflow.db'}"


def _database(uri: str) -> Path | None:
    """Return the file of an SQLite store; None for any other address."""
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(uri)
        if url.drivername.startswith("sqlite") and url.database:
            return Path(url.database)
    return None


def _client() -> MlflowClient:
    uri = _address()
    if "://" not in uri or uri.startswith("file:"):
        raise UsageError(
            f"MLFLOW_TRACKING_URI={concealed(uri)} is a file store, which MLflow no longer supports; "
            "write sqlite:////full/path/mlflow.db or the address of a server"
        )
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):  # the message of this exception may contain a password
        raise UsageError(
            "MLFLOW_TRACKING_URI is not an address; write https://host, or postgresql://user@host:5432/database"
        ) from None
    if url.drivername.startswith("sqlite"):
        if database := _database(uri):
            _make(database)
    elif not (url.drivername.startswith("http") or os.environ.get(ARTIFACTS)):
        raise UsageError(
            f"MLFLOW_TRACKING_URI={concealed(uri)} is a database, which cannot store files; "
            f"set {ARTIFACTS}=s3://bucket/mlflow, or a folder that all machines share"
        )
    if not url.drivername.startswith("http"):
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 6  # MLflow's ten tries take 101 s if the database does not answer; six tries take 6 s
    return MlflowClient(uri)


def _make(database: Path) -> None:
    """Create an SQLite store with all its tables, unless the file exists.

    MLflow cannot use a store in which some tables are missing. If a full disk or a kill interrupts this function, it
    leaves no store at all. Call this function only within `exclusive`.
    """
    if database.exists():
        return
    prefix = f".{database.name}-"
    for left in database.parent.glob(f"{prefix}*"):
        shutil.rmtree(left)
    # Each call needs a new folder, because a process creates MLflow's tables only once per address.
    with TemporaryDirectory(prefix=prefix, dir=database.parent) as folder:
        begun = Path(folder, database.name)
        MlflowClient(f"sqlite:///{begun}").search_experiments(max_results=1)
        try:
            os.link(begun, database)
        except FileExistsError:  # a process without this lock created the store; keep its runs
            pass
        except OSError:  # the file system does not support hard links
            begun.replace(database)


def _experiment(client: MlflowClient) -> str:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment:
        return experiment.experiment_id
    folder = os.environ.get(ARTIFACTS)
    location: str | None = f"{folder.rstrip('/')}/{EXPERIMENT}" if folder else (root() / "mlartifacts").as_uri()
    if client.tracking_uri.startswith("http"):
        location = None
    try:
        return client.create_experiment(EXPERIMENT, artifact_location=location)
    except MlflowException:  # another process created the experiment in the meantime
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            raise
        return experiment.experiment_id


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Convert errors of a store that does not answer into UsageError, for commands that need the store."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError) as error:
        reason = " ".join(concealed(str(error)).split())[:300]
        raise UsageError(f"MLflow at {concealed(_address())} does not answer: {reason}") from None


def cell_of(run_id: str) -> Path:
    """Return the folder of the cell that a run made.

    Raises: UsageError: the run does not exist, or it did not make a cell.
    """
    with answering():
        try:
            tags = _client().get_run(run_id).data.tags
        except MlflowException as error:
            if error.error_code not in _NOT_FOUND:
                raise
            raise UsageError(f"runs:/{run_id} does not exist in this MLflow: {concealed(error.message)}") from None
    if "retable.cell" not in tags:
        raise UsageError(f"runs:/{run_id} did not make a cell; write the id of the run of a stage")
    return place_of(tags, f"runs:/{run_id}")


def place_of(tags: Mapping[str, str], run: str) -> Path:
    """Return the folder of the cell that a run's tags name; messages call the run `run`.

    Raises: UsageError: the folder is outside the project, which is possible because another program may have written
        the tags.
    """
    folder, cell = Path(tags.get("retable.folder", ".")), Path(tags["retable.cell"])
    if any(path.is_absolute() or ".." in path.parts for path in (folder, cell)):
        raise UsageError(f"{run} names the cell {folder / cell}, which is outside this project; write another run")
    return root() / folder / "outputs" / cell
