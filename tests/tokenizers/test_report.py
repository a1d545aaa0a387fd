import numpy as np
import pytest

from retable.tokenizers import byte_bpe, character, report, unigram, word, wordpiece

UNITS = [["the cat sat", "the dog"], ["a cat"]]
LINES = [line for lines in UNITS for line in lines]


def test_the_unknown_token_is_found_in_every_model():
    words = word.train(LINES)
    pieces = wordpiece.train(LINES, vocab_size=40, lowercase=True)
    best = unigram.train(LINES, vocab_size=120)
    assert words.words[words.unknown] == best.words[best.unknown] == "<unk>"
    assert pieces.words[pieces.unknown] == "[UNK]"
    assert byte_bpe.train(LINES, 260).unknown is character.train(LINES).unknown is None


def test_coverage_by_hand():
    tokenizer = word.train(["the cat", "a"])
    found = report.coverage(tokenizer, UNITS, documents=True)
    # 7 words, 3 line ends and 2 blank lines, each a token; sat and dog are unknown; the, cat and a are single tokens.
    expected = {"words": 12, "types": 5, "whole": 3 / 5, "fertility": 1, "unknown": 2 / 12, "unk_in_text": 0}
    expected |= {"compression": (12 + 8 + 1 + 6 + 1) / 12, "lost": (len("sat") + len("dog")) / 28}
    assert found == pytest.approx(expected)
    assert report.coverage(tokenizer, [[""]], documents=False)["whole"] == 0


@pytest.mark.parametrize("name", ["<unk>", "rare"])
def test_words_that_the_vocabulary_lacks_are_counted_apart_from_the_texts_own_mark(name):
    train, test = [f"the cat {name} sat", "a cat"], [[f"the dog {name} sat"], [f"{name} {name} mat"]]
    found = report.coverage(word.train(train), test, documents=False)
    assert found["unknown"] == 2 / 9 and found["unk_in_text"] == (3 / 9 if name == "<unk>" else 0)
    assert found["lost"] == len("dogmat") / sum(len(line) + 1 for (line,) in test)


@pytest.mark.real
def test_unknown_words_are_those_that_kenlm_counts(data_dir):
    """257 of 1,005 tokens are unknown, as KenLM's `query` printed for each sentence."""
    folder = data_dir / "kenlm_reference"
    train, test = ((folder / f"{split}.txt").read_text().splitlines() for split in ("train", "test"))
    tokenizer, expected = word.train(train), np.loadtxt(folder / "scores.o3.tsv")[:, 1]
    counts = [report.coverage(tokenizer, [[line]], documents=False) for line in test]
    assert [round(each["unknown"] * each["words"]) for each in counts] == expected.tolist() and expected.sum() == 257


def test_a_word_of_byte_level_bpe_is_whole_with_its_space():
    tokenizer = byte_bpe.train(["x the the the the"], vocab_size=260)
    assert tokenizer.words[-1] == "Ġthe"
    found = report.coverage(tokenizer, [["the cat"]], documents=False)
    assert (found["whole"], found["unknown"]) == (1 / 2, 0)


def test_unknown_tokens_are_counted_over_blocks(monkeypatch):
    tokens = np.array([0, 2, 3, 0, 0, 1, 2], dtype="<u2")
    for block in (report.BLOCK, 2):
        monkeypatch.setattr(report, "BLOCK", block)
        assert report.count_unknown(word.train(["a b"]), tokens) == 3
    assert report.count_unknown(character.train(["a"]), tokens) == 0


def test_the_longest_tokens_are_no_marks():
    tokenizer = unigram.train(LINES, vocab_size=120)
    assert len(tokenizer.special_ids) == 103
    (longest,) = report.longest_tokens(tokenizer, 1)
    assert longest in tokenizer.words and longest not in tokenizer.special_ids
    assert report.longest_tokens(word.train(["the cats sat"]), 2) == ["<eos>", "<unk>"]
