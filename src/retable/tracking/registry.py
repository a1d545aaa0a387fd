"""Register cells as models in MLflow's registry."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import retable
from retable.core.artifacts import read_record
from retable.core.errors import UsageError
from retable.tracking.store import answering, is_known, open_store

_NOT_IN_NAMES = re.compile(r"[/:.%\"']")


def register(cell: Path, name: str, loader: str, example: Any, answers: Any, requirements: Iterable[str]) -> int:
    """Copy a cell and this package into a registered model in MLflow.

    If MLflow contains the cell's run, the model is attached to this run.

    Args:
        cell: folder of the cell.
        name: name of the registered model.
        loader: the module that loads the cell.
        example, answers: tables of inputs and of the cell's predictions for them; they define the signature.
        requirements: names of packages; their installed versions are pinned.

    Returns: the version number of the model.
    Raises: UsageError: the name contains / or :, or MLflow does not answer.
    """
    if set(name) & set("/:"):
        raise UsageError(f"--name {name}: a model's name in MLflow cannot contain / or :; write another name")
    import mlflow
    from mlflow.models import Model, infer_signature

    with answering():
        client, experiment = open_store()
        mlflow.set_tracking_uri(client.tracking_uri)
        mlflow.set_experiment(experiment_id=experiment)
        run_id = read_record(cell).get("mlflow_run_id")
        made_by = client.get_run(run_id) if run_id and is_known(client, run_id) else None
        logged = Model.log(
            artifact_path=None,  # former name of the argument `name`, which still has no default
            flavor=mlflow.pyfunc,
            name=_NOT_IN_NAMES.sub("_", cell.name),
            run_id=made_by.info.run_id if made_by else None,
            registered_model_name=name,
            loader_module=loader,
            data_path=str(cell),
            code_paths=[str(Path(retable.__file__).parent)],
            signature=infer_signature(example, answers),
            input_example=example,
            # versions without suffixes such as torch's +cpu
            pip_requirements=[f"{each}=={version(each).partition('+')[0]}" for each in requirements],
        )
        number = logged.registered_model_version
        if made_by:
            client.update_model_version(name, number, made_by.data.tags.get("mlflow.note.content"))
    return int(number)
