"""Test predictions of GLUE's tasks → an archive for its server: `python -m pipelines.submit system=bilstm_skipgram`"""

from pathlib import Path

import pandas as pd
from omegaconf import DictConfig

from pipelines.entry import stage
from pipelines.tasks import build_task
from retable.artifacts import require
from retable.errors import UsageError
from retable.tasks.submission import write_submission


@stage
def submit(cfg: DictConfig) -> None:
    unknown = [name for name in cfg.tests if name not in cfg.sets]
    if unknown or not cfg.tests:
        raise UsageError(f"tests={list(cfg.tests)} must be some of {', '.join(cfg.sets)}")
    labels = {name: read_predictions(cfg, *cfg.sets[name]) for name in cfg.tests}
    write_submission(Path(cfg.out), labels)
    print(f"{cfg.out} holds {', '.join(f'{name} ({len(rows)})' for name, rows in labels.items())}")


def read_predictions(cfg: DictConfig, task_name: str, split: str) -> list[str]:
    """The labels that the system's cell predicts of a test set, in the order of its file and as that would have them.

    Raises UsageError where the cell or the test set is missing, or where examples have no prediction.
    """
    from retable.tasks.sentences import SentenceTask

    task = build_task(task_name)
    assert isinstance(task, SentenceTask)
    if split not in task.splits:
        raise UsageError(
            f"task {task_name} has no {split} set; name it as files.{split} in conf/task/{task_name}.yaml and "
            "train it again, or leave it out of tests=[…]"
        )
    cell = Path("outputs/train", cfg.corpus, f"{task_name}-{cfg.system}-{cfg.seed}")
    if not cell.exists():
        raise UsageError(
            f"{cell} does not exist; run the stage train with task={task_name} and system={cfg.system}, or leave it "
            "out of tests=[…]"
        )
    table = pd.read_csv(require(cell / "units.csv"), usecols=["split", "unit", "prediction"])
    found = table[table["split"] == split].set_index("unit")["prediction"]
    n = len(task.examples(split))
    if missing := sorted(set(range(n)) - set(found.index)):
        raise UsageError(
            f"{cell}/units.csv has none for {len(missing)} of the {n} examples of {split}, the first of them "
            f"{missing[0]}; train it again on the files as they are now"
        )
    if task.labels.names and (without := sum(found[range(n)] == task.labels.none)):
        raise UsageError(
            f"{cell} wrote no label for {without} of the {n} examples of {split}, and the server takes labels alone; "
            "train it for longer, or leave the set out of tests=[…]"
        )
    return [task.labels.write(prediction) for prediction in found[range(n)]]


if __name__ == "__main__":
    submit()
