"""Reading comprehension: questions about paragraphs that contain the answers."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from retable.core.artifacts import write_json
from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt
from retable.corpora.overlap import Answered
from retable.corpora.squad import Question, read_squad
from retable.data import pairs, templates
from retable.data.batches import Batches
from retable.data.bucketed import Encoded, count_weight
from retable.data.questions import (
    PassageExample,
    QuestionExample,
    QuestionInWords,
    encoded,
    encoded_passages,
    in_words,
)
from retable.data.spelling import Vocabulary
from retable.metrics.answers import answer_scores
from retable.models.base import EncoderDecoder, Model, Reader, SpanRule
from retable.objectives.answer_as_text import AnswerAsText
from retable.objectives.answer_span import AnswerByRule, AnswerSpan, require_reader
from retable.objectives.base import Objective
from retable.tasks.base import Task, Text, require_no_predicate, require_spelling
from retable.tasks.reading import delimiter, ends_of_sequences, in_tokens
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer

PredictedAnswer = Sequence[int] | str  # context indices of the answer's first and last word; or the answer's text
SEED = 0  # seed for the random choice of held-out paragraphs; constant, so that all runs have the same split
Read = Callable[[Path], list[Question]]


class QuestionFiles:
    """Questions from a training file and a test file; the attribute `inputs` lists both files.

    The validation split consists of all questions about `held_out` random paragraphs of the training file. So no
    paragraph is used in both training and validation.

    Args:
        read_train, read_test: functions that read the questions of a file.
    """

    def __init__(
        self,
        train: str,
        test: str,
        held_out: NonNegativeInt,
        read_train: Read = read_squad,
        read_test: Read = read_squad,
    ):
        self.inputs = [Path(train), Path(test)]
        self._held_out, self._read = held_out, (read_train, read_test)

    def splits(self) -> dict[str, list[Question]]:
        """Return the questions of the splits train, validation and test.

        Raises: UsageError: a file is missing or malformed, or `held_out` is 0 or leaves no training paragraph.
        """
        train, test = (read(path) for read, path in zip(self._read, self.inputs, strict=True))
        contexts = list(dict.fromkeys(question.context for question in train))
        if not 0 < self._held_out < len(contexts):
            raise UsageError(
                f"task.questions.held_out={self._held_out} is out of range; write 1 to {len(contexts) - 1}, as "
                f"{self.inputs[0]} has {len(contexts)} paragraphs"
            )
        chosen = np.random.default_rng(SEED).permutation(len(contexts))[: self._held_out]
        held = {contexts[i] for i in chosen}
        return {
            "train": [question for question in train if question.context not in held],
            "validation": [question for question in train if question.context in held],
            "test": test,
        }


class Source(Protocol):
    """A source of questions, with a list of its files and the questions of each split."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[Question]]: ...


