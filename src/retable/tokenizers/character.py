"""A1: one token per Unicode character; characters unseen in training become UTF-8 bytes. Decoding restores any text."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models

from retable.tokenizers.tokenizer import END_OF_TEXT, Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def train(lines: Iterable[str], vocabulary: Iterable[str] = ()) -> Tokenizer:
    """Build a character tokenizer: the mark, the 256 bytes, then all characters of `lines` by falling frequency.

    Ties are ordered by code point. The characters of `vocabulary`, the words of a closed vocabulary, are always
    included.

    Args:
        lines: the training text, without line ends.

    Returns: a tokenizer that represents every text exactly; other characters become bytes.
    """
    counts = Counter(dict.fromkeys("".join(vocabulary), 0) | {"\n": 0})
    for line in lines:
        counts.update(line)
        counts["\n"] += 1
    characters = sorted(counts, key=lambda character: (-counts[character], character))
    ids = {token: i for i, token in enumerate([END_OF_TEXT, *BYTES, *characters])}
    tokenizer = HuggingFaceTokenizer(
        models.BPE(ids, merges=[], byte_fallback=True)
    )  # no merges: characters stay single
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([END_OF_TEXT])
    return Tokenizer(tokenizer)
