from hypothesis import given
from hypothesis import strategies as st

from retable.tokenizers import character

LINES = ["abba <b>", "ca é"]
TOKENIZER = character.train(LINES, vocabulary=["q"])


@given(st.text(st.sampled_from("abc <>é\nq")))
def test_each_known_character_is_a_token(text):
    assert [TOKENIZER.words[i] for i in TOKENIZER.encode(text)] == list(text)


def test_ids_go_by_count_then_code_point():
    words = TOKENIZER.words
    assert words[:2] + words[256:] == ["<|endoftext|>", "<0x00>", "<0xFF>", *"ab", "\n", *" <>cé", "q"]
    assert TOKENIZER.boundary == 0


def test_an_unseen_character_is_its_bytes():
    assert [i - 1 for i in TOKENIZER.encode("☃")] == list("☃".encode())
