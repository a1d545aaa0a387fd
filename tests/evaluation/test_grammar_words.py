import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.evaluation.grammar_words import spans, words_of
from retable.tokenizers import character, word


def test_units_and_line_ends_are_the_grammars():
    units = np.array([[3, 2, 9], [0, 0, 0], [2, 1, 4]])
    assert [list(range(5))[span] for span in spans(units)] == [[0, 1, 2], [], [3, 4]]
    tokenizer = word.train(["the cat", "sat"])
    words = words_of(tokenizer)
    assert words[tokenizer.boundary] == "\n"
    assert [words[token] for token in tokenizer.encode("the cat\nsat\n")] == ["the", "cat", "\n", "sat", "\n"]
    with pytest.raises(UsageError, match="tokenizer=word"):
        words_of(character.train(["the cat"]))
