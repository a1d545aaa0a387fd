"""Tokens and a backbone → what chooses among endings: `python -m pipelines.choose choosing=swag recipe=bert/bert`."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import build_model
from pipelines.entry import recorded, stage
from pipelines.finetune import lay_out, load_pretrained
from pipelines.training import train
from retable.artifacts import require
from retable.corpora.multiple_choice import Choice
from retable.corpora.text import SPLITS
from retable.data.choices import BucketedChoices, Choices
from retable.errors import UsageError
from retable.evaluation.choosing import choice_accuracy, predict_choices
from retable.objectives.multiple_choice import MultipleChoice
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.progress import Best


@stage
def choose(cfg: DictConfig) -> None:
    tokens = Path("outputs/encode", cfg.tokens)
    tokenizer = Tokenizer.load(require(tokens / "tokenizer.json"))
    source = instantiate(cfg.choosing.choices)
    for path in source.inputs:
        if "outputs" in path.parts:  # what is missing there is another stage's, and no data
            require(path)
    examples: dict[str, list[Choice]] = source.splits()

    torch.manual_seed(cfg.seed)
    model = build_model(cfg, tokenizer)
    objective = MultipleChoice(model, cfg.dropout, auxiliary=cfg.auxiliary, d_hidden=cfg.d_hidden, pooling=cfg.pooling)
    choices = {split: read(model, tokenizer, rows) for split, rows in examples.items()}
    inputs = [tokens / "tokenizer.json", *map(require, source.inputs)]
    if cfg.init != "random":
        inputs.append(require(Path("outputs", cfg.init, "model.safetensors")))
        load_pretrained(model, inputs[-1])
    elif getattr(model, "frozen", False):
        raise UsageError(
            f"init=random would leave what {type(model).__name__} keeps frozen as it was drawn; give init= a cell, as "
            "in init=pretrain/grammar/elmo-1, or write model.frozen=false"
        )
    batches = BucketedChoices(choices["train"], cfg.finetuning.batch_size, cfg.seed)

    def validate(objective: torch.nn.Module) -> dict[str, float]:
        of_split = choices["validation"]
        return {"accuracy": choice_accuracy(of_split.labels, predict_choices(objective, of_split))}

    with recorded(cfg, inputs, [], cfg.system, cfg.seed, corpus=cfg.task_name, task=cfg.task_name) as record:
        best = None if cfg.patience is None else Best("validation/accuracy", cfg.patience)
        train(cfg, record, objective, batches, validate, best)
        with (record.folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "index", "label", "prediction"))
            for split in SPLITS[1:]:
                labels, predictions = choices[split].labels, predict_choices(objective, choices[split])
                pairs = zip(labels, predictions.tolist(), strict=True)
                writer.writerows((split, index, *pair) for index, pair in enumerate(pairs))
                record.metrics[f"choices/{split}/accuracy"] = choice_accuracy(labels, predictions)
        record.extra["examples"] = {split: len(rows) for split, rows in examples.items()}
        record.extra["shortened"] = {split: of_split.inputs.shortened for split, of_split in choices.items()}


def read(model: Any, tokenizer: Tokenizer, examples: Sequence[Choice]) -> Choices:
    """The examples as `model` reads them: each ending with its beginning, as a pair of sentences whose order counts."""
    pairs = [(example.context, ending) for example in examples for ending in example.endings]
    n_endings = np.array([len(example.endings) for example in examples])
    labels = [example.label for example in examples if example.label is not None]  # which they all have
    return Choices(lay_out(model, tokenizer, pairs, symmetric=False), n_endings, labels)


if __name__ == "__main__":
    choose()
