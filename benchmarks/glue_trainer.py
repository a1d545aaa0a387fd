"""Fine-tune MiniLM with transformers' Trainer on six of GLUE's tasks: `python -m benchmarks.glue_trainer`.

The settings are those of system `minilm` in study `glue_pretrained`; the files are read with pandas. Each run adds a
line to glue_trainer.csv, and runs with a line are not repeated. Then glue_trainer.md compares the scores on the
development sets with those of the study.

transformers and scikit-learn are in the extra `dev`; the data are in the folder that RETABLE_DATA names, by default
`data`. Four hours on one core that computes bf16 in hardware.
"""

import argparse
import csv
import json
import os
import time
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import transformers
from pandas.api.types import is_numeric_dtype
from scipy.stats import pearsonr, spearmanr, ttest_ind
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch.utils.data import DataLoader

from benchmarks.__main__ import machine
from benchmarks.ratio import at_least_one
from retable.data.bucketed import Bucketed
from retable.data.examples import Inputs, encoded

DATA = Path(os.environ.get("RETABLE_DATA", "data"), "glue")
SCORES = Path(__file__).with_suffix(".csv")
PAGE = Path(__file__).with_suffix(".md")
RECORDS = Path(__file__).parents[1] / "studies/glue_pretrained/records/finetune/glue"
ABOUT = """Measured by `python -m benchmarks.glue_trainer` on {machine}; transformers
{version}. The settings are the same: learning rate 1e-4, 3 epochs, batches of 16 texts of similar length, linear
warm-up over a tenth of the steps, linear decay, AdamW with a weight decay of 0.01, bf16. Scores are percentages on the
validation sets, with the standard deviation and the number of seeds. The interval of the difference is Welch's, 95 %.
Minutes are those of the fastest seed, on one core of a busy machine."""
REASON = """WNLI: {known} of {pairs} validation pairs share a sentence with training; the nearest is right for {right}.
Similarity is the share of shared words, of the first sentence first. On the Trainer's own batches the model has the
accuracy of the majority class. On Retable's batches, whose texts have equal lengths, it is below the majority class."""
HEAD = """| task | metric | Retable | Trainer | difference | minutes | Trainer's |
|---|---|---:|---:|---:|---:|---:|"""
MODEL, REVISION = "sentence-transformers/all-MiniLM-L6-v2", "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"


class Task(NamedTuple):
    folder: str
    sentences: list[str]
    label: str
    metrics: list[str]
    columns: list[str] | None = None  # of a file without a header


SEP = 102  # the id of [SEP]
OURS = "wnli, batches of Retable"


TASKS = {
    "wnli": Task("WNLI", ["sentence1", "sentence2"], "label", ["accuracy"]),
    "mrpc": Task("MRPC", ["#1 String", "#2 String"], "Quality", ["accuracy", "f1"]),
    "rte": Task("RTE", ["sentence1", "sentence2"], "label", ["accuracy"]),
    "cola": Task("CoLA", ["sentence"], "label", ["matthews"], ["source", "label", "mark", "sentence"]),
    "stsb": Task("STS-B", ["sentence1", "sentence2"], "label", ["pearson", "spearman"]),
    "sst2": Task("SST-2", ["sentence"], "label", ["accuracy"]),
}
TASKS[OURS] = TASKS["wnli"]
METRICS = {
    "accuracy": accuracy_score,
    "f1": f1_score,
    "matthews": matthews_corrcoef,
    "pearson": lambda right, predicted: pearsonr(right, predicted).statistic,
    "spearman": lambda right, predicted: spearmanr(right, predicted).statistic,
}


def read(task: Task, split: str, tokenizer: Any) -> Any:
    """Return the examples of a file as a collator reads them: ids and a class, or a score from 0 to 5."""
    table = pd.read_csv(
        DATA / task.folder / f"{split}.tsv", sep="\t", quoting=csv.QUOTE_NONE, encoding="utf-8-sig",
        keep_default_na=False, names=task.columns,
    )  # fmt: skip
    labels = table[task.label]
    if not is_numeric_dtype(labels):
        labels = labels.astype("category").cat.codes
    texts = zip(*(table[name] for name in task.sentences), strict=True)
    ids = [tokenizer(*each, truncation=True, max_length=512) for each in texts]
    return [{**each, "labels": label} for each, label in zip(ids, labels.tolist(), strict=True)]


