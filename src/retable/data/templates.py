"""Input layouts: turn a sentence, or a pair of sentences a and b, into model inputs.

    apart          start a end, and start b end: two sequences, for encoders of single sentences
    in segments    [CLS] a [SEP] b [SEP]; b and its [SEP] are segment 1 (Devlin et al. 2019, figure 3)
    left to right  start a delimiter b extract (Radford et al. 2018, figure 1); if the order of a pair has no meaning,
                   a second sequence, start b delimiter a extract, is added
    question first  start question delimiter passage end, for every kind of model; for BERT this is
                   [CLS] question [SEP] passage [SEP] (Devlin et al. 2019, section 4.2)
    as text        a end, where a is the whole example as one text, see `prompt`

Examples that are too long for a model lose tokens at the end. In a pair, tokens are removed from the longer sentence,
or from the second sentence if both are equally long, as in BERT's code. A passage is shortened before its question; the
question is shortened only if it needs more than half of the available tokens.
"""

from collections.abc import Mapping, Sequence

from retable.core.errors import UsageError
from retable.data.examples import Inputs

Sentences = tuple[list[int], ...]  # the token ids of one sentence, or of the two sentences of a pair


def apart(examples: Sequence[Sentences], start: int, end: int, max_length: int | None = None) -> Inputs:
    """Put each sentence into a separate sequence, between `start` and `end`."""
    room = None if max_length is None else max_length - 2
    shorter = [tuple(_truncated((sentence,), room)[0] for sentence in sentences) for sentences in examples]
    sides = [[[start, *sentence, end] for sentence in side] for side in zip(*shorter, strict=True)]
    return Inputs(sides[0], sides[1] if len(sides) > 1 else None, truncated=_differ(examples, shorter))


def between(tokens: Sequence[int], start: int, end: int, max_length: int | None = None) -> list[int]:
    """Return the tokens of one sentence between `start` and `end`."""
    (shorter,) = _truncated((list(tokens),), None if max_length is None else max_length - 2)
    return [start, *shorter, end]


def in_segments(examples: Sequence[Sentences], cls: int, sep: int, max_length: int | None = None) -> Inputs:
    """Lay out single sentences or pairs for BERT; the second sentence of a pair is segment 1."""
    is_pair = len(examples[0]) == 2
    room = None if max_length is None else max_length - 2 - is_pair
    shorter = [_truncated(sentences, room) for sentences in examples]
    sequences = [[cls, *(i for sentence in sentences for i in (*sentence, sep))] for sentences in shorter]
    segments = [len(sentences[0]) + 2 for sentences in shorter] if is_pair else None
    return Inputs(sequences, segments=segments, truncated=_differ(examples, shorter))


def left_to_right(
    examples: Sequence[Sentences],
    start: int,
    delimiter: int,
    extract: int,
    max_length: int | None = None,
    both_orders: bool = False,
) -> Inputs:
    """Lay out sentences for GPT; with `both_orders`, each pair gets a second sequence with the sentences exchanged."""
    is_pair = len(examples[0]) == 2
    room = None if max_length is None else max_length - 2 - is_pair
    shorter = [_truncated(sentences, room) for sentences in examples]

    def sequence(first: list[int], *second: list[int]) -> list[int]:
        return [start, *first, *(i for sentence in second for i in (delimiter, *sentence)), extract]

    others = [sequence(*sentences[::-1]) for sentences in shorter] if is_pair and both_orders else None
    sequences = [sequence(*sentences) for sentences in shorter]
    return Inputs(sequences, others, truncated=_differ(examples, shorter))


def question_first(
    question: list[int], passage: list[int], start: int, delimiter: int, end: int, max_length: int | None = None
) -> tuple[list[int], int]:
    """Lay out a question and its passage; return the sequence and the index where the passage begins.

    A question is cut to half of the available tokens, or to the tokens that the passage does not need, if more.
    """
    if max_length is not None:
        room = max_length - 3
        (question,) = _truncated((question,), max(room // 2, room - len(passage)))
        (passage,) = _truncated((passage,), room - len(question))
    return [start, *question, delimiter, *passage, end], len(question) + 2


def prompt(task: str, texts: Mapping[str, str]) -> str:
    """Write an example as one text: the task's name, then each field as `name: text` (Raffel et al. 2020, section 2.4).

    >>> prompt("qnli", {"question": "Where did Jebe die?", "sentence": "Jebe died on the road."})
    'qnli question: Where did Jebe die? sentence: Jebe died on the road.'
    """
    return " ".join([task, *(f"{name}: {text}" for name, text in texts.items())])


def as_text(examples: Sequence[Sentences], end: int) -> Inputs:
    """Turn each text into the sequence of its tokens followed by `end`."""
    return Inputs([[*text, end] for (text,) in examples])


def _truncated(sentences: Sentences, room: int | None) -> Sentences:
    """Shorten the sentences of an example until their total length is at most `room` tokens."""
    if room is None or sum(map(len, sentences)) <= room:
        return sentences
    if room < len(sentences):
        raise UsageError(
            "the model's max_length leaves no room for a sentence; train a model with a greater max_length"
        )
    lengths = [len(sentence) for sentence in sentences]
    while sum(lengths) > room:
        lengths[max(range(len(lengths)), key=lambda i: (lengths[i], i))] -= 1
    return tuple(sentence[:length] for sentence, length in zip(sentences, lengths, strict=True))


def _differ(examples: Sequence[Sentences], shorter: Sequence[Sentences]) -> int:
    return sum(whole != cut for whole, cut in zip(examples, shorter, strict=True))
