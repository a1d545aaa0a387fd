"""Write the archive of test predictions for the GLUE server: `retable submit bilstm_skipgram`."""

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

# Maps the server's name of each test set to Retable's task and split. The server requires all of these test sets.
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
    """Write the archive of a system's predictions on test sets.

    Args:
        system: name of the system.
        corpus: corpus of the system's cells.
        seed: seed of the system's cells.
        tests: names of test sets on the server, which are the keys of `SETS`.

    Raises: UsageError: a test set is unknown, or predictions are missing.
    """
    for name in tests:
        if name not in SETS:
            raise UsageError(f"--test {name} is not a test set of GLUE; {closest(name, SETS)}")
    out = Path("outputs/submit", corpus, f"{system}-{seed}.zip")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        labels = {name: read_predictions(corpus, system, seed, *SETS[name]) for name in tests}
    write_submission(out, labels)
    print(f"wrote {out}: {', '.join(f'{name} ({len(rows)})' for name, rows in labels.items())}")


def read_predictions(corpus: str, system: str, seed: int, task_name: str, split: str) -> list[str]:
    """Return the labels that a system's cell predicts for a test set, in the order and notation of the test file.

    Raises: UsageError: the cell or the test set is missing, or examples have no prediction.
    """
    from retable.tasks.sentences import SentenceTask

    task = build_task(task_name)
    assert isinstance(task, SentenceTask)
    if split not in task.splits:
        raise UsageError(
            f"task {task_name} has no split {split}; add it as files.{split} in conf/task/{task_name}.yaml and "
            "train again, or submit only other sets with --test"
        )
    name = f"{corpus}/{task_name}-{system}-{seed}"
    cells = [Path("outputs", stage, name) for stage in TASK_STAGES]
    if (cell := next(filter(Path.exists, cells), None)) is None:
        raise UsageError(
            f"outputs/finetune/{name} and outputs/from_scratch/{name} do not exist; run python -m pipelines.finetune "
            f"task={task_name} with system={system}, or submit only other sets with --test"
        )
    table = pd.read_csv(require(cell / "units.csv"), usecols=["split", "unit", "prediction"])
    predictions = table[table["split"] == split].set_index("unit")["prediction"]
    n = len(task.examples(split))
    if missing := sorted(set(range(n)) - set(predictions.index)):
        raise UsageError(
            f"{cell}/units.csv has no prediction for {len(missing)} of the {n} examples of {split}, first "
            f"{missing[0]}; train the system again on the present files"
        )
    if task.labels.names and (without := sum(predictions[range(n)] == task.labels.none)):
        raise UsageError(
            f"{cell} predicts no valid label for {without} of the {n} examples of {split}, but the server needs a "
            "label for each example; train the system for longer, or submit only other sets with --test"
        )
    return [task.labels.write(prediction) for prediction in predictions[range(n)]]
