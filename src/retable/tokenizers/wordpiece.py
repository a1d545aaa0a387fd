"""WordPiece, as in BERT (Devlin et al. 2019): every piece of a word except the first begins with `##`.

Pieces are learnt by byte-pair merges of characters, as in Hugging Face's trainer. Encoding chooses the longest piece
first. Decoding does not join words, unlike decoding with BERT's `tokenizer.json` ("do n't" → "don't"), because the
joined words would be encoded differently.

System A4 of docs/systems.yaml.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.tokenizers.tokenizer import LEARN_FROM, Tokenizer, to_learn_from

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PREFIX = "##"


def train(
    lines: Iterable[str],
    vocab_size: PositiveInt,
    lowercase: bool,
    alphabet: PositiveInt = 1000,
    vocabulary: Iterable[str] = (),
    learn_from: PositiveInt = LEARN_FROM,
) -> Tokenizer:
    """Train a WordPiece tokenizer of `vocab_size` pieces: five marks, all characters with and without `##`, and merges.

    Args:
        lowercase: whether to lower-case the text and strip accents, as BERT's uncased models do.
        alphabet: number of characters to keep, the most frequent first; words with other characters become `[UNK]`.
        vocabulary: ignored, because new words are split into pieces or characters.
        learn_from: number of characters to learn from; from a longer text, random lines are drawn, see `to_learn_from`.
        lines: the training text, which is iterated several times; if this is an iterator, it is first read into memory.

    Raises: UsageError: `vocab_size` leaves no room for the characters.
    """
    if iter(lines) is lines:
        lines = list(lines)
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    characters = _characters(lines, normalizer, alphabet)
    needed = len(MARKS) + 2 * len(characters)
    if vocab_size < needed:
        raise UsageError(
            f"tokenizer.vocab_size={vocab_size} leaves no room for {len(characters)} characters with and without "
            f"{PREFIX}, and {len(MARKS)} marks; write {needed} or more, or a smaller tokenizer.alphabet"
        )
    # By default, the trainer numbers ## characters in the order of a hash table, which differs in each run, and uses
    # these numbers to break ties between merges. If the ## characters are passed as special tokens, they are numbered
    # in the order of `initial`.
    initial = [*MARKS, *characters, *(PREFIX + character for character in characters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=initial,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    learner = HuggingFaceTokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer, learner.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(to_learn_from(lines, learn_from), trainer)

    ids = learner.get_vocab()
    tokenizer = HuggingFaceTokenizer(models.WordPiece(ids, unk_token="[UNK]", continuing_subword_prefix=PREFIX))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(PREFIX, cleanup=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(mark, ids[mark]) for mark in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(MARKS)
    return Tokenizer(tokenizer)


def _characters(lines: Iterable[str], normalizer: normalizers.Normalizer, limit: int) -> list[str]:
    """Return the most frequent characters of the normalised text, sorted by code point.

    Each different character is normalised only once, since BERT's normaliser works on each character separately.
    """
    raw: Counter[str] = Counter()
    for line in lines:
        raw.update(line)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for part in normalizer.normalize_str(character):
            counts[part] += 0 if part.isspace() else count
    kept = sorted(+counts, key=lambda character: (-counts[character], character))[:limit]
    return sorted(kept)
