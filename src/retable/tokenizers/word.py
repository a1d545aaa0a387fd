"""The word tokenizer, for perplexities per word. Words are separated by white space; `<eos>` ends each line.

System A2 of docs/systems.yaml.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.core.settings import PositiveInt
from retable.corpora.text import read_lines
from retable.tokenizers.counts import frequent
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer

# Parts of words that become separate words: n't, 's and similar endings, as in the Penn Treebank, and each punctuation
# mark. The marks < and > are not split off, so that <unk> remains one word.
APART = r"n't\b|'(?:s|m|d|re|ve|ll)\b|[^\w<>]"

# Patterns of Kim's (2014) code: characters to drop, endings to split off from words, and signs to split off.
DROPPED, BEGINNINGS, SIGNS = r"[^A-Za-z0-9(),!?'`\n]", r"n't|'(?:s|ve|re|d|ll)", r"[(),!?]"


def train(
    lines: Iterable[str],
    min_count: PositiveInt = 1,
    vocabulary: Iterable[str] = (),
    marks: Sequence[str] = (),
    english: bool = False,
    first: Sequence[str] = (),
) -> Tokenizer:
    """Build a word tokenizer, with words sorted by falling frequency, and equally frequent words in alphabetical order.

    Args:
        min_count: minimum number of occurrences of a word; rarer words become `<unk>`.
        vocabulary: words of a closed vocabulary; they get an id even if they do not occur in the text.
        marks: special tokens, such as BERT's special tokens or T5's sentinels. The ids of `marks` come after all word
            ids, so the word ids do not change.
        english: whether to lower-case the text, and to split off the parts that `APART` matches. Set `english` to True
            for English text that is not tokenized, or only partly tokenized.
        first: tokens whose ids come before all other ids, such as <pad> with id 0.
    """
    folded, splitter = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    if english:
        signs = pre_tokenizers.Split(Regex(APART), behavior="isolated")
        splitter = pre_tokenizers.Sequence([splitter, signs])
    closed = dict.fromkeys(vocabulary, 0)
    parts = (_words(folded.normalize_str(line), splitter) if english else line.split() for line in lines)
    counts = closed | frequent(parts, min_count, closed)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizer = _tokenizer(dict.fromkeys([*first, UNKNOWN, END_OF_LINE, *words]))
    if english:
        tokenizer.normalizer = normalizers.Sequence([folded, tokenizer.normalizer])
        tokenizer.pre_tokenizer = splitter
    tokenizer.add_special_tokens(list(marks))
    return Tokenizer(tokenizer)


def train_separate(
    lines: Iterable[str], source: str, target: str, vocabulary: Iterable[str] = (), **settings: Any
) -> Tokenizer:
    """Build a tokenizer with separate vocabularies of sources and targets, for translation.

    Args:
        lines: the corpus's training text, which may contain sources; it is not read.
        source: the file of the sources.
        target: the file of the targets.
        vocabulary: words of a closed vocabulary of the targets.
        settings: settings of `train`, for both vocabularies.
    """
    sources = train(read_lines(Path(source)), **settings)
    return train(read_lines(Path(target)), vocabulary=vocabulary, **settings).with_source(sources)


def train_uncased(lines: Iterable[str], vocabulary: Iterable[str] = (), cleaned: bool = False) -> Tokenizer:
    """Build a word tokenizer of text in lower case, in which every word of the text gets an id.

    Args:
        vocabulary: words of a closed vocabulary; they get an id even if they do not occur in the text.
        cleaned: whether to drop all signs except (),!?'` and to split off n't, 's and the like, as in the code of Kim
            (2014), yoonkim/CNN_sentence.
    """
    folded = normalizers.Sequence([*([normalizers.Replace(Regex(DROPPED), " ")] * cleaned), normalizers.Lowercase()])
    splitter = pre_tokenizers.WhitespaceSplit()
    if cleaned:
        beginnings = pre_tokenizers.Split(Regex(BEGINNINGS), behavior="merged_with_next")
        signs = pre_tokenizers.Split(Regex(SIGNS), behavior="isolated")
        splitter = pre_tokenizers.Sequence([splitter, beginnings, signs])
    counts = frequent((_words(folded.normalize_str(line), splitter) for line in lines), min_count=1)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    tokenizer = _tokenizer(dict.fromkeys([UNKNOWN, END_OF_LINE, *vocabulary, *words]))
    tokenizer.normalizer = normalizers.Sequence([folded, tokenizer.normalizer])
    tokenizer.pre_tokenizer = splitter
    return Tokenizer(tokenizer)


def of_words(words: Sequence[str]) -> Tokenizer:
    """Build a tokenizer in which a word's id is its index in `words`, which must include `<unk>` and `<eos>`."""
    return Tokenizer(_tokenizer(words))


def _tokenizer(words: Iterable[str]) -> HuggingFaceTokenizer:
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = HuggingFaceTokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace("\n", f" {END_OF_LINE} ")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _words(line: str, splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    return [word for word, _ in splitter.pre_tokenize_str(line)]
