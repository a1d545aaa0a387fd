"""Tokens and a backbone → a classifier: `python -m pipelines.finetune task=sentiment recipe=encoders/bilstm`.

An encoder-decoder, recipe=t5/t5_text, gets no head: it reads an example as a prompt and writes the label.
"""

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
from pipelines.training import initialise_input, train
from retable.artifacts import require
from retable.data import layouts
from retable.data.examples import BucketedExamples, Inputs
from retable.errors import UsageError
from retable.evaluation.prediction import predict
from retable.objectives.classification import Classification, reads_apart
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.regression import Regression
from retable.tasks.answers import Answers, plain
from retable.tasks.sentences import Example
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.progress import Best
from retable.training.weights import load_weights


@stage
def finetune(cfg: DictConfig) -> None:
    tokens = Path("outputs/encode", cfg.tokens)
    tokenizer = Tokenizer.load(require(tokens / "tokenizer.json"))
    task = instantiate(cfg.task)
    examples = {split: task.examples(split) for split in task.splits}
    if cfg.examples is not None:
        examples["train"] = draw(examples["train"], cfg.examples, cfg.seed)
    labels = {split: [e.label for e in rows] for split, rows in examples.items()}

    torch.manual_seed(cfg.seed)
    if cfg.frozen:
        cfg.model.dropout = 0.0  # a frozen model's states are features, the same each time
    model = build_model(cfg, tokenizer)
    if writes(model):
        answers = Answers(task.labels, cfg.answers)
        objective: Any = build_writer(cfg, model, tokenizer, answers)
        targets = [answers.place(label) for label in labels["train"]]
        texts = {
            split: [(layouts.prompt(cfg.task_name, task.named(e)),) for e in rows] for split, rows in examples.items()
        }
    else:
        objective, targets = build_head(cfg, model, task), labels["train"]
        texts = {split: [e.sentences for e in rows] for split, rows in examples.items()}
    sequences = {split: lay_out(model, tokenizer, rows, task.symmetric) for split, rows in texts.items()}
    inputs = [tokens / "tokenizer.json", *task.paths]
    prepared = (Path(*path.parts[:3]) for path in task.paths if path.parts[:2] == ("outputs", "prepare"))
    upstream = [tokens, *dict.fromkeys(prepared)]
    if cfg.init != "random":
        upstream.append(Path("outputs", cfg.init))
        inputs.append(require(upstream[-1] / "model.safetensors"))
        if writes(model):
            load_weights(objective, inputs[-1])
        else:
            load_pretrained(model, inputs[-1])
            if cfg.frozen:
                freeze(model)
    elif cfg.frozen:
        raise UsageError(
            f"init=random would leave a frozen {type(model).__name__} as it was drawn; give init= a cell, as in "
            "init=pretrain/grammar/gpt-1, or write frozen=false"
        )
    elif getattr(model, "frozen", False):
        raise UsageError(
            f"init=random would leave what {type(model).__name__} keeps frozen as it was drawn; give init= a cell, as "
            "in init=pretrain/grammar/elmo-1, or write model.frozen=false"
        )
    initialise_input(model, cfg, tokenizer, inputs)
    batches = BucketedExamples(sequences["train"], targets, cfg.finetuning.batch_size, cfg.seed)

    def score(objective: torch.nn.Module, split: str) -> dict[str, float]:
        return task.score(labels[split], predict(objective, sequences[split]))

    with recorded(cfg, inputs, upstream, cfg.system, cfg.seed, corpus=cfg.text, task=cfg.task_name) as record:
        best = None if cfg.patience is None else Best(f"validation/{task.metrics[0]}", cfg.patience)
        train(cfg, record, objective, batches, lambda objective: score(objective, "validation"), best)
        with (record.folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "index", "label", "prediction"))
            for split in task.splits[1:]:
                predictions = predict(objective, sequences[split]).tolist()
                writer.writerows((split, i, labels[split][i], p) for i, p in enumerate(predictions))
                if labels[split][0] is not None:
                    scores = task.score(labels[split], predictions)
                    base, _, kind = split.partition("_")
                    name = "_".join(filter(None, (cfg.task_name, kind)))
                    record.metrics |= {f"{name}/{base}/{metric}": scores[metric] for metric in task.metrics}
        if cfg.examples is not None:
            record.extra["protocol"] = f"{len(labels['train'])} labels"
        record.extra["shortened"] = {split: of_split.shortened for split, of_split in sequences.items()}


