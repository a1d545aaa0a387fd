"""Tokens and a backbone → a classifier: `python -m pipelines.finetune task=sentiment model=bilstm`."""

import csv
from pathlib import Path

import torch
from omegaconf import DictConfig

from pipelines.build import build_model
from pipelines.entry import recorded, stage
from pipelines.training import initialise_input, train
from retable.artifacts import require
from retable.corpora.text import SPLITS
from retable.data.examples import BucketedExamples
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
    sequences = {
        split: [[tokenizer.boundary, *tokenizer.encode(e.sentence + "\n")] for e in rows]
        for split, rows in examples.items()
    }
    labels = {split: [e.label for e in rows] for split, rows in examples.items()}

    torch.manual_seed(cfg.seed)
    model = build_model(cfg, tokenizer)
    inputs = [tokens / "tokenizer.json", *(task / f"{split}.tsv" for split in SPLITS)]
    upstream = [tokens, task.parent]
    if cfg.init != "random":
        upstream.append(Path("outputs", cfg.init))
        inputs.append(require(upstream[-1] / "model.safetensors"))
        load_weights(model, inputs[-1], prefix="model.")
    initialise_input(model, cfg, tokenizer, inputs)
    objective = Classification(model, len(cfg.task.labels), cfg.dropout)
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


if __name__ == "__main__":
    finetune()
