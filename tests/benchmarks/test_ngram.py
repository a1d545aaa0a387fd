"""Test the generated text of the n-gram benchmark."""

import numpy as np

from benchmarks.ngram import RARE, Text, longer, spell


def test_longer_text_goes_on_as_the_shorter_does_but_for_rare_words():
    words = np.array([2, 3, 4, 1, 0] * 30 + [2, 3, 1, 0] * 30)  # id 1 is <unk>; id 0 ends a sentence
    made = longer(words, unknown=1, n_types=5, n_tokens=5_003)
    assert len(made) == 5_003 and made[-1] == words[-1]
    assert 1 not in made and made.max() < 5 + RARE
    assert len(np.unique(made[made >= 5])) > 500
    followers = made[1:][made[:-1] == 2]
    assert np.mean(followers == 3) > 0.9  # the other words come from a random place
    np.testing.assert_array_equal(made, longer(words, unknown=1, n_types=5, n_tokens=5_003))


def test_a_sentence_is_a_line(tmp_path):
    np.save(tmp_path / "tokens.npy", np.array([0, 1, 2, 1, 2], np.uint32))
    spell(Text(tmp_path / "tokens.npy", np.empty(0), ["a", "b", "</s>"]), tmp_path / "text")
    sentences = (tmp_path / "text").read_text().split("\n")
    assert [sentence.split() for sentence in sentences] == [["a", "b"], ["b"], []]
