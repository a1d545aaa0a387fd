"""One token per Unicode character; characters unseen in training become UTF-8 bytes. Decoding restores any text.

System A1 of docs/systems.yaml.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, decoders, models, normalizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.tokenizers.tokenizer import END_OF_TEXT, Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def train(lines: Iterable[str], vocabulary: Iterable[str] = (), closed: bool = False) -> Tokenizer:
    """Build a tokenizer with the tokens END_OF_TEXT, the 256 bytes, and all characters of `lines` by falling frequency.

    Equally frequent characters are ordered by code point. `vocabulary` lists the words of a closed vocabulary, whose
    characters are always included.

    Args:
        lines: the training text, without line ends.
        closed: whether to leave out END_OF_TEXT and the bytes. If `closed` is True, the line end is the boundary token,
            and characters outside the vocabulary are dropped.

    Returns: a tokenizer. Without `closed`, every text can be restored exactly, because characters outside the
        vocabulary become bytes.
    """
    counts = Counter(dict.fromkeys("".join(vocabulary), 0) | {"\n": 0})
    for line in lines:
        counts.update(line)
        counts["\n"] += 1
    characters = sorted(counts, key=lambda character: (-counts[character], character))
    if closed:
        own = {character: i for i, character in enumerate(characters)}
        tokenizer = HuggingFaceTokenizer(models.BPE(own, merges=[]))
        # The BPE model would also drop characters outside the vocabulary, but with wrong offsets for all later
        # characters.
        others = "".join(f"\\x{{{ord(character):X}}}" for character in characters)
        tokenizer.normalizer = normalizers.Replace(Regex(f"[^{others}]"), "")
        tokenizer.decoder = decoders.Fuse()
        return Tokenizer(tokenizer)
    ids = {token: i for i, token in enumerate([END_OF_TEXT, *BYTES, *characters])}
    tokenizer = HuggingFaceTokenizer(
        models.BPE(ids, merges=[], byte_fallback=True)
    )  # without merges, each character stays a separate token
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([END_OF_TEXT])
    return Tokenizer(tokenizer)
