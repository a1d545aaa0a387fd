"""Whether the tokens that a stage reads are of the kind that a cell was trained on."""

from pathlib import Path

from pipelines.entry import chosen
from retable.cells.systems import read_config
from retable.errors import UsageError
from retable.tokenizers.tokenizer import Tokenizer


def require_tokens(cell: Path, tokens: str) -> None:
    """Raise UsageError where `tokens`, such as `ptb/word`, are not those that the cell was trained on, or where those
    that there are were made by another tokenizer than the cell's."""
    own = read_config(cell)["tokens"]
    if own != tokens:
        text, _, tokenizer = own.partition("/")
        raise UsageError(f"{cell} was trained on {own}; write corpus={text} tokenizer={tokenizer}")
    made_by, folder = cell / "tokenizer.json", Path("outputs/tokenize", tokens)
    other = folder / "tokenizer.json"
    if made_by.exists() and other.exists() and Tokenizer.load(made_by).digest != Tokenizer.load(other).digest:
        raise UsageError(
            f"{folder} was encoded by another tokenizer than that of {cell}; first run "
            f"python -m pipelines.tokenize_text corpus={chosen('corpus')} "
            f"tokenizer=pretrained tokenizer.train.path={made_by}"
        )
