import pickle
import re

from hypothesis import given
from hypothesis import strategies as st

from retable.tokenizers import character, word
from retable.tokenizers.tokenizer import Tokenizer

LINES = ["b a a", "c b", "", "b d <unk>", "a é"]


def test_ids_go_by_count_then_alphabet():
    assert word.train(LINES).words == ["<unk>", "<eos>", "a", "b", "c", "d", "é"]
    assert word.train(["z z", "y y y", "x"]).words == ["<unk>", "<eos>", "y", "z", "x"]


def test_rare_words_become_unknown_but_those_of_a_closed_vocabulary():
    tokenizer = word.train(LINES, min_count=2)
    assert tokenizer.words == ["<unk>", "<eos>", "a", "b"] and tokenizer.boundary == 1
    assert tokenizer.encode("b c zebra a\n\nb\n") == [3, 0, 0, 2, 1, 1, 3, 1]  # a blank line has an end, too
    kept = word.train(LINES, min_count=2, vocabulary=["d", "never", "a"])
    assert kept.words == ["<unk>", "<eos>", "a", "b", "d", "never"]


@given(st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), min_size=1))
def test_a_word_of_any_characters_is_one_token(words):
    tokenizer = word.train([" ".join(words)])
    assert [tokenizer.words[i] for i in tokenizer.encode(" ".join(words) + "\n")] == [*words, "<eos>"]


def test_marks_come_behind_the_words_and_change_nothing_else(tmp_path):
    marks = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "</s>", "<extra_id_0>"]  # none of them is a line end
    plain, marked = word.train(LINES), word.train(LINES, marks=marks)
    assert marked.words == [*plain.words, *marks] and marked.vocab_size == plain.vocab_size + len(marks)
    assert marked.special_ids == {mark: plain.vocab_size + i for i, mark in enumerate(marks)}
    assert marked.boundary == plain.boundary and marked.words[marked.boundary] == "<eos>"
    units = [line.split("\n") for line in LINES]
    assert [*marked.encode_units(units, documents=True)] == [*plain.encode_units(units, documents=True)]
    a, b = plain.encode("a"), plain.encode("b\n")
    assert marked.encode("a [MASK] b\n", special=True) == [*a, plain.vocab_size + 3, *b]
    assert marked.encode("a [MASK] b\n") == [*a, marked.unknown, *b]
    marked.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").special_ids == marked.special_ids


def test_english_is_in_lower_case_with_its_signs_apart():
    tokenizer = word.train(["It isn't John's, she said.", "it is n't john 's , she said ."], english=True)
    parted = tokenizer.encode("it is n't john 's , she said .")
    assert tokenizer.encode("It isn't John's, she said.\n") == [*parted, 1]
    assert [tokenizer.words[i] for i in parted] == ["it", "is", "n't", "john", "'s", ",", "she", "said", "."]
    assert len(tokenizer.words) == 2 + len(parted)


def test_english_keeps_unknown_words_and_marks_whole(tmp_path):
    tokenizer = word.train(["A <unk> in 'quotes' [SEP]", "o'clock"], marks=["[SEP]"], english=True)
    tokenizer.save(tmp_path / "tokenizer.json")
    words = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "A <unk> in 'quotes' [SEP]\nO'Clock"
    expected = ["a", "<unk>", "in", "'", "quotes", "'", "[SEP]", "<eos>", "o", "'", "clock"]
    assert [words.words[i] for i in words.encode(text, special=True)] == expected
    assert [words.words[i] for i in words.encode(text)] == [*expected[:6], "[", "sep", "]", *expected[7:]]
    assert words.words[words.boundary] == "<eos>"


LETTERS = ["abba <b>", "ca é"]
TOKENIZER = character.train(LETTERS, vocabulary=["q"])


@given(st.text(st.sampled_from("abc <>é\nq")))
def test_each_known_character_is_a_token(text):
    assert [TOKENIZER.words[i] for i in TOKENIZER.encode(text)] == list(text)


def test_ids_go_by_count_then_code_point():
    words = TOKENIZER.words
    assert words[:2] + words[256:] == ["<|endoftext|>", "<0x00>", "<0xFF>", *"ab", "\n", *" <>cé", "q"]
    assert TOKENIZER.boundary == 0


def test_an_unseen_character_is_its_bytes():
    assert [i - 1 for i in TOKENIZER.encode("☃")] == list("☃".encode())


def test_uncased_words_are_all_words_in_lower_case(tmp_path):
    tokenizer = word.train_uncased(["It is Well-made .", "it IS <unk>"])
    assert tokenizer.words == ["<unk>", "<eos>", "is", "it", ".", "well-made"]
    tokenizer.save(tmp_path / "tokenizer.json")
    words = Tokenizer.load(tmp_path / "tokenizer.json")
    assert [words.words[i] for i in words.encode("WELL-MADE ones .\n")] == ["well-made", "<unk>", ".", "<eos>"]


def cleaned(line: str) -> list[str]:
    """Return the tokens of Kim (2014), by a sequence of replacements."""
    line = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", line.lower())
    for beginning in ("'s", "'ve", "n't", "'re", "'d", "'ll"):
        line = line.replace(beginning, f" {beginning}")
    for sign in ",!()?":
        line = line.replace(sign, f" {sign} ")
    return line.split()


CLEANED = [
    "it's so laddish , and - well - they'd've liked it ; isn't it ?",
    "Mr. O'Shea (the best) won't say: \"don't!\", 'sup 'data' rock'n'roll",
    "can n't be so-so ; 1/2x , etc .",
    "-- ...",
]


def test_cleaned_words_are_those_of_replacements_one_after_the_other():
    tokenizer = word.train_uncased(CLEANED, cleaned=True)
    for line in CLEANED:
        assert [tokenizer.words[i] for i in tokenizer.encode(line)] == cleaned(line)
    assert tokenizer.encode("isn't\n\n")[-2:] == [1, 1] and tokenizer.encode("-- ...") == []
    assert set(tokenizer.words) == {"<unk>", "<eos>", *(word for line in CLEANED for word in cleaned(line))}


def test_source_and_target_have_separate_vocabularies(tmp_path):
    (tmp_path / "sources.txt").write_text("x y x\nx z\n")
    (tmp_path / "targets.txt").write_text("".join(f"{line}\n" for line in LINES))
    files = {side: str(tmp_path / f"{side}s.txt") for side in ("source", "target")}
    both = ["x y x", *LINES, "x z"]  # a training text may contain the sources, too
    tokenizer = word.train_separate(both, **files, min_count=2, first=["<pad>", "<sos>"])
    assert tokenizer.words == ["<pad>", "<sos>", "<unk>", "<eos>", "a", "b"] and tokenizer.vocab_size == 6
    assert tokenizer.source.words == ["<pad>", "<sos>", "<unk>", "<eos>", "x"] and tokenizer.source_vocab_size == 5
    assert tokenizer.encode("a x") == [4, 2] and tokenizer.source.encode("a x") == [2, 4]
    tokenizer.save(tmp_path / "tokenizer.json")
    for copied in (Tokenizer.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(tokenizer))):
        assert (copied.words, copied.source.words) == (tokenizer.words, tokenizer.source.words)
        assert copied.digest == tokenizer.digest != word.train(LINES, min_count=2, first=["<pad>", "<sos>"]).digest
    shared = word.train(LINES)
    assert shared.source is shared and shared.source_vocab_size is None
