"""Test that texts and summaries are split into sentences."""

import doctest

from retable.corpora.summaries import Summarised
from retable.data import summaries
from retable.data.summaries import in_sentences


def test_sentences_end_at_their_marks_and_at_line_ends():
    assert doctest.testmod(summaries).failed == 0
    text = 'He said "no!" Then it  rained. \n\n 3 p.m. passed\nend '
    (document,) = in_sentences([Summarised(text, "It rained. He")])
    assert document.text == ['He said "no!"', "Then it rained.", "3 p.m. passed", "end"]
    assert document.summary == ["It rained.", "He"]
