import json

import pytest

from retable.core.errors import UsageError
from retable.data.spelling import Vocabulary


def test_words_seen_once_are_known_by_their_spelling_alone():
    vocabulary = Vocabulary.of_texts([["a", "b", "a"], ["c", "<unk>"]], [["d", "e"]], with_vectors={"e"})
    assert vocabulary.known == ["<unk>", "<eos>", "a", "e"] and vocabulary.vocab_size == 4
    assert vocabulary.words == ["<unk>", "<eos>", "a", "e", "b", "c", "d"]
    assert vocabulary.encode(["d", "a", "<unk>"]) == [6, 2, 0]
    assert vocabulary.sentence(["d", "a", "<unk>"]) == [1, 6, 2, 0, 1]


def test_it_comes_back_from_its_file_and_from_no_other(tmp_path):
    vocabulary, path = Vocabulary.of_texts([["é", "b", "é"]], [["日本"]]), tmp_path / "words.json"
    vocabulary.save(path)
    again = Vocabulary.load(path)
    assert (again.known, again.words, again.vocab_size) == (vocabulary.known, vocabulary.words, 3)
    assert again.encode(["日本", "é"]) == vocabulary.encode(["日本", "é"])
    saved = path.read_bytes()
    again.save(path)
    assert path.read_bytes() == saved and "日本".encode() in saved
    for damage in ("", "[]", json.dumps({"words": ["a"]})):
        path.write_text(damage)
        with pytest.raises(UsageError, match=r"words\.json"):
            Vocabulary.load(path)
