"""Tokens and a backbone → a classifier: `python -m pipelines.finetune task=sentiment model=bilstm`."""

import csv
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from pipelines.build import build_model
from pipelines.entry import recorded, stage
from pipelines.training import initialise_input, train
from retable.artifacts import require
from retable.corpora.text import SPLITS
from retable.data.examples import BucketedExamples
from retable.errors import UsageError
from retable.evaluation.prediction import predict
from retable.metrics.classification import classification_metrics
from retable.objectives.classification import Classification
from retable.tasks.table import read_examples
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import load_weights


@stage
def finetune(cfg: DictConfig) -> None:
    tokens, task = Path("outputs/tokenize", cfg.tokens), Path("outputs/prepare", cfg.text, cfg.task_name)
    tokenizer = Tokenizer.load(require(tokens / "tokenizer.json"))
    examples = {
        split: read_examples(require(task / f"{split}.tsv"), cfg.task.sentence, cfg.task.label, cfg.task.labels)
        for split in SPLITS
    }
    labels = {split: [e.label for e in rows] for split, rows in examples.items()}

    torch.manual_seed(cfg.seed)
    model = build_model(cfg, tokenizer)
    first, last = ends_of_sequences(model, tokenizer)
    sequences = {
        split: [[first, *tokenizer.encode(e.sentence), last] for e in rows] for split, rows in examples.items()
    }
    inputs = [tokens / "tokenizer.json", *(task / f"{split}.tsv" for split in SPLITS)]
    upstream = [tokens, task.parent]
    if cfg.init != "random":
        upstream.append(Path("outputs", cfg.init))
        inputs.append(require(upstream[-1] / "model.safetensors"))
        load_pretrained(model, inputs[-1])
    elif getattr(model, "frozen", False):
        raise UsageError(
            f"init=random would leave what {type(model).__name__} keeps frozen as it was drawn; give init= a cell, as "
            "in init=pretrain/grammar/elmo-1, or write model.frozen=false"
        )
    initialise_input(model, cfg, tokenizer, inputs)
    objective = Classification(model, len(cfg.task.labels), cfg.dropout, cfg.auxiliary)
    batches = BucketedExamples(sequences["train"], labels["train"], cfg.finetuning.batch_size, cfg.seed)

    def score(objective: torch.nn.Module, split: str) -> dict[str, float]:
        return classification_metrics(labels[split], predict(objective, sequences[split]))

    with recorded(cfg, inputs, upstream, cfg.system, cfg.seed, task=cfg.task_name) as record:
        train(cfg, record, objective, batches, lambda objective: score(objective, "validation"))
        with (record.folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "index", "label", "prediction"))
            for split in SPLITS[1:]:
                predictions = predict(objective, sequences[split])
                writer.writerows((split, i, labels[split][i], p) for i, p in enumerate(predictions))
                scores = classification_metrics(labels[split], predictions)
                record.metrics |= {f"{cfg.task_name}/{split}/{m}": scores[m] for m in cfg.task.metrics}


def load_pretrained(model: Any, path: Path) -> None:
    """Give `model`, or the parts of it that it names as `pretrained`, the weights of a cell's model. UsageError where
    they are those of another."""
    for name, part in getattr(model, "pretrained", {"": model}).items():
        load_weights(part, path, prefix=f"model.{name}")


def ends_of_sequences(model: Any, tokenizer: Tokenizer) -> tuple[int, int]:
    """The tokens between which `model` reads a sequence: [CLS] and [SEP] where it pools a sequence into its [CLS], as
    BERT does, else the ends of lines. UsageError where the tokenizer has no such marks."""
    if not hasattr(model, "pool"):
        return tokenizer.boundary, [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    marks = tokenizer.special_ids
    if not {"[CLS]", "[SEP]"} <= set(marks):
        raise UsageError(
            f"{type(model).__name__} reads a sentence between [CLS] and [SEP], which the tokenizer lacks; write "
            "tokenizer=word_marked or tokenizer=wordpiece_uncased, that of its pretraining"
        )
    return marks["[CLS]"], marks["[SEP]"]


if __name__ == "__main__":
    finetune()
