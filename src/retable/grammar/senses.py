"""A corpus with ambiguous words: spellings that two nouns of different kinds and topics share.

The spellings are the lexicon's homonyms, such as "bat" (an animal and a thing), or invented words if the lexicon has no
homonyms. The corpus is the embedded language with some nouns respelt, so the sense of each word is known. The true
probability of a text is not known, because the sum over all choices of senses is not computed. `Grammar` assigns
probability 0 to a text with a shared spelling, because the spelling is not in its vocabulary. This corpus is therefore
written without scores of the true model.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.grammar.analogies import in_turn
from retable.grammar.corpus import SPLITS, until, write_lines
from retable.grammar.invented import Coiner
from retable.grammar.language import Grammar, Words
from retable.grammar.lexicon import Lexicon, Noun

Spelling = tuple[str, str]  # singular and plural


class Sense(NamedTuple):
    """The shared spelling of a noun's form, and the sense of the noun: its kind and topic, as in "food-3"."""

    spelling: str
    name: str


def write_senses(
    folder: Path,
    seed: Seed,
    words: Mapping[str, PositiveInt],
    ambiguous: PositiveInt,
    scale: Positive = 1.0,
    lexicon: Words = "invented",
) -> dict[str, float]:
    """Write a corpus with ambiguous words, its vocabulary and the senses of its test split into an existing folder.

    Files:
        `<split>.txt`: documents, each followed by a blank line.
        `vocabulary.txt`: one word per line, sorted.
        `senses.tsv`: one row per ambiguous word of the test split, with columns word, sentence, position (index of the
            word in the sentence, from 0) and sense.

    Args:
        folder: output folder.
        seed: seed of the random streams, one per split.
        words: maps a split to its minimum number of words and line ends; the last document is complete.
        ambiguous: number of pairs of nouns that share their spellings in the singular and the plural.
        scale, lexicon: see `Grammar`.

    Returns:
        `<split>/words`, the number of words without line ends, and `<split>/ambiguous`, the number of ambiguous words.

    Raises:
        UsageError: the size of a split is missing or below 1, or the lexicon has fewer than `ambiguous` pairs of nouns.
    """
    if set(words) != set(SPLITS) or min(words.values()) < 1:
        raise UsageError(f"words={dict(words)}; write a size of at least 1 for each of {', '.join(SPLITS)}")
    folder, grammar = Path(folder), Grammar(scale, lexicon)
    senses = shared_spellings(grammar.lexicon, ambiguous)
    spellings = {sense.spelling for sense in senses.values()}
    write_lines(folder / "vocabulary.txt", sorted(spellings | (set(grammar.vocabulary) - set(senses))))
    counts: dict[str, float] = {f"{split}/{name}": 0 for split in SPLITS for name in ("words", "ambiguous")}

    def respelt(split: str) -> Iterator[str]:
        """Yield all lines of a split, with the shared spellings in place of the ambiguous nouns."""
        for document in until(words[split], grammar.documents(seed, split)):
            for sentence in document:
                tokens = sentence.split(" ")
                text = " ".join(senses[token].spelling if token in senses else token for token in tokens)
                ambiguous_words = [(i, senses[token]) for i, token in enumerate(tokens) if token in senses]
                if split == "test":
                    rows.extend(f"{sense.spelling}\t{text}\t{i}\t{sense.name}" for i, sense in ambiguous_words)
                counts[f"{split}/words"] += len(tokens)
                counts[f"{split}/ambiguous"] += len(ambiguous_words)
                yield text
            yield ""

    rows = ["word\tsentence\tposition\tsense"]
    for split in SPLITS:
        write_lines(folder / f"{split}.txt", respelt(split))
    write_lines(folder / "senses.tsv", rows)
    return counts


def shared_spellings(lexicon: Lexicon, ambiguous: int) -> dict[str, Sense]:
    """Map each form of the ambiguous nouns to its shared spelling and sense, the most frequent nouns first.

    Raises: UsageError: the lexicon has fewer than `ambiguous` pairs of nouns.
    """
    pairs = homonyms(lexicon) if lexicon.homonyms else coined(lexicon)
    senses: dict[str, Sense] = {}
    for (singular, plural), nouns in islice(pairs, ambiguous):
        for noun in nouns:
            name = f"{noun.kind}-{noun.topic}"
            senses |= {noun.singular: Sense(singular, name), noun.plural: Sense(plural, name)}
    if len(senses) < 4 * ambiguous:
        raise UsageError(f"ambiguous={ambiguous} exceeds the lexicon's {len(senses) // 4} noun pairs; lower ambiguous")
    return senses


def coined(lexicon: Lexicon) -> Iterator[tuple[Spelling, tuple[Noun, Noun]]]:
    """Yield invented spellings, each with the two nouns that share it. The nouns differ in kind and in topic."""
    coiner = Coiner(seed=1916, taken=sorted(lexicon.words()))
    for pair in unlike_pairs(lexicon):
        stem = coiner.stem(2)
        while not coiner.is_new((stem, f"{stem}s")):
            stem = coiner.stem(2)
        yield (stem, f"{stem}s"), pair


def homonyms(lexicon: Lexicon) -> Iterator[tuple[Spelling, tuple[Noun, ...]]]:
    """Yield the lexicon's homonyms, each with one noun per sense.

    Each noun is the most frequent unused noun of its sense that has the same article as the homonym. A homonym is left
    out if one of its senses has no such noun, as in small lexicons.
    """
    taken: set[Noun] = set()
    for singular, plural, senses in lexicon.homonyms:
        fitting = [
            [
                noun
                for noun in lexicon.nouns[kind]
                if noun.topic == topic and noun.plural and noun not in taken
                if lexicon.article(noun.singular) == lexicon.article(singular)
            ]
            for kind, topic in senses
        ]
        if all(fitting):
            nouns = tuple(own[0] for own in fitting)
            taken.update(nouns)
            yield (singular, plural), nouns


def unlike_pairs(lexicon: Lexicon) -> Iterator[tuple[Noun, Noun]]:
    """Yield pairs of nouns of different kinds and topics, frequent nouns first; a noun is in at most one pair."""
    waiting: list[Noun] = []
    for noun in filter(lambda noun: noun.plural, in_turn(lexicon.nouns)):
        for other in waiting:
            if other.kind != noun.kind and other.topic != noun.topic:
                waiting.remove(other)
                yield other, noun
                break
        else:
            waiting.append(noun)
