"""Zero-shot, one-shot and few-shot questions to a language model (Brown et al. 2020).

A prompt consists of examples with answers, followed by the question; all have the same template. The model's answer is
the most probable choice, or the choice that greedy generation writes.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, Seed
from retable.core.systems import System
from retable.evaluation.scoring import Scorer
from retable.metrics.labelled import Labelled
from retable.tokenizers.tokenizer import Tokenizer

MANY = 5  # maximum number of answers that a message lists


class Questions(Protocol):
    """A source of questions. A question has `fields`, `choices`, and `answer`, the index of the correct choice."""

    inputs: list[Path]

    def read(self) -> Sequence[Any]: ...


class Prompted(Labelled):
    """A benchmark of prompted questions. A unit is a question.

    Args:
        name: name of the task.
        tokens: the folder with the tokenizer that the system was trained with.
        template: text of a question, in which a field's name in braces stands for the field's value. A space and a
            choice follow this text.
        shots: number of examples before each question. A random generator with the seed (`seed`, number of the
            question) draws the examples from `examples`.
        description: text before the examples.
        separator: text between the description, the examples and the question.
        by: how the model answers. "likelihood" selects the most probable choice; "generation" selects the longest
            choice with which the greedy continuation begins, if there is such a choice.
        convention, sentinels: see `Scorer`; the convention is applied to the whole prompt.

    `inputs` lists the files that the scores depend on.
    """

    requires = System  # `Scorer` rejects systems that are not language models

    def __init__(
        self,
        name: str,
        tokens: str,
        questions: Questions,
        template: str,
        split: str = "validation",
        shots: NonNegativeInt = 0,
        examples: Questions | None = None,
        seed: Seed = 1,
        description: str = "",
        separator: str = "\n\n",
        by: Literal["likelihood", "generation"] = "likelihood",
        convention: Callable[[str], str] | None = None,
        sentinels: bool = False,
    ):
        if by not in ("likelihood", "generation"):
            raise UsageError(f"by={by} is unknown; write by=likelihood or by=generation")
        if shots and examples is None:
            raise UsageError(f"shots={shots} needs examples to draw from; write examples, or shots=0")
        self.questions, self.examples, self.template, self.split = questions, examples, template, split
        self.shots, self.seed, self.description, self.separator = shots, seed, description, separator
        self.by, self.convention, self.sentinels = by, convention, sentinels
        self.task = f"prompted_{name}_{shots}" + "_generated" * (by == "generation")
        self.inputs = [Path(tokens, "tokenizer.json"), *questions.inputs]
        self.inputs += examples.inputs if examples is not None and shots else []

    def __call__(self, system: System, folder: Path) -> dict[str, float]:
        """Write `units.csv` with one row per question, and return the metrics.

        Columns: split, unit, label and prediction (indices of the correct and the predicted answer). Scoring by
            likelihood adds the columns `accuracy_tokens` and `accuracy_bytes`: whether the answer is correct if each
            choice's log-probability is divided by the choice's number of tokens or bytes.

        Returns: `prompted_<name>_<shots>/<split>/<metric>` (with generation,
            `prompted_<name>_<shots>_generated/<split>/<metric>`). The metrics are `questions` (number of questions) and
            `accuracy`. Scoring by likelihood adds the means of `accuracy_tokens` and `accuracy_bytes`.
        """
        if not (questions := self.questions.read()):
            raise UsageError(f"{self.questions.inputs[0]} has no questions; write one question per row")
        scorer = Scorer(system, Tokenizer.load(self.inputs[0]), self.convention, self.sentinels)
        prompts = self.prompts(questions)
        places = np.repeat(np.arange(len(questions)), [len(question.choices) for question in questions])
        choices = [choice for question in questions for choice in question.choices]
        contexts, answers = scorer.encode([prompts[i] for i in places], [f" {choice}" for choice in choices])
        unknown = self._unknown(scorer, len(questions), choices, answers, places)
        right = np.array([question.answer for question in questions])
        otherwise = {}
        if self.by == "generation":
            chosen = _longest_continued(scorer, contexts, answers, places)
        else:
            log_probs = scorer.log_prob(contexts, answers)
            chosen = _best(log_probs, places)
            for unit, size in (("tokens", map(len, answers)), ("bytes", (len(choice.encode()) for choice in choices))):
                normalised = log_probs / np.maximum([*size], 1)
                otherwise[f"accuracy_{unit}"] = (_best(normalised, places) == right).astype(int)
        answered = [choice if choice >= 0 else "" for choice in chosen]
        columns = {"split": self.split, "unit": range(len(questions)), "label": right, "prediction": answered}
        units = pd.DataFrame(columns | otherwise)
        units.to_csv(folder / "units.csv", index=False, lineterminator="\n")
        if unknown:
            print(unknown, file=sys.stderr)
        metrics = {"questions": len(questions)} | self.values(units, ["accuracy", *otherwise])
        return {f"{self.task}/{self.split}/{metric}": value for metric, value in metrics.items()}

    def _unknown(
        self,
        scorer: Scorer,
        n_questions: int,
        choices: Sequence[str],
        answers: Sequence[Sequence[int]],
        places: np.ndarray,
    ) -> str:
        """Return a warning about answers with words outside the vocabulary, or "" if every word is known.

        All words outside the vocabulary have the same probability.

        Raises: UsageError: every question has an answer whose words are all unknown, so the probability of this answer
            is meaningless.
        """
        strange = [i for i, ids in enumerate(answers) if scorer.unknown in ids]
        if not strange:
            return ""
        words = [repr(choice) for choice in dict.fromkeys(choices[i] for i in strange)]
        more = f" and {len(words) - MANY} more" * (len(words) > MANY)
        lacks = f"the model's vocabulary lacks {', '.join(words[:MANY])}{more}"
        empty = [i for i in strange if {*answers[i]} == {scorer.unknown}]
        if len({*places[empty]}) == n_questions:
            raise UsageError(
                f"{lacks}, so each question of {self.questions.inputs[0]} has an answer of unknown words; write "
                "other words, or use a model whose vocabulary contains these words"
            )
        touched = len({*places[strange]})
        return f"{self.task}: {lacks}, or a word of it, for {touched} of {n_questions} questions"

    def prompts(self, questions: Sequence[Any]) -> list[str]:
        """Return the prompt of each question."""
        pool = self.examples.read() if self.examples is not None and self.shots else []
        if len(pool) < self.shots:
            raise UsageError(f"{self.examples.inputs[0]} has {len(pool)} examples; write shots={len(pool)} or fewer")  # type: ignore[union-attr]
        prompts = []
        for number, question in enumerate(questions):
            drawn = np.random.default_rng((self.seed, number)).choice(len(pool), self.shots, replace=False)
            shown = [f"{self._filled(pool[i])} {pool[i].choices[pool[i].answer]}" for i in drawn]
            parts = [self.description] if self.description else []
            prompts.append(self.separator.join([*parts, *shown, self._filled(question)]))
        return prompts

    def _filled(self, question: Any) -> str:
        try:
            return self.template.format(**question.fields)
        except (LookupError, AttributeError, ValueError) as error:
            fields, path = ", ".join(f"{{{name}}}" for name in question.fields), self.questions.inputs[0]
            raise UsageError(f"the template needs the field {error}, but questions in {path} have {fields}") from None


def _best(scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return, for each question, the index of the choice with the best score; on ties, the first.

    Args:
        scores: scores of all choices of all questions.
        places: the index of the question that each choice belongs to.
    """
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    return np.array([int(part.argmax()) for part in np.split(scores, starts[1:])])


def _longest_continued(
    scorer: Scorer, contexts: list[list[int]], answers: list[list[int]], places: np.ndarray
) -> np.ndarray:
    """Return, for each question, the longest choice with which the greedy continuation begins.

    Returns: the index of the choice for each question; −1 if the continuation begins with none of the choices.
    """
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    written = scorer.continue_greedily([contexts[start] for start in starts], max(map(len, answers)))
    chosen = np.full(len(starts), -1)
    for question, (start, text) in enumerate(zip(starts, written, strict=True)):
        longest = 0
        for choice, answer in enumerate(answers[start : start + np.count_nonzero(places == question)]):
            if len(answer) > longest and text[: len(answer)] == answer:
                chosen[question], longest = choice, len(answer)
    return chosen
