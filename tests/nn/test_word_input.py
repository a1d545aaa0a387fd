import pytest
import torch

from retable.nn.character_cnn import spell
from retable.nn.word_input import WordInput, capitals, folded

WORDS = ["<unk>", "a", "dog", "barks", "zebra", "dogs"]  # the last two have no vectors


def layer(words: list[str] = WORDS, **settings) -> WordInput:
    torch.manual_seed(0)
    return WordInput(4, words, unknown=0, d_embedding=5, d_character=3, filters=[(1, 2), (3, 4)], **settings)


def test_a_words_vector_stands_before_its_characters():
    given = layer()
    output = given(torch.tensor([[2, 3], [2, 1]]))
    assert output.shape == (2, 2, 11) and given.d_output == 11
    assert torch.equal(output[0, 0], output[1, 0])
    assert torch.equal(output[0, 1, :5], given.embedding.weight[3])
    torch.testing.assert_close(output[0, 1, 5:], given.cnn(spell(["barks"], padding=3))[0])
    unknown, zebra, dogs = given(torch.tensor([0, 4, 5]))  # words outside the vocabulary share one vector
    assert torch.equal(zebra[:5], unknown[:5]) and torch.equal(dogs[:5], unknown[:5])
    assert not torch.equal(zebra[5:], dogs[5:])


def test_words_that_differ_in_case_alone_share_a_vector_and_keep_their_characters():
    words = ["<unk>", "The", "dog", "the", "Dog", "THE", "Cat", "cat"]  # the last four have no vectors
    assert folded(words).tolist() == [0, 1, 2, 1, 2, 1, 6, 6]
    assert folded(["Masse", "Maße", "masse", "maße"]).tolist() == [0, 1, 0, 1]  # the upper case of ß is SS
    given = layer(words, folds_case=True)
    output = given(torch.arange(8))
    for place, row in enumerate((0, 1, 2, 1, 2, 1, 0, 0)):
        assert torch.equal(output[place, :5], given.embedding.weight[row])
    assert len({tuple(row) for row in output[:, 5:].tolist()}) == 8


def test_the_longest_words_of_others_change_nothing():
    """Word 0 is long. If it is not in the batch, its additional columns in the table are not convolved."""
    words = ["x" * 40, "a", "bc", "def"]
    given = WordInput(2, words, 1, 3, 4, [(1, 5), (3, 5)])
    torch.nn.init.normal_(given.cnn.filters[0].bias)
    ids = torch.tensor([1, 2, 3])
    torch.testing.assert_close(given(ids), given(torch.tensor([0, 1, 2, 3]))[1:])


@pytest.mark.parametrize(
    ("word", "kind"), [("dog", 0), ("3-day", 0), ("42", 0), ("USA", 1), ("U.S.", 1), ("A", 1), ("Dog", 2), ("McKay", 2),
                       ("eBay", 3)],
)  # fmt: skip
def test_capitals_of_a_word(word, kind):
    assert capitals(word) == kind


def test_capitals_have_vectors_and_characters_may_be_left_out():
    torch.manual_seed(0)
    given = WordInput(4, ["<unk>", "The", "the", "THE"], 0, d_embedding=5, folds_case=True, d_capitals=2)
    output = given(torch.tensor([1, 2, 3]))
    assert output.shape == (3, 7) == (3, given.d_output) and given.cnn is None
    assert torch.equal(output[:, :5], given.embedding.weight[[1, 1, 1]])
    assert torch.equal(output[:, 5:], given.capitals.weight[[2, 0, 1]])
