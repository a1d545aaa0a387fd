"""Look up pretrained vectors for the words of a text, and count the words that have a vector.

A word is looked up unchanged, then in other forms, such as lower case. The order of the default forms is that of the
taggers of Lample et al. 2016 (github.com/glample/tagger, model.py) and of NeuroNER (Dernoncourt et al. 2017).
"""

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Literal

Form = Literal["lower", "zeros", "convention"]
FORMS: Sequence[Form] = ("lower", "zeros", "convention")
NAMES = {"lower": "in lower case", "zeros": "in lower case with digits as 0", "convention": "by the task's convention"}


def look_up(
    text: Iterable[str],
    known: Container[str],
    forms: Collection[Form] = FORMS,
    convention: Callable[[str], str] | None = None,
) -> dict[str, tuple[str, str]]:
    """Return, for each word of `text` that has a vector, the word whose vector it gets, and the form of this word.

    The form is "unchanged" or one of `forms`. Words without a vector are omitted.

    Args:
        known: the words that have vectors.
        forms: the forms to look up if a word is not in `known`, in the order of FORMS: the word in lower case, in lower
            case with each digit replaced by 0, and as `convention` returns it.
        convention: a function that rewrites a word in the way that `known` is written.
    """
    rewrite: dict[str, Callable[[str], str] | None] = {
        "unchanged": str,
        "lower": str.lower,
        "zeros": lambda word: re.sub(r"\d", "0", word.lower()),
        "convention": convention,
    }
    used = [(form, change) for form, change in rewrite.items() if change and form in ("unchanged", *forms)]
    found = {}
    for word in dict.fromkeys(text):
        for form, change in used:
            if (other := change(word)) in known:
                found[word] = other, form
                break
    return found


def coverage(
    text: Iterable[str], found: Mapping[str, tuple[str, str]], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Count the words that have a vector.

    Args:
        text: the words that were looked up.
        found: the result of `look_up`.
        counts: for each split, the frequency of each word.

    Returns: `words`, the number of different words by form, in which `none` are the words without a vector; `types` and
        `tokens`, for each split the share of different words, and of running words, that have a vector.
    """
    words = dict.fromkeys(("unchanged", *FORMS, "none"), 0)
    for word in {*text}:
        words[found[word][1] if word in found else "none"] += 1
    shares: dict[str, dict[str, float]] = {"types": {}, "tokens": {}}
    for split, of_split in counts.items():
        with_vector = {word: count for word, count in of_split.items() if word in found}
        shares["types"][split] = len(with_vector) / max(1, len(of_split))
        shares["tokens"][split] = sum(with_vector.values()) / max(1, sum(of_split.values()))
    return {"words": words, **shares}


def summary(counted: Mapping[str, Any]) -> str:
    """Describe a `coverage` in one line."""
    words: Mapping[str, int] = counted["words"]
    n_words = sum(words.values())
    forms = [f"{words['unchanged']:,} unchanged", *(f"{words[form]:,} {NAMES[form]}" for form in FORMS if words[form])]
    shares = [
        f"; {split} {counted['tokens'][split]:.1%} of tokens, {share:.1%} of types"
        for split, share in counted["types"].items()
    ]
    return f"{n_words - words['none']:,} of {n_words:,} words have a vector ({', '.join(forms)}){''.join(shares)}"
