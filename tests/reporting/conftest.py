"""Small result folders in the format of stages."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from retable.core.artifacts import write_record
from retable.metrics.classification import classification_metrics
from retable.metrics.likelihood import likelihood_metrics

Write = Callable[..., Path]
SPLITS = ("validation", "test")
RECORD = {
    "mlflow_run_id": "a1b2c3", "git_commit": "c0ffee" * 6, "git_dirty": False, "seconds": 12.5, "startup_seconds": 2.5,
    "peak_memory_mib": 321, "hardware": "two cores", "environment": {"python": "3.12.1"},
}  # fmt: skip
# Classes of tasks and benchmarks, by the first part of the names of their metrics.
TASKS = {
    "tagging": "tagged.TaggingTask", "answers": "questions.QuestionTask", "choices": "choices.ChoiceTask",
    "coreference": "clusters.CoreferenceTask", "summaries": "summaries.SummaryTask",
    "translation": "translation.TranslationTask",
}  # fmt: skip
BENCHMARKS = {
    "blimp": "minimal_pairs.MinimalPairs", "prompted_lambada": "last_words.LastWords", "prompted": "prompting.Prompted",
}  # fmt: skip


def made_by(stage: str, metrics: dict) -> str:
    """Return the part of a cell's configuration that names the class of its task or benchmark."""
    first = min(metrics, default="").split("/")[0]
    if stage in ("from_scratch", "finetune"):
        return f"task:\n  _target_: retable.tasks.{TASKS.get(first, 'sentences.SentenceTask')}\n"
    named = BENCHMARKS.get(first) or BENCHMARKS.get(first.split("_")[0], "perplexity.Perplexity")
    return f"benchmark:\n  measured:\n    _target_: retable.evaluation.{named}\n" if stage == "evaluate" else ""


def writes_runs(root: Path) -> Write:
    """Return a function that writes a cell into `root`."""

    def write(
        stage: str, out: str, system: str, seed: int | None, metrics: dict, record: dict = RECORD, **more
    ) -> Path:
        cell = root / "outputs" / stage / out
        folder = cell / "measured" if stage == "evaluate" else cell
        folder.mkdir(parents=True)
        run = {"stage": stage, "system": system, "corpus": out.split("/")[0], "seed": seed, "task": None}
        run |= {"digests": {"test.bin": "ab" * 32}, "made_from": []}
        (cell / "run.json").write_text(json.dumps(run | more), encoding="utf-8")
        (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
        config = f"system: {system}\nseed: {seed}\n{made_by(stage, metrics)}"
        (cell / "config.yaml").write_text(config, encoding="utf-8")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("DVC_ROOT", str(root))  # the folder for records of all studies
            write_record(cell, RECORD | record)
        return folder

    return write


@pytest.fixture
def write_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return writes_runs(tmp_path)


@pytest.fixture
def write_likelihood(write_run: Write) -> Write:
    return writes_likelihoods(write_run)


def writes_likelihoods(write_run: Write) -> Write:
    """Return a function that writes a cell with given nats per unit, on both splits.

    Each unit has 10 tokens, 10 words and 60 bytes.
    """

    def write(stage: str, out: str, system: str, seed: int | None, nats: list[float], lost: Any = 0, **more) -> Path:
        n = len(nats)
        units = pd.DataFrame({"unit": range(n), "nats": nats, "tokens": 10, "words": 10, "bytes": 60, "lost": lost})
        summed = likelihood_metrics(sum(nats), 10 * n, 10 * n, 60 * n, int(units["lost"].sum()))
        metrics = {f"{split}/{key}": value for split in SPLITS for key, value in summed.items()}
        folder = write_run(stage, out, system, seed, metrics, **more)
        pd.concat([units.assign(split=split) for split in SPLITS]).to_csv(folder / "units.csv", index=False)
        return folder

    return write


@pytest.fixture
def write_classifier(write_run: Write) -> Write:
    def write(out: str, system: str, seed: int, task: str, labels: list, predictions: list) -> Path:
        metrics = classification_metrics(labels, predictions)
        metrics = {f"{task}/test/{key}": value for key, value in metrics.items()}
        folder = write_run("finetune", out, system, seed, metrics, task=task)
        table = pd.DataFrame({"split": "test", "unit": range(len(labels)), "label": labels, "prediction": predictions})
        table.to_csv(folder / "units.csv", index=False)
        return folder

    return write


@pytest.fixture
def write_curve() -> Callable[[Path, list[float]], None]:
    def write(folder: Path, losses: list[float]) -> None:
        rows = [(100 * step, "validation/loss", loss) for step, loss in enumerate(losses)]
        pd.DataFrame(rows, columns=["step", "metric", "value"]).to_csv(folder / "curve.csv", index=False)

    return write


@pytest.fixture
def perplexity_of() -> Callable[[float], float]:
    """Return the nats of a unit of 10 words with this perplexity per word."""
    return lambda perplexity: 10 * math.log(perplexity)


@pytest.fixture
def write_vectors(write_run: Write) -> Write:
    """Write an evaluate cell of word vectors, with these accuracies of analogies in percent, by 3CosAdd and 3CosMul."""

    def write(corpus: str, system: str, seed: int, percent: float, percent_mul: float | None = None) -> Path:
        metrics = {}
        for section, asked, seen in (("regular", 60, 60), ("gram8-plural", 90, 80), ("total", 190, 180)):
            metrics |= {f"analogies/{section}/questions": asked, f"analogies/{section}/seen": seen}
            metrics |= {f"analogies/{section}/accuracy": percent / 100}
            if percent_mul is not None:
                metrics |= {f"analogies/{section}/accuracy_mul": percent_mul / 100}
        return write_run("evaluate", f"{corpus}/{system}-{seed}-analogies", system, seed, metrics)

    return write


@pytest.fixture
def write_neighbours(write_run: Write) -> Write:
    """Write an evaluate cell with neighbours of words: their ranks, and the nearest words."""

    def write(out: str, system: str, seed: int, found: dict[tuple[str, str], list[str]]) -> Path:
        folder = write_run("evaluate", out, system, seed, {})
        rows = [(*head, place, near, 0.5) for head, list_ in found.items() for place, near in enumerate(list_, 1)]
        columns = ["word", "rank", "place", "neighbour", "cosine"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "neighbours.csv", index=False)
        return folder

    return write


@pytest.fixture
def write_plane(write_run: Write) -> Write:
    """Write an evaluate cell with pairs of words in the plane, each at ((x, y), (x, y))."""

    def write(out: str, system: str, seed: int, places: list) -> Path:
        folder = write_run("evaluate", out, system, seed, {})
        rows = [(i, side, f"word{i}{side}", *pair[side]) for i, pair in enumerate(places) for side in (0, 1)]
        pd.DataFrame(rows, columns=["pair", "side", "word", "x", "y"]).to_csv(folder / "plane.csv", index=False)
        return folder

    return write
