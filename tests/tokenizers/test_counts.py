import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.tokenizers import counts, word
from retable.tokenizers.counts import frequent

WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=3)


@given(st.lists(st.lists(WORD, max_size=5)), st.integers(1, 3), st.lists(WORD, max_size=3), st.integers(1, 9))
def test_counts_are_those_of_memory_however_little_there_is(lines, min_count, known, types):
    whole = Counter(each for line in lines for each in line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "TYPES", types)
        patch.setattr(counts, "PARTS", 2)
        found = frequent(lines, min_count, known)
    assert found == {each: n for each, n in whole.items() if n >= min_count or each in known}


def test_words_that_are_not_kept_are_not_in_memory_together(monkeypatch):
    monkeypatch.setattr(counts, "TYPES", 1000)
    monkeypatch.setattr(counts, "PARTS", 8)
    lines = (f"the {i:x} of the {-i:x}" for i in range(20_000))
    tracemalloc.start()
    tokenizer = word.train(lines, min_count=100)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tokenizer.words == ["<unk>", "<eos>", "the", "of"]
    assert peak < 2 << 20  # one Counter needs 3 MB
