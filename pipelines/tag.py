"""Tagged sentences → a tagger: `python -m pipelines.tag tagging=conll2000_chunking recipe=taggers/bilstm_crf`.

Of semantic roles the task names the predicate, and a sentence comes once for each of its own.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import asks
from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require
from retable.corpora.columns import TaggedSentence
from retable.corpora.text import SPLITS
from retable.data.tagged import BucketedSentences, Vocabulary
from retable.data.word_vectors import vectors_of
from retable.errors import UsageError
from retable.evaluation.tagging import COLUMNS, SPAN_COLUMNS, predict_tags, sentence_counts, tagging_metrics
from retable.metrics.roles import role_counts
from retable.metrics.spans import convert, span_counts
from retable.models.word2vec_format import read_word2vec
from retable.nn.embedding import initialise_embedding
from retable.objectives.tagging import Tagging
from retable.training.weights import load_weights


@stage
def tag(cfg: DictConfig) -> None:
    task = instantiate(cfg.tagging.sentences)
    sentences, scheme = read_sentences(task), cfg.tagging.scheme
    gold = {
        split: [convert(each.tags, scheme) if scheme else each.tags for each in sentences[split]] for split in SPLITS
    }
    tags = sorted({tag for row in gold["train"] for tag in row})
    roles = require_predicate(cfg, sentences["train"][0])
    ids = {tag: i for i, tag in enumerate(tags)}

    inputs, upstream = list(map(require, task.inputs)), []
    vectors: dict[str, np.ndarray] = {}
    if cfg.embedding != "random":
        inputs.append(require(Path(cfg.embedding)))
        words = (word for split in SPLITS for each in sentences[split] for word in each.words)
        vectors = vectors_of(words, *read_word2vec(inputs[-1]), instantiate(cfg.tagging.convention) or str)
    starts = {split: sentence_starts(sentences[split]) for split in SPLITS}
    texts = {split: [sentences[split][place].words for place in starts[split]] for split in SPLITS}
    vocabulary = Vocabulary(texts["train"], [*texts["validation"], *texts["test"]], vectors)
    examples = {
        # a tag that is not trained on can't be predicted: any number will do for it
        split: [
            vocabulary.example(each.words, [ids.get(tag, 0) for tag in row], each.predicate)
            for each, row in zip(sentences[split], gold[split], strict=True)
        ]
        for split in SPLITS
    }

    torch.manual_seed(cfg.seed)
    if not asks(cfg.model, "unknown"):
        raise UsageError(
            f"{cfg.model._target_} does not read words by their spelling; write recipe=taggers/bilstm_tagger"
        )
    model = instantiate(cfg.model, _partial_=True)(vocab_size=len(vocabulary.known), words=vocabulary.words, unknown=0)
    if cfg.init != "random":
        upstream.append(Path("outputs", cfg.init))
        inputs.append(require(upstream[-1] / "model.safetensors"))
        load_pretrained(model, inputs[-1])
    elif getattr(model, "frozen", False):
        raise UsageError(
            f"init=random would leave what {type(model).__name__} keeps frozen as it was drawn; give init= a cell, as "
            "in init=pretrain/grammar/elmo-1"
        )
    if vectors:
        initialise_embedding(model.embedding, vocabulary.known, list(vectors), np.stack(list(vectors.values())))
    objective = Tagging(model, tags, cfg.dropout, cfg.crf, scheme if cfg.crf else None)
    batches = BucketedSentences(examples["train"], cfg.finetuning.batch_size, cfg.seed)
    spans = (role_counts if roles else span_counts) if scheme else None

    def counts(objective: torch.nn.Module, split: str) -> tuple[list[list[str]], np.ndarray]:
        predictions = predict_tags(objective, examples[split], tags)
        return predictions, sentence_counts(gold[split], predictions, spans)

    with recorded(cfg, inputs, upstream, cfg.system, cfg.seed, corpus=cfg.task_name, task=cfg.task_name) as record:
        record.extra["tags"], record.extra["words"] = len(tags), len(vocabulary.known)
        train(cfg, record, objective, batches, lambda objective: tagging_metrics(counts(objective, "validation")[1]))
        with (record.folder / "sentences.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "unit", *COLUMNS, *(SPAN_COLUMNS if scheme else ())))
            for split in SPLITS[1:]:
                predictions, found = counts(objective, split)
                units = np.add.reduceat(found, starts[split])
                writer.writerows((split, unit, *row) for unit, row in enumerate(units.tolist()))
                write_columns(record.folder / f"{split}.tags.txt", sentences[split], gold[split], predictions)
                record.metrics |= {f"tagging/{split}/{name}": v for name, v in tagging_metrics(found).items()}


def read_sentences(task: Any) -> dict[str, list[TaggedSentence]]:
    """The sentences of each split. UsageError where the data are not there."""
    for path in task.inputs:
        if not path.exists():
            raise UsageError(
                f"{path} does not exist; set RETABLE_DATA to the folder of data sets, or put the file there"
            )
    sentences: dict[str, list[TaggedSentence]] = task.splits()
    return sentences


def require_predicate(cfg: DictConfig, sentence: TaggedSentence) -> bool:
    """Whether the task's tags are about a predicate, of which `sentence` is one. UsageError where the model marks none,
    or has nothing to mark."""
    given, marked = sentence.predicate is not None, cfg.model.get("d_predicate", 0)
    if given and not marked:
        raise UsageError(
            f"tagging={cfg.task_name} has tags about a predicate, and {cfg.model._target_} is not told which word it "
            "is; write recipe=taggers/role_labeller"
        )
    if marked and not given:
        raise UsageError(
            f"tagging={cfg.task_name} names no predicates for model.d_predicate={marked} to mark; write "
            "recipe=taggers/bilstm_crf, or tagging=conll2012_roles"
        )
    return given


def sentence_starts(sentences: Sequence[TaggedSentence]) -> list[int]:
    """Where another sentence begins: several predicates of one follow each other, with the same list of words."""
    return [i for i, each in enumerate(sentences) if i == 0 or each.words is not sentences[i - 1].words]


def load_pretrained(model: Any, path: Path) -> None:
    """Give the parts of `model` that it names as `pretrained` the weights of a cell's model. UsageError where it has
    none, or they are those of another."""
    if not hasattr(model, "pretrained"):
        raise UsageError(
            f"{type(model).__name__} has no part that is pretrained; write init=random, or recipe=taggers/elmo_tagger"
        )
    for name, part in model.pretrained.items():
        load_weights(part, path, prefix=f"model.{name}")


def write_columns(
    path: Path,
    sentences: Sequence[TaggedSentence],
    gold: Sequence[Sequence[str]],
    predictions: Sequence[Sequence[str]],
) -> None:
    """Word, tag and prediction a line, a blank line behind each sentence: what the Perl script conlleval reads. Where
    there is a predicate, a column behind the words holds it in its own line, and a hyphen in the others."""
    with path.open("w", encoding="utf-8") as file:
        for sentence, *columns in zip(sentences, gold, predictions, strict=True):
            if sentence.predicate is not None:
                columns.insert(0, [word if i == sentence.predicate else "-" for i, word in enumerate(sentence.words)])
            file.writelines(f"{' '.join(row)}\n" for row in zip(sentence.words, *columns, strict=True))
            file.write("\n")


if __name__ == "__main__":
    tag()
