"""Questions on paragraphs whose answers are spans of them."""

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
from retable.data import layouts, pairs
from retable.data.batches import Batches
from retable.data.bucketed import Encoded, weigh_by
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

Found = Sequence[int] | str  # the places of an answer's first and last word, or what was written
SEED = 0  # of the paragraphs that are held out: the same for all that train, whatever their seed
Read = Callable[[Path], list[Question]]


class QuestionFiles:
    """A file to train on, of which `held_out` random paragraphs with all their questions are for validation, and one to
    test on; `inputs` are the two. No paragraph is in both training and validation.

    read_train, read_test: make questions of a path.
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
        """The questions of train, validation and test. UsageError for a file that is missing or can't be read."""
        train, test = (read(path) for read, path in zip(self._read, self.inputs, strict=True))
        contexts = list(dict.fromkeys(question.context for question in train))
        if not 0 < self._held_out < len(contexts):
            raise UsageError(
                f"task.questions.held_out={self._held_out} is how many of the {len(contexts)} paragraphs of "
                f"{self.inputs[0]} are not trained on; write one or more, and leave some"
            )
        chosen = np.random.default_rng(SEED).permutation(len(contexts))[: self._held_out]
        held = {contexts[i] for i in chosen}
        return {
            "train": [question for question in train if question.context not in held],
            "validation": [question for question in train if question.context in held],
            "test": test,
        }


class Source(Protocol):
    """Questions by split, and the files that they come from."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[Question]]: ...


class QuestionTask(Task[QuestionInWords, Found]):
    """Where in a paragraph does the answer to a question stand? A unit is a question, with its exact match and F1.

    A reader reads the two apart, whole and by the spelling of their words; an encoder in one sequence, by its tokens.
    Of that what does not fit is cut from the paragraph's end: an answer is predicted among the words that are left, and
    a question whose own answer is cut away is asked, but not trained on. An encoder-decoder reads both as one text, and
    writes the answer.
    """

    kind = "answers"
    in_order = True
    in_words = True
    metrics = ("exact_match", "f1")  # the means over the questions, as shares
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
        asked = (example.source.context, example.source.question)
        answers = frozenset(answer.text for answer in example.source.answers)
        return tuple(" ".join(text.split()) for text in asked), answers

    def words(self, examples: Sequence[QuestionInWords]) -> list[list[str]]:
        """Each paragraph once, and the questions."""
        contexts = {each.source.context: each.context for each in examples}
        return [*contexts.values(), *(each.question for each in examples)]

    def objective(  # type: ignore[override]
        self, model: Model, text: Text, *, dropout: float, tie: bool = True
    ) -> Objective:
        """The settings of a head; `tie` is of a model that writes, see `TextToText`."""
        if isinstance(model, SpanRule):
            return AnswerByRule(model)
        if not isinstance(model, EncoderDecoder):
            return AnswerSpan(model, dropout)
        assert isinstance(text, Tokenizer)
        tokenizer, end = text, ends_of_sequences(model, text)[1]

        def read(found: list[int]) -> str:
            return tokenizer.decode(found[: found.index(end)] if end in found else found).strip()

        table = model.input_embedding  # a checkpoint's may have rows behind those of the tokenizer
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
                # a question without a word, such as "", is an end of line alone
                QuestionExample(
                    text.encode(each.context), text.encode(each.question or [END_OF_LINE]), each.first, each.last
                )
                for each in examples
            ]
        )

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Batches:
        """Of the questions whose answers are in what the model reads. UsageError where those are none."""
        if encoded.taught is not None and not len(encoded.taught):
            raise UsageError(
                "the model's max_length cuts off the answers to all questions of training; train a model with a "
                "greater one"
            )
        return super().batches(encoded, batch_size, seed)

    def units(self, examples: Sequence[QuestionInWords], predictions: Sequence[Found]) -> pd.DataFrame:
        right = {each.source.id: [answer.text for answer in each.source.answers] for each in examples}
        scores = answer_scores(answers_of(examples, predictions), right)
        columns = {"unit": range(len(right)), "id": [*right]}
        return pd.DataFrame(columns | {"exact_match": scores[:, 0].astype(int), "f1": scores[:, 1]})

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        return tuple(units["id"])

    def write(
        self, folder: Path, split: str, examples: Sequence[QuestionInWords], predictions: Sequence[Found]
    ) -> list[str]:
        """SQuAD's own format of predictions, of the test split."""
        if split == "test":
            write_json(folder / "predictions.json", answers_of(examples, predictions))
        return []

    def facts(self, examples: Mapping[str, Sequence[QuestionInWords]]) -> dict[str, Any]:
        cannot = {split: sum(not each.can_be_answered() for each in rows) for split, rows in examples.items()}
        return {"cannot_be_answered": cannot}  # with whole words; such a question is asked, and counts, all the same


def _in_one_sequence(model: Model, text: Text, examples: Sequence[QuestionInWords]) -> Encoded:
    start, end = ends_of_sequences(model, text)
    between = delimiter(model, text)
    rows, shortened = [], 0
    for each in examples:
        question, context = in_tokens(text, each.question).ids, in_tokens(text, each.context)
        input_ids, begins = layouts.question_first(question, context.ids, start, between, end, model.max_length)
        is_cut = len(input_ids) < len(question) + len(context.ids) + 3
        # The end stands where the first token that was cut did.
        behind = len(input_ids) - is_cut
        firsts = [begins + place for place in context.first if begins + place < behind]
        lasts = [min(begins + place, behind - 1) for place in context.last[: len(firsts)]]
        rows.append(PassageExample(input_ids, begins, firsts, lasts, each.first, each.last))
        shortened += is_cut
    return encoded_passages(rows, shortened)


def _as_text(model: Model, text: Text, examples: Sequence[QuestionInWords]) -> Encoded:
    assert isinstance(text, Tokenizer)
    end = ends_of_sequences(model, text)[1]
    prompts = [f"question: {each.source.question} context: {each.source.context}" for each in examples]
    answers = [each.source.answers[0].text for each in examples]
    sources, targets = ([[*ids, end] for ids in text.encode_batch(texts)] for texts in (prompts, answers))
    sizes = np.array([len(target) for target in targets])
    lengths = np.array([len(source) for source in sources])
    return Encoded(lengths, partial(pairs.pad, sources, targets), partial(weigh_by, sizes))


def answers_of(examples: Sequence[QuestionInWords], predictions: Sequence[Found]) -> dict[str, str]:
    """The answers by the questions' ids: as their paragraphs write them, or as they were written."""
    asked = zip(examples, predictions, strict=True)
    return {each.source.id: found if isinstance(found, str) else each.text(*found) for each, found in asked}
