"""Test rules that find answers against loops written from the papers."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from retable.corpora.squad import Answer, Question
from retable.data.questions import QuestionInWords, in_words
from retable.grammar.questions import GrammarQuestions
from retable.metrics.answers import exact_match, word_f1
from retable.models.span_rules import FUNCTION_WORDS, RandomSpan, RightSpan, SlidingWindow, candidates

LONGEST = 3
CONTENT = [f"w{k}" for k in range(7)]


def asked(context: str, question: str, *answers: str) -> QuestionInWords:
    right = [Answer(text, context.index(text)) for text in answers or context.split()[:1]]
    (found,) = in_words([Question("q", "", context, question, right)])
    return found


def random_questions(n: int) -> list[QuestionInWords]:
    generator = np.random.default_rng(0)
    words = [*CONTENT, *CONTENT, "the", "of", ","]

    def text(length: int) -> str:
        return " ".join(generator.choice(words, length))

    return [asked(f"{text(9)} w0 . {text(7)} . {text(5)} w1 .", f"{text(5)} ?") for _ in range(n)]


def test_candidates_are_all_short_runs_within_a_sentence_between_words_of_content():
    for each in random_questions(20):
        ends = [place for place, word in enumerate(each.context) if word == "."]
        expected = [
            (first, last)
            for first, last in product(range(len(each.context)), repeat=2)
            if first <= last < first + LONGEST
            and {each.context[first], each.context[last]} <= {*CONTENT}
            and not any(first <= end < last for end in ends)
        ]
        found = list(candidates(each.context, each.sentences(), LONGEST))
        assert [each[:2] for each in found] == expected
        for one in found:
            assert one.end - 1 in ends and (one.begin == 0 or one.begin - 1 in ends)
            assert not any(one.begin <= end < one.end - 1 for end in ends)
    assert {"the", "of"} <= FUNCTION_WORDS


def test_a_passage_without_words_of_content_has_candidates():
    assert len(list(candidates(["the", ",", "of"], [(0, 3)], 2))) == 5


def test_the_sliding_window_equals_the_papers_steps_written_out():
    """Candidates are in the sentence that, without them, shares most unigrams and bigrams with the question
    (Rajpurkar et al.).

    Among these, algorithm 1 of Richardson et al. chooses, word by word in this sentence.
    """

    def paths(words: list[str]) -> set[tuple[str, ...]]:
        return {(word,) for word in words} | {(words[k], words[k + 1]) for k in range(len(words) - 1)}

    for each in random_questions(60):
        question = [word for word in each.question if word not in "?,"]
        P = each.context
        C = Counter(P)
        found = list(candidates(P, each.sentences(), LONGEST))
        overlaps, scores = [], []
        for first, last, begin, end in found:
            around = paths(P[begin:first]) | paths(P[last + 1 : end])
            overlaps.append(len(around & paths(question)))
            S = set(P[first : last + 1]) | set(question)
            sums = []
            for j in range(begin, end):
                total = 0.0
                for w in range(len(S)):
                    if j + w < end and P[j + w] in S:
                        total += math.log(1 + 1 / C[P[j + w]])
                sums.append(total)
            scores.append(max(sums))
        kept = [k for k in range(len(found)) if overlaps[k] == max(overlaps)]
        first, last = SlidingWindow(LONGEST).find(each)
        chosen = [k for k in kept if found[k][:2] == (first, last)]
        assert len(chosen) == 1 and scores[chosen[0]] == pytest.approx(max(scores[k] for k in kept))


def test_a_random_span_is_any_candidate_alike_and_the_same_for_a_seed():
    each, n = random_questions(1)[0], 4000
    found = [one[:2] for one in candidates(each.context, each.sentences(), LONGEST)]
    drawn = Counter(RandomSpan(seed, LONGEST).find(each) for seed in range(n))
    assert set(drawn) == set(found)
    expected = n / len(found)
    chi_squared = sum((drawn[one] - expected) ** 2 / expected for one in found)
    assert chi_squared < len(found) + 4 * math.sqrt(2 * len(found))
    assert RandomSpan(5, LONGEST).find(each) == RandomSpan(5, LONGEST).find(each)
    others = random_questions(40)
    assert len({RandomSpan(1, LONGEST).find(other) for other in others}) > 10


def test_the_right_span_is_a_right_answer_where_one_is_of_whole_words():
    whole = asked("Mayor May spoke in 1969.", "Who?", "ayor", "May spoke")
    assert whole.text(*RightSpan().find(whole)) == "May spoke"
    half = asked("Mayor Maynard spoke.", "Who?", "ayor", "nard")
    assert half.text(*RightSpan().find(half)) == "Mayor"


@pytest.mark.parametrize("lexicon", ["invented", "english"])
def test_the_grammars_questions_can_all_be_answered(lexicon):
    splits = GrammarQuestions(1, {"train": 200, "validation": 20, "test": 20}, 0.1, lexicon).splits()
    for each in in_words(splits["train"]):
        answer, right = each.text(*RightSpan().find(each)), [text for text, _ in each.source.answers]
        assert exact_match(answer, right) and word_f1(answer, right) == 1


def test_sentences_end_where_the_next_begins():
    def sentences(context: str) -> list[str]:
        each = asked(context, "?")
        return [" ".join(each.context[begin:end]) for begin, end in each.sentences()]

    assert sentences("He paid $1.5m. He left! “Why?” Nobody knew.") == [
        "He paid $ 1 . 5m .", "He left !", "“ Why ? ”", "Nobody knew ."
    ]  # fmt: skip
    assert sentences("the dog barks . the cat sleeps .") == ["the dog barks .", "the cat sleeps ."]
    assert sentences("approx. three of them") == ["approx . three of them"]
