"""A2: the word tokenizer of the perplexity tables. Words as the text gives them; `<eos>` closes each line."""

from collections.abc import Iterable, Sequence

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.core.settings import PositiveInt
from retable.tokenizers.counts import frequent
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer

# What stands at a word and is one: n't and 's, as the Penn Treebank parts them, and each sign but those round <unk>.
APART = r"n't\b|'(?:s|m|d|re|ve|ll)\b|[^\w<>]"


def train(
    lines: Iterable[str],
    min_count: PositiveInt = 1,
    vocabulary: Iterable[str] = (),
    marks: Sequence[str] = (),
    english: bool = False,
) -> Tokenizer:
    """All words with at least `min_count` occurrences, the most frequent first, ties in alphabetical order.

    `vocabulary` holds words that are known to belong to the language (a closed vocabulary): they get an id even
    where the text lacks them. Other words become `<unk>`. `marks` (BERT's, or T5's sentinels) come behind all words, so
    that these have the ids that they have without. With `english`, of text as people write it, words are in lower case
    and without what stands at them, see APART, so that texts that are in part tokenized have the same words.
    """
    folded, parted = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    if english:
        signs = pre_tokenizers.Split(Regex(APART), behavior="isolated")
        parted = pre_tokenizers.Sequence([parted, signs])
    closed = dict.fromkeys(vocabulary, 0)
    parts = (_words(folded.normalize_str(line), parted) if english else line.split() for line in lines)
    counts = closed | frequent(parts, min_count, closed)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizer = _tokenizer(dict.fromkeys([UNKNOWN, END_OF_LINE, *words]))
    if english:
        tokenizer.normalizer = normalizers.Sequence([folded, tokenizer.normalizer])
        tokenizer.pre_tokenizer = parted
    tokenizer.add_special_tokens(list(marks))
    return Tokenizer(tokenizer)


def of_words(words: Sequence[str]) -> Tokenizer:
    """These words in this order, `<unk>` and `<eos>` among them."""
    return Tokenizer(_tokenizer(words))


def _tokenizer(words: Iterable[str]) -> HuggingFaceTokenizer:
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = HuggingFaceTokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace("\n", f" {END_OF_LINE} ")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _words(line: str, parted: pre_tokenizers.PreTokenizer) -> list[str]:
    return [word for word, _ in parted.pre_tokenize_str(line)]
