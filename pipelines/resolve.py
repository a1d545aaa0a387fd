"""Documents with clusters of mentions → a model that finds them: `python -m pipelines.resolve seed=1`."""

import csv
from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import asks
from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require
from retable.corpora.coreference import write_documents
from retable.corpora.text import SPLITS
from retable.data.coreference import BucketedDocuments, Clusters, coreference_example
from retable.data.tagged import Vocabulary
from retable.data.word_vectors import vectors_of
from retable.errors import UsageError
from retable.evaluation.coreference import predict_clusters
from retable.metrics.coreference import COLUMNS, coreference_counts, coreference_metrics
from retable.models.word2vec_format import read_word2vec
from retable.nn.embedding import initialise_embedding
from retable.objectives.antecedents import Antecedents
from retable.training.progress import Best
from retable.training.weights import load_weights


@stage
def resolve(cfg: DictConfig) -> None:
    task = instantiate(cfg.coreference.documents)
    documents = task.splits()
    inputs, upstream = list(map(require, task.inputs)), []

    texts = {split: [words for each in documents[split] for words in each.sentences] for split in SPLITS}
    vectors: dict[str, np.ndarray] = {}
    if cfg.embedding != "random":
        inputs.append(require(Path(cfg.embedding)))
        words = (word for split in SPLITS for text in texts[split] for word in text)
        vectors = vectors_of(words, *read_word2vec(inputs[-1]), instantiate(cfg.coreference.convention) or str)
    vocabulary = Vocabulary(texts["train"], [*texts["validation"], *texts["test"]], vectors)
    ids = {word: i for i, word in enumerate(vocabulary.words)}
    examples = {split: [coreference_example(each, ids) for each in documents[split]] for split in SPLITS}

    torch.manual_seed(cfg.seed)
    objective = build_resolver(cfg, vocabulary)
    if cfg.init != "random":
        upstream.append(Path("outputs", cfg.init))
        inputs.append(require(upstream[-1] / "model.safetensors"))
        load_elmo(objective, inputs[-1])
    elif objective.model.elmo is not None:
        raise UsageError("init=random would leave the ELMo as it was drawn; give init= a cell: pretrain/grammar/elmo-1")
    if vectors:
        initialise_embedding(
            objective.model.embedding, vocabulary.known, list(vectors), np.stack(list(vectors.values()))
        )
    batches = BucketedDocuments(examples["train"], cfg.finetuning.batch_size, cfg.seed)

    def counts(predictions: list[Clusters], split: str) -> np.ndarray:
        pairs = zip(documents[split], predictions, strict=True)
        return np.stack([coreference_counts(each.clusters, found) for each, found in pairs])

    def validate(objective: torch.nn.Module) -> dict[str, float]:
        return coreference_metrics(counts(predict_clusters(objective, examples["validation"]), "validation"))

    with recorded(cfg, inputs, upstream, cfg.system, cfg.seed, corpus=cfg.task_name, task=cfg.task_name) as record:
        record.extra["words"] = len(vocabulary.known)
        record.extra["documents"] = {split: len(rows) for split, rows in documents.items()}
        best = None if cfg.patience is None else Best("validation/average_f1", cfg.patience)
        train(cfg, record, objective, batches, validate, best)
        with (record.folder / "documents.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "unit", "document", "part", *COLUMNS))
            for split in SPLITS[1:]:
                predictions = predict_clusters(objective, examples[split])
                found = counts(predictions, split)
                for unit, (each, row) in enumerate(zip(documents[split], found.tolist(), strict=True)):
                    writer.writerow((split, unit, each.name, each.part, *row))
                record.metrics |= {f"coreference/{split}/{name}": v for name, v in coreference_metrics(found).items()}
                response = [each._replace(clusters=c) for each, c in zip(documents[split], predictions, strict=True)]
                write_documents(record.folder / f"{split}.response.conll", response)
                if not task.inputs:  # there is no file that the scorer could hold them against
                    write_documents(record.folder / f"{split}.key.conll", documents[split])


def build_resolver(cfg: DictConfig, vocabulary: Vocabulary) -> Antecedents:
    """The objective on the model that `cfg` describes. UsageError for a model that ranks no antecedents."""
    if not asks(cfg.model, "unknown"):
        raise UsageError(
            f"{cfg.model._target_} does not read words by their spelling; write recipe=coreference/mention_ranker"
        )
    model = instantiate(cfg.model, _partial_=True)(vocab_size=len(vocabulary.known), words=vocabulary.words, unknown=0)
    return Antecedents(model)


def load_elmo(objective: Antecedents, path: Path) -> None:
    """Give the model's ELMo the weights of a cell's. UsageError where it has none, or they are those of another."""
    if objective.model.elmo is None:
        raise UsageError(
            "the model has no part that is pretrained; write init=random, or recipe=coreference/mention_ranker_elmo"
        )
    load_weights(objective.model.elmo, path, prefix="model.")


if __name__ == "__main__":
    resolve()
