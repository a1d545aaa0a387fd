"""Questions on passages of the embedded language, each answered by a span: who does what to whom, and when.

A question is a proposition of the passage with one of its roles asked for (as in QA-SRL: He, Lewis and Zettlemoyer
2015, EMNLP): "who" and the verb with what it is done to, "which" and who acts with the verb, "when" and both, in the
sentence's order. The passages are new, of streams of their own, and the answers are those of the program that tells
them, so they are certain. Where the passage says a thing twice, each answer is right.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count, groupby
from pathlib import Path

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.corpora.columns import TaggedSentence
from retable.corpora.squad import Answer, Question
from retable.corpora.text import SPLITS
from retable.grammar.interpreters import Sampler
from retable.grammar.language import Grammar, Uniform, Words, uniforms
from retable.grammar.roles import Teller
from retable.grammar.tables import N_LATENTS
from retable.metrics.spans import Chunk, chunks

SENTENCES = 3  # of a passage
ASKED = {"A0": "who", "A1": "which", "AM-TMP": "when"}  # role: the word that asks for it, which the language has
TOLD = {"A0": ("V", "A1"), "A1": ("A0", "V"), "AM-TMP": ("A0", "V", "A1")}  # role: what the question then says


class GrammarQuestions:
    """Questions of each split, a role of each proposition of a passage; `inputs` are none: the language is in the code.

    seed: of all streams; each split has its own.
    questions: split → how many.
    scale, lexicon: see `Grammar`.
    """

    def __init__(
        self, seed: Seed, questions: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
    ):
        if set(questions) != set(SPLITS) or min(questions.values()) < 1:
            sizes = ", ".join(SPLITS)
            raise UsageError(f"questions is {dict(questions)}; give a number of 1 at least to each of {sizes}")
        self.inputs: list[Path] = []
        self._seed, self._questions, self._grammar = seed, questions, Grammar(scale, lexicon)

    def splits(self) -> dict[str, list[Question]]:
        """The questions of train, validation and test."""
        return {split: self._of(split) for split in SPLITS}

    def _of(self, split: str) -> list[Question]:
        found: list[Question] = []
        for index in count():
            if len(found) >= self._questions[split]:
                break
            uniform = uniforms(self._seed, f"questions/{split}", index)
            teller = Teller(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
            teller.document()
            for start, passage in enumerate(_passages(teller.told)):
                found += _asked(passage, f"{split}-{index}-{start}", uniform)
        return found[: self._questions[split]]


def _passages(told: list[TaggedSentence]) -> Iterator[list[list[TaggedSentence]]]:
    """The sentences of a document by threes, each as often as it has verbs."""
    sentences = [list(same) for _, same in groupby(told, key=lambda sentence: id(sentence.words))]
    for start in range(0, len(sentences), SENTENCES):
        yield sentences[start : start + SENTENCES]


def _asked(passage: list[list[TaggedSentence]], name: str, uniform: Uniform) -> Iterator[Question]:
    context = " ".join(word for same in passage for word in same[0].words)
    answers: dict[str, dict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))  # by verb, and by question
    begin = 0
    for same in passage:
        words = same[0].words
        for sentence in same:
            parts = {chunk.type: chunk for chunk in chunks(sentence.tags)}
            for role, question_word in ASKED.items():
                if role in parts and set(TOLD[role]) - {"A1"} <= set(parts):
                    said = sorted((parts[part] for part in TOLD[role] if part in parts), key=lambda part: part.start)
                    question = " ".join([question_word, *(_text(words, part) for part in said), "?"])
                    start = begin + len("".join(f"{word} " for word in words[: parts[role].start]))
                    answer = Answer(_text(words, parts[role]), start)
                    answers[f"{begin}-{sentence.predicate}"][question].append(answer)
        begin += len(" ".join(words)) + 1
    right: dict[str, list[Answer]] = defaultdict(list)
    for questions in answers.values():
        for question, own in questions.items():
            right[question] += own
    for verb, questions in answers.items():
        question = [*questions][int(uniform() * len(questions))]
        first = questions[question][0]
        others = [answer for answer in right[question] if answer != first]
        yield Question(f"{name}-{verb}", "", context, question, [first, *others])


def _text(words: list[str], chunk: Chunk) -> str:
    return " ".join(words[chunk.start : chunk.end])