def draw(examples: Sequence[Example], number: int, seed: int) -> list[Example]:
    """`number` of the examples, without replacement, in their order; with one seed the fewer are among the more.
    UsageError where there are not so many."""
    available = len(examples)
    if number not in range(1, available + 1):
        raise UsageError(
            f"examples={number}, but the training split has {available}; write 1 to {available}, or null for all"
        )
    drawn = np.random.default_rng(seed).permutation(available)[: int(number)]  # 1e3 is a float
    return [examples[place] for place in np.sort(drawn)]


def build_head(cfg: DictConfig, model: Any, task: Any) -> Classification:
    """The objective that learns the task's labels, or its scores, on top of the model."""
    if cfg.answers is not None:
        raise UsageError(
            f"{type(model).__name__} has a head for its labels; leave answers= out, or take recipe=t5/t5_text"
        )
    settings = {
        "dropout": cfg.dropout,
        "auxiliary": cfg.auxiliary,
        "pairs": len(task.sentences) == 2,
        "d_hidden": cfg.d_hidden,
        "pooling": cfg.pooling,
    }
    if task.labels.names:
        return Classification(model, len(task.labels.names), **settings)
    return Regression(model, task.labels.low, task.labels.high, **settings)


def writes(model: Any) -> bool:
    """Whether the model writes its labels."""
    return model.direction == "encoder-decoder"


def build_writer(cfg: DictConfig, model: Any, tokenizer: Tokenizer, answers: Answers) -> LabelsAsText:
    """The objective of a model that learns to write its labels. UsageError where the tokenizer can't write one."""
    for name, none in (("auxiliary", 0.0), ("d_hidden", None), ("pooling", None), ("frozen", False)):
        if cfg[name] != none:
            raise UsageError(f"{type(model).__name__} writes its labels, and has no head; leave {name}={cfg[name]} out")
    ids = tokenizer.encode_batch(answers.texts)
    for text, back in zip(answers.texts, tokenizer.decode_batch(ids), strict=True):
        if plain(text) != plain(back):
            raise UsageError(
                f"the tokenizer {cfg.tokens} can't write the label {text!r}, of which it makes {back!r}; take one that "
                "spells words, tokenizer=unigram or tokenizer=bpe, or give each class a text that it can write, as in "
                "answers=[bad,good]"
            )
    end = ends_of_sequences(model, tokenizer)[1]

    def read(written: list[int]) -> float:
        return answers.label(tokenizer.decode(written[: written.index(end)])) if end in written else answers.none

    return LabelsAsText(model, tokenizer.vocab_size, cfg.objective.tie, [[*text, end] for text in ids], read)


def lay_out(model: Any, tokenizer: Tokenizer, examples: Sequence[tuple[str, ...]], symmetric: bool) -> Inputs:
    """The examples as `model` reads them, see `layouts`. A left-to-right model's delimiter is [SEP], where the
    tokenizer has one, as GPT's is a token that the text lacks; else the end of a line."""
    ids = [tuple(tokenizer.encode(sentence) for sentence in sentences) for sentences in examples]
    first, last = ends_of_sequences(model, tokenizer)
    if writes(model):
        return layouts.as_text(ids, last)
    longest = getattr(model, "max_length", None)
    if reads_apart(model):
        return layouts.apart(ids, first, last, longest)
    if hasattr(model, "pool"):
        return layouts.in_segments(ids, first, last, longest)
    delimiter = tokenizer.special_ids.get("[SEP]", last)
    return layouts.left_to_right(ids, first, delimiter, last, longest, symmetric)


def load_pretrained(model: Any, path: Path) -> None:
    """Give `model`, or the parts of it that it names as `pretrained`, the weights of a cell's model. UsageError where
    they are those of another."""
    for name, part in getattr(model, "pretrained", {"": model}).items():
        load_weights(part, path, prefix=f"model.{name}")


def freeze(model: Any) -> None:
    """Keep the model's weights. UsageError for one that is pretrained in parts."""
    if hasattr(model, "pretrained"):
        raise UsageError(
            f"{type(model).__name__} is pretrained in parts, and learns the others; leave frozen=true out: "
            "model.frozen=true keeps those parts"
        )
    model.requires_grad_(False)


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
