"""MLflow's store of the project: made once, whoever comes first; its runs by what they stand for."""

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
ARTIFACTS = "MLFLOW_DEFAULT_ARTIFACT_ROOT"  # as MLflow's server calls it; a server that is asked has its own
# Of the store, its database, that one's tables, the network, the disk, and the library for a kind of them that is not
# installed: no training ends by any of them.
NO_ANSWER = (MlflowException, SQLAlchemyError, CommandError, OSError, ImportError)
_NOT_FOUND = (ErrorCode.Name(RESOURCE_DOES_NOT_EXIST), ErrorCode.Name(INVALID_PARAMETER_VALUE))  # no id, or no such run
_SECRET = re.compile(r"(?<=://)\S+(?=@)|(?<=password=)[^\s&]+")  # of an address


def open_store() -> tuple[MlflowClient, str]:
    with exclusive():
        return (client := _client()), _experiment(client)


def concealed(said: str) -> str:
    """What a library said, without the user and password of an address in it."""
    return _SECRET.sub("***", said)


def begun(client: MlflowClient, experiment: str, key: str) -> list[str]:
    """The ids of the runs of `key`, the first one first: more than one where machines made it at the same moment."""
    return tagged(client, experiment, "retable.key", key)


def tagged(client: MlflowClient, experiment: str, tag: str, value: str) -> list[str]:
    found = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time"])
    return [run.info.run_id for run in found]


def create(client: MlflowClient, experiment: str, name: str, key: str, tags: Mapping[str, Any]) -> str:
    named = {"retable.key": key, **tags}
    with contextlib.suppress(KeyError, OSError):  # nobody has this number, as in some containers
        named["mlflow.user"] = getpass.getuser()
    return client.create_run(experiment, run_name=name, tags=named).info.run_id


def is_known(client: MlflowClient, run_id: str) -> bool:
    """Whether the store has a run: a cell may have been made on another machine, or before the store was removed."""
    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException as error:
        if error.error_code in _NOT_FOUND:
            return False
        raise


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Let one process at a time work: two that open a new store would both make its tables, and one would fail.

    The lock is next to an SQLite database, which several projects and users may share, else in the project.
    """
    database = _database(_address()) or root() / "mlflow.db"
    # To lock a file of another user it is enough to read it.
    file = os.open(f"{database}.lock", os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _address() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root() / 'mlflow.db'}"


def _database(uri: str) -> Path | None:
    """Return the file of an SQLite store, None for any other address."""
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
    except (ArgumentError, ValueError):  # which may quote a password
        raise UsageError(
            "MLFLOW_TRACKING_URI is no address; write https://host, or postgresql://user@host:5432/database"
        ) from None
    if url.drivername.startswith("sqlite"):
        if database := _database(uri):
            _make(database)
    elif not (url.drivername.startswith("http") or os.environ.get(ARTIFACTS)):
        raise UsageError(
            f"MLFLOW_TRACKING_URI={concealed(uri)} is a database, which keeps no files; "
            f"say where they go: {ARTIFACTS}=s3://bucket/mlflow, or a folder that all machines see"
        )
    if not url.drivername.startswith("http"):
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = 6  # MLflow's ten tries of a database that doesn't answer take 101 s, these 6
    return MlflowClient(uri)


def _make(database: Path) -> None:
    """Make the tables of a store that is not there, all or none: MLflow goes on with no part of them, as a full disk or
    a kill leaves it. One process at a time."""
    if database.exists():
        return
    prefix = f".{database.name}-"
    for left in database.parent.glob(f"{prefix}*"):
        shutil.rmtree(left)
    # In another folder at each try: within a process MLflow makes tables once for an address.
    with TemporaryDirectory(prefix=prefix, dir=database.parent) as folder:
        begun = Path(folder, database.name)
        MlflowClient(f"sqlite:///{begun}").search_experiments(max_results=1)
        try:
            os.link(begun, database)
        except FileExistsError:  # of a process without this lock; its runs stay
            pass
        except OSError:  # the file system has no links
            begun.replace(database)


def _experiment(client: MlflowClient) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found:
        return found.experiment_id
    given = os.environ.get(ARTIFACTS)
    location: str | None = f"{given.rstrip('/')}/{EXPERIMENT}" if given else (root() / "mlartifacts").as_uri()
    if client.tracking_uri.startswith("http"):
        location = None
    try:
        return client.create_experiment(EXPERIMENT, artifact_location=location)
    except MlflowException:  # another process made it in the meantime
        found = client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            raise
        return found.experiment_id


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Turn what a store that does not answer raises into a UsageError, for a command that can't go on without it."""
    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError) as error:
        said = " ".join(concealed(str(error)).split())[:300]
        raise UsageError(f"MLflow at {concealed(_address())} does not answer: {said}") from None


def cell_of(run_id: str) -> Path:
    """The folder of the cell that a run made. UsageError where there is no such run, or it was of no cell."""
    with answering():
        try:
            tags = _client().get_run(run_id).data.tags
        except MlflowException as error:
            if error.error_code not in _NOT_FOUND:
                raise
            raise UsageError(f"runs:/{run_id} is no run of this MLflow: {concealed(error.message)}") from None
    if "retable.cell" not in tags:
        raise UsageError(f"runs:/{run_id} is a run of no cell; take one that a stage made")
    return place_of(tags, f"runs:/{run_id}")


def place_of(tags: Mapping[str, str], run: str) -> Path:
    """The folder of the cell that a run's tags name. UsageError for one outside of the project, for tags may have come
    from elsewhere."""
    folder, cell = Path(tags.get("retable.folder", ".")), Path(tags["retable.cell"])
    if any(path.is_absolute() or ".." in path.parts for path in (folder, cell)):
        raise UsageError(f"{run} names the cell {folder / cell}, which is outside of this project; take another run")
    return root() / folder / "outputs" / cell
