import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.evaluation.grammar_words import spans, words_of
from retable.tokenizers import character, word


def test_each_unit_stands_behind_the_one_before():
    units = np.array([[3, 2, 9], [0, 0, 0], [2, 1, 4]])
    assert [list(range(5))[span] for span in spans(units)] == [[0, 1, 2], [], [3, 4]]


def test_a_lines_end_is_called_as_the_grammar_calls_it():
    tokenizer = word.train(["the cat", "sat"])
    words = words_of(tokenizer)
    assert words[tokenizer.boundary] == "\n"
    assert [words[token] for token in tokenizer.encode("the cat\nsat\n")] == ["the", "cat", "\n", "sat", "\n"]


def test_tokens_that_are_no_words_are_refused():
    with pytest.raises(UsageError, match="tokenizer=word"):
        words_of(character.train(["the cat"]))
