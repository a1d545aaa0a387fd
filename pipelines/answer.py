"""Questions on paragraphs → a reader that answers them: `python -m pipelines.answer recipe=readers/bidaf`."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import asks
from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require, write_json
from retable.corpora.text import SPLITS
from retable.data.questions import BucketedQuestions, QuestionExample, QuestionInWords, in_words
from retable.data.tagged import Vocabulary
from retable.data.word_vectors import vectors_of
from retable.errors import UsageError
from retable.evaluation.answering import predict_answers
from retable.metrics.answers import answer_metrics, answer_scores
from retable.models.word2vec_format import read_word2vec
from retable.nn.embedding import initialise_embedding
from retable.objectives.answer_span import AnswerSpan
from retable.tokenizers.tokenizer import END_OF_LINE
from retable.training.progress import Best


@stage
def answer(cfg: DictConfig) -> None:
    task = instantiate(cfg.answering.questions)
    questions = {split: in_words(rows) for split, rows in task.splits().items()}
    right = {
        split: {each.source.id: [answer.text for answer in each.source.answers] for each in rows}
        for split, rows in questions.items()
    }

    inputs = list(map(require, task.inputs))
    texts = {split: texts_of(rows) for split, rows in questions.items()}
    vectors: dict[str, np.ndarray] = {}
    if cfg.embedding != "random":
        inputs.append(require(Path(cfg.embedding)))
        words = (word for split in SPLITS for text in texts[split] for word in text)
        vectors = vectors_of(words, *read_word2vec(inputs[-1]), instantiate(cfg.answering.convention) or str)
    vocabulary = Vocabulary(texts["train"], [*texts["validation"], *texts["test"]], vectors)
    ids = {word: i for i, word in enumerate(vocabulary.words)}
    examples = {split: [example(each, ids) for each in rows] for split, rows in questions.items()}

    torch.manual_seed(cfg.seed)
    objective = build_reader(cfg, vocabulary)
    if vectors:
        initialise_embedding(
            objective.model.embedding, vocabulary.known, list(vectors), np.stack(list(vectors.values()))
        )
    batches = BucketedQuestions(examples["train"], cfg.finetuning.batch_size, cfg.seed)

    def predict(objective: torch.nn.Module, split: str) -> dict[str, str]:
        return predict_answers(objective, questions[split], examples[split])

    def validate(objective: torch.nn.Module) -> dict[str, float]:
        return answer_metrics(predict(objective, "validation"), right["validation"])

    with recorded(cfg, inputs, [], cfg.system, cfg.seed, corpus=cfg.task_name, task=cfg.task_name) as record:
        record.extra["words"] = len(vocabulary.known)
        record.extra["questions"] = {split: len(rows) for split, rows in questions.items()}
        record.extra["cannot_be_answered"] = {  # with whole words; such a question is asked, and counts, all the same
            split: sum(not each.can_be_answered() for each in rows) for split, rows in questions.items()
        }
        best = None if cfg.patience is None else Best("validation/f1", cfg.patience)
        train(cfg, record, objective, batches, validate, best)
        with (record.folder / "questions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "unit", "id", "exact_match", "f1"))
            for split in SPLITS[1:]:
                predictions = predict(objective, split)
                scores = answer_scores(predictions, right[split])
                rows = zip(right[split], scores.tolist(), strict=True)
                writer.writerows((split, unit, id, int(match), f1) for unit, (id, (match, f1)) in enumerate(rows))
                metrics = answer_metrics(predictions, right[split])
                record.metrics |= {f"answers/{split}/{name}": value for name, value in metrics.items()}
        write_json(record.folder / "predictions.json", predictions)  # those of the test split


def build_reader(cfg: DictConfig, vocabulary: Vocabulary) -> AnswerSpan:
    """The objective on the model that `cfg` describes. UsageError for a model that is no reader."""
    if not asks(cfg.model, "unknown"):
        raise UsageError(f"{cfg.model._target_} does not read words by their spelling; write recipe=readers/bidaf")
    model = instantiate(cfg.model, _partial_=True)(vocab_size=len(vocabulary.known), words=vocabulary.words, unknown=0)
    return AnswerSpan(model, cfg.dropout)


def texts_of(questions: Iterable[QuestionInWords]) -> list[list[str]]:
    """The texts that a reader learns words from: each paragraph once, and the questions."""
    contexts = {each.source.context: each.context for each in questions}
    return [*contexts.values(), *(each.question for each in questions)]


def example(question: QuestionInWords, ids: dict[str, int]) -> QuestionExample:
    """A question as the reader reads it; one without a word, such as "", is an end of line alone."""
    asked = [ids[word] for word in question.question or [END_OF_LINE]]
    return QuestionExample([ids[word] for word in question.context], asked, question.first, question.last)


if __name__ == "__main__":
    answer()
