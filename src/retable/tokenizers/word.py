"""A2: the word tokenizer of the perplexity tables. Words are separated by white space; `<eos>` ends each line."""

from collections.abc import Iterable, Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.core.settings import PositiveInt
from retable.tokenizers.counts import frequent
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer

# Split off as separate words: n't and 's as in the Penn Treebank, and each sign except < and >, as in <unk>.
APART = r"n't\b|'(?:s|m|d|re|ve|ll)\b|[^\w<>]"


def train(
    lines: Iterable[str],
    min_count: PositiveInt = 1,
    vocabulary: Iterable[str] = (),
    marks: Sequence[str] = (),
    english: bool = False,
) -> Tokenizer:
    """Build a word tokenizer, with words by falling frequency, and ties in alphabetical order.

    Args:
        min_count: occurrences that a word needs; other words become `<unk>`.
        vocabulary: words of a closed vocabulary; they get an id even if the text lacks them.
        marks: special tokens (BERT's, or T5's sentinels). They follow all words, so that they do not change word ids.
        english: for text that is not tokenized: lower-case it and split off the signs of APART, so that partly
            tokenized texts have the same words.
    """
    folded, splitter = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    if english:
        signs = pre_tokenizers.Split(Regex(APART), behavior="isolated")
        splitter = pre_tokenizers.Sequence([splitter, signs])
    closed = dict.fromkeys(vocabulary, 0)
    parts = (_words(folded.normalize_str(line), splitter) if english else line.split() for line in lines)
    counts = closed | frequent(parts, min_count, closed)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizer = _tokenizer(dict.fromkeys([UNKNOWN, END_OF_LINE, *words]))
    if english:
        tokenizer.normalizer = normalizers.Sequence([folded, tokenizer.normalizer])
        tokenizer.pre_tokenizer = splitter
    tokenizer.add_special_tokens(list(marks))
    return Tokenizer(tokenizer)


def of_words(words: Sequence[str]) -> Tokenizer:
    """Build a tokenizer with these words in this order, which must include `<unk>` and `<eos>`."""
    return Tokenizer(_tokenizer(words))


def _tokenizer(words: Iterable[str]) -> HuggingFaceTokenizer:
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = HuggingFaceTokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace("\n", f" {END_OF_LINE} ")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _words(line: str, splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    return [word for word, _ in splitter.pre_tokenize_str(line)]
