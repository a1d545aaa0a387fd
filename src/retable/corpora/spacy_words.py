"""Words of raw text, by the tokenizers of spaCy.

The extra `spacy` installs spaCy: `pip install 'retable[spacy]'`. The tokenizers consist of rules that are part of the
package; no trained pipeline is needed.
"""

from collections.abc import Callable

from retable.core.errors import UsageError


def spacy_words(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a text into words and punctuation marks, by spaCy's rules for a language.

    Double spaces and no-break spaces are tokens of spaCy. They are written as ␣ and the code points, such as ␣a0.

    Args:
        language: spaCy's code of the language, such as `de` or `en`.

    Raises: UsageError: spaCy is not installed, or does not have the language.
    """
    try:
        import spacy
    except ImportError:
        raise UsageError("tokens of spaCy need the extra spacy: pip install -e '.[spacy]'") from None
    try:
        tokenizer = spacy.blank(language).tokenizer
    except ImportError:  # spaCy raises ImportError for languages that it does not have
        raise UsageError(f"spaCy has no tokenizer for {language!r}; write a language code such as de or en") from None
    return lambda text: [_visible(token.text) if token.is_space else token.text for token in tokenizer(text)]


def _visible(space: str) -> str:
    return "".join(f"␣{ord(character):x}" for character in space)
