"""A1: one token per Unicode character; characters unseen in training become UTF-8 bytes. Decoding restores any text."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, decoders, models, normalizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.tokenizers.tokenizer import END_OF_TEXT, Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def train(lines: Iterable[str], vocabulary: Iterable[str] = (), closed: bool = False) -> Tokenizer:
    """Build a character tokenizer: END_OF_TEXT, the 256 bytes, then all characters of `lines` by falling frequency.

    Ties are ordered by code point. `vocabulary` lists the words of a closed vocabulary. Their characters are always
    included.

    Args:
        lines: the training text, without line ends.
        closed: leave out END_OF_TEXT and the bytes. The line end is then the boundary token, and characters outside the
            vocabulary are dropped.

    Returns: a tokenizer. Without `closed`, it represents every text exactly: characters outside its vocabulary become
        bytes.
    """
    counts = Counter(dict.fromkeys("".join(vocabulary), 0) | {"\n": 0})
    for line in lines:
        counts.update(line)
        counts["\n"] += 1
    characters = sorted(counts, key=lambda character: (-counts[character], character))
    if closed:
        own = {character: i for i, character in enumerate(characters)}
        tokenizer = HuggingFaceTokenizer(models.BPE(own, merges=[]))
        # The model would drop other characters too, but the offsets of the characters after them would be wrong.
        others = "".join(f"\\x{{{ord(character):X}}}" for character in characters)
        tokenizer.normalizer = normalizers.Replace(Regex(f"[^{others}]"), "")
        tokenizer.decoder = decoders.Fuse()
        return Tokenizer(tokenizer)
    ids = {token: i for i, token in enumerate([END_OF_TEXT, *BYTES, *characters])}
    tokenizer = HuggingFaceTokenizer(
        models.BPE(ids, merges=[], byte_fallback=True)
    )  # no merges: characters stay single
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([END_OF_TEXT])
    return Tokenizer(tokenizer)
