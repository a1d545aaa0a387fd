"""Byte-level byte-pair encoding (Radford et al. 2019, section 2.2). Decoding restores any text exactly.

System A3 of docs/systems.yaml.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.tokenizers.tokenizer import END_OF_TEXT, LEARN_FROM, Tokenizer, to_learn_from


def train(
    lines: Iterable[str],
    vocab_size: PositiveInt,
    vocabulary: Iterable[str] = (),
    learn_from: PositiveInt = LEARN_FROM,
) -> Tokenizer:
    """Train a byte-level BPE tokenizer of `vocab_size` tokens, including the 256 bytes and END_OF_TEXT.

    Args:
        vocab_size: total number of tokens, at least 257.
        vocabulary: ignored, because every text can be encoded.
        learn_from: number of characters to learn from; from a longer text, random lines are drawn, see `to_learn_from`.

    Raises: UsageError: `vocab_size` is below 257.
    """
    if vocab_size < 257:
        raise UsageError(f"tokenizer.vocab_size={vocab_size} leaves no room for the 256 bytes; write 257 or more")
    tokenizer = HuggingFaceTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((line + "\n" for line in to_learn_from(lines, learn_from)), trainer)
    return Tokenizer(tokenizer)
