"""Load any Hugging Face tokenizer instead of training one: a `tokenizer.json`, or the folder of a checkpoint."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from retable.core.errors import UsageError, reading, require_file
from retable.core.hub import CHECKPOINT, locate
from retable.corpora.text import read_lines
from retable.tokenizers.report import model_of
from retable.tokenizers.tokenizer import END_OF_TEXT, Tokenizer
from retable.tokenizers.wordpiece import MARKS, PREFIX

SNAPSHOT = ("*.json", "*.txt")  # files to download from the hub
# Sets of tokenizer files that a checkpoint may have, in order of preference; the last two sets are formats that are
# older than tokenizer.json.
FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("vocab.txt",))


def load(lines: Iterable[str], path: str | None, vocabulary: Iterable[str] = ()) -> Tokenizer:
    """Load the tokenizer in the file or folder `path`; `lines` and `vocabulary` are ignored.

    `path` may also be the name of a checkpoint after `hf:`, as in `hf:openai-community/gpt2@REVISION`.

    Raises: UsageError: the tokenizer is missing or unusable.
    """
    if path is not None and path.startswith(CHECKPOINT):
        return read_tokenizer(locate(path.removeprefix(CHECKPOINT), SNAPSHOT)[1])
    if path is None or not Path(path).exists():
        raise UsageError(
            f"tokenizer.train.path={path} does not exist; write tokenizer.train.path=FOLDER/tokenizer.json, a file of "
            "a Hugging Face model"
        )
    return read_tokenizer(Path(path))


def read_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer from `tokenizer.json` or from the folder of a checkpoint, and turn off truncation and padding.

    Raises: UsageError: the tokenizer is missing or damaged, or has no boundary token, which begins a stream.
    """
    if not path.is_dir():
        require_file(path)
    files = tokenizer_files(path) if path.is_dir() else [path]
    with reading(" with ".join(map(str, files)), Exception):  # the library raises a plain Exception for every error
        match [file.name for file in files] if path.is_dir() else []:
            case ["vocab.json", "merges.txt"]:
                inner = _byte_bpe(path)
            case ["vocab.txt"]:
                inner = _wordpiece(path)
            case _:
                inner = HuggingFaceTokenizer.from_str(_text(files[0]))
        inner.no_truncation()
        inner.no_padding()
        ids = inner.get_vocab().values()
        if {*ids} != {*range(len(ids))}:
            raise UsageError(f"the token ids must be 0 to {len(ids) - 1} without gaps; repair the vocabulary")
        tokenizer = Tokenizer(inner)
        model = model_of(tokenizer)
        if (unknown := model.get("unk_token")) is not None and unknown not in model["vocab"]:
            raise UsageError(f"the vocabulary lacks the unknown token {unknown}; add this token")
        tokenizer.boundary  # noqa: B018  raises UsageError if there is no mark to begin a stream with
        return tokenizer


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the tokenizer files in a checkpoint's folder: the first set in FILES whose files all exist.

    Raises: UsageError: none of the sets is complete.
    """
    for names in FILES:
        if all((folder / name).is_file() for name in names):
            return [folder / name for name in names]
    raise UsageError(
        f"{folder} has no tokenizer.json, no vocab.json with merges.txt, and no vocab.txt; write one in Python: "
        f'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}")'
    )


def _byte_bpe(folder: Path) -> HuggingFaceTokenizer:
    """Load GPT-2's tokenizer (Radford et al. 2019)."""
    lines = (line for line in read_lines(folder / "merges.txt") if not line.startswith("#version"))
    merges = [(first, second) for first, second in (line.split(" ") for line in lines)]
    tokenizer = HuggingFaceTokenizer(models.BPE(json.loads(_text(folder / "vocab.json")), merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _wordpiece(folder: Path) -> HuggingFaceTokenizer:
    """Load BERT's tokenizer (Devlin et al. 2019); it lower-cases text unless `tokenizer_config.json` turns this off."""
    config, settings = folder / "tokenizer_config.json", {}
    if config.exists():
        with reading(config, ValueError, RecursionError):
            settings = dict(json.loads(_text(config)))
    vocabulary = {line.rstrip(): i for i, line in enumerate(read_lines(folder / "vocab.txt"))}
    tokenizer = HuggingFaceTokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(PREFIX, cleanup=False)
    tokenizer.add_special_tokens(MARKS)
    return tokenizer


def _text(path: Path) -> str:
    """Return the text of a file, without its byte-order mark, because the libraries cannot read this mark."""
    return "\n".join(read_lines(path))
