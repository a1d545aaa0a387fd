"""Any Hugging Face `tokenizer.json` in the place of a trained tokenizer."""

from collections.abc import Iterable
from pathlib import Path

from retable.errors import UsageError
from retable.tokenizers.tokenizer import Tokenizer


def load(lines: Iterable[str], path: str | None, vocabulary: Iterable[str] = ()) -> Tokenizer:
    """The tokenizer in the file `path`; neither `lines` nor `vocabulary` is read. UsageError where it can't be used."""
    if path is None or not Path(path).is_file():
        raise UsageError(
            f"tokenizer.train.path={path} is no file; write tokenizer.train.path=FOLDER/tokenizer.json with the file "
            "of a Hugging Face model"
        )
    tokenizer = Tokenizer.load(Path(path))
    tokenizer.boundary  # noqa: B018  a tokenizer without a mark that ends text can't write a stream
    return tokenizer