class QuestionTask(Task[QuestionInWords, PredictedAnswer]):
    """Extractive question answering.

    The unit of evaluation is a question, with the exact match and the F1 of the predicted answer.

    Three kinds of models are supported. Reading-comprehension models read the question and the whole paragraph as
    separate sequences of words, and read each word by its spelling. Encoders read the question and the paragraph as one
    sequence of tokens, and predict which words of the paragraph are the answer. The paragraph is shortened to fit; a
    question whose correct answer is cut off is evaluated, but not used for training. Encoder-decoders read one text and
    write the answer.

    questions: provides the questions of each split.
    convention: rewrites a word for pretrained vectors, see `retable.data.word_vectors.look_up`.
    """

    kind = "answers"
    in_order = True
    in_words = True
    metrics = ("exact_match", "f1")  # each metric is a mean over the questions, from 0 to 1
    selects = "f1"

    def __init__(self, questions: Source, convention: Callable[[str], str] | None = None):
        self.inputs, self.convention, self._source = questions.inputs, convention, questions

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_reader(model)
        require_no_predicate(d_predicate)
        if issubclass(model, Reader):
            require_spelling(model, "recipe=readers/bidaf")

    @cached_property
    def _questions(self) -> dict[str, list[QuestionInWords]]:
        return {split: in_words(rows) for split, rows in self._source.splits().items()}

    def examples(self, split: str) -> list[QuestionInWords]:
        return self._questions[split]

    def answered(self, example: QuestionInWords) -> Answered:
        question = (example.source.context, example.source.question)
        answers = frozenset(answer.text for answer in example.source.answers)
        return tuple(" ".join(text.split()) for text in question), answers

    def words(self, examples: Sequence[QuestionInWords]) -> list[list[str]]:
        """Return a list of words for each distinct paragraph, followed by a list of words for each question."""
        contexts = {each.source.context: each.context for each in examples}
        return [*contexts.values(), *(each.question for each in examples)]

    def objective(  # type: ignore[override]
        self, model: Model, text: Text, *, dropout: float, tie: bool = True
    ) -> Objective:
        """Return the objective with which the model is trained.

        Args:
            dropout: dropout probability of the states from which spans are predicted.
            tie: whether the output layer shares the input embedding, see `TextToText`; only used for models that write
                answers.
        """
        if isinstance(model, SpanRule):
            return AnswerByRule(model)
        if not isinstance(model, EncoderDecoder):
            return AnswerSpan(model, dropout)
        assert isinstance(text, Tokenizer)
        tokenizer, end = text, ends_of_sequences(model, text)[1]

        def read(ids: list[int]) -> str:
            return tokenizer.decode(ids[: ids.index(end)] if end in ids else ids).strip()

        table = model.input_embedding  # a checkpoint's embedding may have more rows than the tokenizer has tokens
        return AnswerAsText(model, text.vocab_size if table is None else table.num_embeddings, tie, read)

    def encode(self, model: Model, text: Text, examples: Sequence[QuestionInWords]) -> Encoded:
        if isinstance(model, SpanRule):
            lengths = np.array([len(each.context) for each in examples])
            return Encoded(lengths, lambda places: [examples[place] for place in places])
        if isinstance(model, EncoderDecoder):
            return _as_text(model, text, examples)
        if not isinstance(model, Reader):
            return _in_one_sequence(model, text, examples)
        assert isinstance(text, Vocabulary)
        return encoded(
            [
                # a question without words, such as "", is encoded as a single line end
                QuestionExample(
                    text.encode(each.context), text.encode(each.question or [END_OF_LINE]), each.first, each.last
                )
                for each in examples
            ]
        )

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Batches:
        """Return training batches of the questions whose answers are not cut off.

        Raises: UsageError: for all questions, the correct answer is cut off.
        """
        if encoded.trainable is not None and not len(encoded.trainable):
            raise UsageError(
                "the model's max_length cuts off the answers to all training questions; train a model with a "
                "greater max_length"
            )
        return super().batches(encoded, batch_size, seed)

    def units(self, examples: Sequence[QuestionInWords], predictions: Sequence[PredictedAnswer]) -> pd.DataFrame:
        right = {each.source.id: [answer.text for answer in each.source.answers] for each in examples}
        scores = answer_scores(answers_of(examples, predictions), right)
        columns = {"unit": range(len(right)), "id": [*right]}
        return pd.DataFrame(columns | {"exact_match": scores[:, 0].astype(int), "f1": scores[:, 1]})

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        return tuple(units["id"])

    def write(
        self, folder: Path, split: str, examples: Sequence[QuestionInWords], predictions: Sequence[PredictedAnswer]
    ) -> list[str]:
        """Write the predictions of the test split in SQuAD's format.

        Returns: an empty list, because the file is too large to view.
        """
        if split == "test":
            write_json(folder / "predictions.json", answers_of(examples, predictions))
        return []

    def facts(self, examples: Mapping[str, Sequence[QuestionInWords]]) -> dict[str, Any]:
        cannot = {split: sum(not each.can_be_answered() for each in rows) for split, rows in examples.items()}
        return {"cannot_be_answered": cannot}  # questions without a whole-word answer; scores include them


def _in_one_sequence(model: Model, text: Text, examples: Sequence[QuestionInWords]) -> Encoded:
    start, end = ends_of_sequences(model, text)
    between = delimiter(model, text)
    rows, truncated = [], 0
    for each in examples:
        question, context = in_tokens(text, each.question).ids, in_tokens(text, each.context)
        input_ids, begins = templates.question_first(question, context.ids, start, between, end, model.max_length)
        is_cut = len(input_ids) < len(question) + len(context.ids) + 3
        # In a shortened sequence, the token at the last index is the end mark, not a token of the context.
        stop = len(input_ids) - is_cut
        firsts = [begins + place for place in context.first if begins + place < stop]
        lasts = [min(begins + place, stop - 1) for place in context.last[: len(firsts)]]
        rows.append(PassageExample(input_ids, begins, firsts, lasts, each.first, each.last))
        truncated += is_cut
    return encoded_passages(rows, truncated)


def _as_text(model: Model, text: Text, examples: Sequence[QuestionInWords]) -> Encoded:
    assert isinstance(text, Tokenizer)
    end = ends_of_sequences(model, text)[1]
    prompts = [f"question: {each.source.question} context: {each.source.context}" for each in examples]
    answers = [each.source.answers[0].text for each in examples]
    sources, targets = ([[*ids, end] for ids in text.encode_batch(texts)] for texts in (prompts, answers))
    sizes = np.array([len(target) for target in targets])
    lengths = np.array([len(source) for source in sources])
    return Encoded(lengths, partial(pairs.pad, sources, targets), partial(count_weight, sizes))


def answers_of(examples: Sequence[QuestionInWords], predictions: Sequence[PredictedAnswer]) -> dict[str, str]:
    """Return a mapping from each question's id to the text of the predicted answer.

    Args:
        predictions: for each of `examples`, the predicted answer as text, or as the indices of its first and last word.
    """
    predicted = zip(examples, predictions, strict=True)
    return {each.source.id: answer if isinstance(answer, str) else each.text(*answer) for each, answer in predicted}
