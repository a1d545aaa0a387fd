"""A2: the word tokenizer of the perplexity tables. Words as the text gives them; `<eos>` closes each line."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, normalizers, pre_tokenizers

from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer


def train(
    lines: Iterable[str], min_count: int = 1, vocabulary: Iterable[str] = (), marks: Sequence[str] = ()
) -> Tokenizer:
    """All words with at least `min_count` occurrences, the most frequent first, ties in alphabetical order.

    `vocabulary` holds words that are known to belong to the language (a closed vocabulary): they get an id even
    where the text lacks them. Other words become `<unk>`. `marks` (BERT's, or T5's sentinels) come behind all words, so
    that these have the ids that they have without.
    """
    counts = Counter(dict.fromkeys(vocabulary, 0))
    closed = set(counts)
    for line in lines:
        counts.update(line.split())
    kept = (word for word, count in counts.items() if count >= min_count or word in closed)
    words = sorted(kept, key=lambda word: (-counts[word], word))
    ids = {word: i for i, word in enumerate(dict.fromkeys([UNKNOWN, END_OF_LINE, *words]))}
    tokenizer = HuggingFaceTokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace("\n", f" {END_OF_LINE} ")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(marks))
    return Tokenizer(tokenizer)
