from retable.data.spelling import Vocabulary


def test_words_seen_once_are_known_by_their_spelling_alone():
    vocabulary = Vocabulary.of_texts([["a", "b", "a"], ["c", "<unk>"]], [["d", "e"]], with_vectors={"e"})
    assert vocabulary.known == ["<unk>", "<eos>", "a", "e"] and vocabulary.vocab_size == 4
    assert vocabulary.words == ["<unk>", "<eos>", "a", "e", "b", "c", "d"]
    assert vocabulary.encode(["d", "a", "<unk>"]) == [6, 2, 0]
    assert vocabulary.sentence(["d", "a", "<unk>"]) == [1, 6, 2, 0, 1]
