"""Test predictions of GLUE's tasks → an archive for its server: `retable submit bilstm_skipgram`."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from hydra import initialize_config_dir

from pipelines.config.conf import build_task
from pipelines.config.project import CONF
from retable.core.artifacts import require
from retable.core.errors import UsageError, closest
from retable.core.stages import TASK_STAGES
from retable.tasks.submission import write_submission

# As the server calls them: the task and its split. It wants all.
SETS = {
    "CoLA": ("cola", "test"),
    "SST-2": ("sst2", "test"),
    "MRPC": ("mrpc", "test"),
    "STS-B": ("stsb", "test"),
    "QQP": ("qqp", "test"),
    "MNLI-m": ("mnli", "test"),
    "MNLI-mm": ("mnli", "test_mismatched"),
    "QNLI": ("qnli", "test"),
    "RTE": ("rte", "test"),
    "WNLI": ("wnli", "test"),
}


def submit(system: str, corpus: str, seed: int, tests: Sequence[str]) -> None:
    """Write the archive of a system's predictions of `tests`."""
    for name in tests:
        if name not in SETS:
            raise UsageError(f"--test {name} is no test set of GLUE's; {closest(name, SETS)}")
    out = Path("outputs/submit", corpus, f"{system}-{seed}.zip")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        labels = {name: read_predictions(corpus, system, seed, *SETS[name]) for name in tests}
    write_submission(out, labels)
    print(f"{out} holds {', '.join(f'{name} ({len(rows)})' for name, rows in labels.items())}")


def read_predictions(corpus: str, system: str, seed: int, task_name: str, split: str) -> list[str]:
    """The labels that the system's cell predicts of a test set, in the order of its file and as that would have them.

    Raises UsageError where the cell or the test set is missing, or where examples have no prediction.
    """
    from retable.tasks.sentences import SentenceTask

    task = build_task(task_name)
    assert isinstance(task, SentenceTask)
    if split not in task.splits:
        raise UsageError(
            f"task {task_name} has no {split} set; name it as files.{split} in conf/task/{task_name}.yaml and "
            "train it again, or leave it out by --test"
        )
    name = f"{corpus}/{task_name}-{system}-{seed}"
    cells = [Path("outputs", stage, name) for stage in TASK_STAGES]
    if (cell := next(filter(Path.exists, cells), None)) is None:
        raise UsageError(
            f"there is no outputs/finetune/{name}, nor one of from_scratch; run python -m pipelines.finetune "
            f"task={task_name} with system={system}, or leave it out by --test"
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
            "train it for longer, or leave the set out by --test"
        )
    return [task.labels.write(prediction) for prediction in found[range(n)]]