def trained(task: Task, seed: int, our_batches: bool = False) -> dict[str, float]:
    """Fine-tune MiniLM, and return its scores on the development set and the minutes of training."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL, revision=REVISION)
    train, dev = (read(task, split, tokenizer) for split in ("train", "dev"))
    classes = 1 if "pearson" in task.metrics else 2
    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        MODEL, revision=REVISION, num_labels=classes
    )
    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, num_train_epochs=3, per_device_train_batch_size=16, per_device_eval_batch_size=64,
            learning_rate=1e-4, weight_decay=0.01, warmup_steps=0.1, lr_scheduler_type="linear", max_grad_norm=1.0,
            train_sampling_strategy="group_by_length", bf16=True, use_cpu=True, seed=seed, report_to=[],
            save_strategy="no", logging_strategy="no", remove_unused_columns=False,
        )  # fmt: skip
        collator = transformers.DataCollatorWithPadding(tokenizer)
        kind: Any = transformers.Trainer
        if our_batches:
            kind, train = InOurOrder, on_our_batches(train, seed)
            arguments.max_steps = len(train)
        trainer = kind(model, arguments, data_collator=collator, train_dataset=train)
        start = time.perf_counter()
        trainer.train()
        minutes = (time.perf_counter() - start) / 60
        result = trainer.predict(dev)  # in another order: the Trainer groups these examples by length, too
    outputs, right = np.asarray(result.predictions), np.asarray(result.label_ids)
    predicted = outputs[:, 0] if classes == 1 else outputs.argmax(1)
    return {name: float(METRICS[name](right, predicted)) for name in task.metrics} | {"minutes": minutes}


def spread(scores: np.ndarray[Any, Any]) -> str:
    """Return the mean, the standard deviation if there are several scores, and the number of scores."""
    deviation = f" ± {scores.std(ddof=1):.2f}" if len(scores) > 1 else ""
    return f"{scores.mean():.2f}{deviation} ({len(scores)})"


def differences(scores: pd.DataFrame) -> list[str]:
    """Return a table row for each task and metric: mean scores of both, their difference, and minutes."""
    rows = []
    for (task, metric), group in scores.query("metric != 'minutes'").groupby(["task", "metric"], sort=False):
        name = task.partition(",")[0]
        records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob(f"{name}-minilm-*.json"))]
        ours = 100 * np.array([each["metrics"][""][f"{name}/validation/{metric}"] for each in records])
        theirs = 100 * group.score.to_numpy()
        interval = ""
        if len(theirs) > 1:
            low, high = ttest_ind(ours, theirs, equal_var=False).confidence_interval()
            interval = f" ({low:+.2f} to {high:+.2f})"
        minutes = min(each["made"]["seconds"] / 60 for each in records)
        its = scores.query("task == @task and metric == 'minutes'").score.min()
        difference = f"{ours.mean() - theirs.mean():+.2f}{interval}"
        cells = [task, metric, spread(ours), spread(theirs), difference, f"{minutes:.1f}", f"{its:.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


class InOurOrder(transformers.Trainer):
    """A Trainer whose data set consists of batches, in order."""

    def get_train_dataloader(self) -> Any:
        batches: Any = self.train_dataset
        return DataLoader(batches, batch_size=None)


def on_our_batches(examples: Any, seed: int) -> list[dict[str, torch.Tensor]]:
    """Return the batches of three epochs that Retable makes of the examples."""
    labels = [each["labels"] for each in examples]
    batches = Bucketed(encoded(Inputs([each["input_ids"] for each in examples]), labels), 16, seed)
    collated = []
    for batch in map(batches.batch, range(3 * batches.steps_per_epoch)):
        mask = (torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]).long()
        ends = (batch.input_ids == SEP).long()
        second = (ends.cumsum(1) - ends).clamp(max=1) * mask
        collated.append({"input_ids": batch.input_ids, "attention_mask": mask, "token_type_ids": second,
                         "labels": batch.labels})  # fmt: skip
    return collated


def contradictions() -> str:
    """Count WNLI's validation pairs whose most similar training pair has their label."""
    train, dev = (
        pd.read_csv(DATA / "WNLI" / f"{split}.tsv", sep="\t", quoting=csv.QUOTE_NONE) for split in ("train", "dev")
    )

    def similarity(a: Any, b: Any) -> list[float]:
        pairs = [(set(a[name].split()), set(b[name].split())) for name in TASKS["wnli"].sentences]
        return [len(x & y) / len(x | y) for x, y in pairs]

    nearest = [max(train.to_dict("records"), key=partial(similarity, row)) for row in dev.to_dict("records")]
    right = sum(one["label"] == label for one, label in zip(nearest, dev.label, strict=True))
    known = dev.sentence1.isin(train.sentence1).sum()
    return REASON.format(pairs=len(dev), known=known, right=right)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.glue_trainer", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS], metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--threads", type=at_least_one, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    scores = pd.read_csv(SCORES) if SCORES.exists() else pd.DataFrame(columns=["task", "seed", "metric", "score"])
    for task, seed in product(arguments.tasks, arguments.seeds):
        if scores.query("task == @task and seed == @seed").empty:
            new = [
                (task, seed, metric, round(score, 6))
                for metric, score in trained(TASKS[task], seed, task == OURS).items()
            ]
            scores = pd.concat([scores, pd.DataFrame(new, columns=scores.columns)])
            scores.to_csv(SCORES, index=False)
            print(*new, sep="\n", flush=True)
    page = [
        "# MiniLM on GLUE's small tasks, next to transformers' Trainer",
        ABOUT.format(machine=machine(arguments.threads), version=transformers.__version__),
        "\n".join([HEAD, *differences(scores)]),
        contradictions(),
    ]
    PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
