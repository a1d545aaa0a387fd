"""Any Hugging Face tokenizer in the place of a trained one: a `tokenizer.json`, or the folder of a checkpoint."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from retable.core.errors import UsageError, reading, require_file
from retable.corpora.text import read_lines
from retable.tokenizers.report import model_of
from retable.tokenizers.tokenizer import END_OF_TEXT, Tokenizer
from retable.tokenizers.wordpiece import MARKS, PREFIX

# What holds a checkpoint's tokenizer, the newest first; the last two are of before there was a tokenizer.json.
FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("vocab.txt",))


def load(lines: Iterable[str], path: str | None, vocabulary: Iterable[str] = ()) -> Tokenizer:
    """The tokenizer in the file or folder `path`; neither `lines` nor `vocabulary` is read. UsageError where it can't
    be used."""
    if path is None or not Path(path).exists():
        raise UsageError(
            f"tokenizer.train.path={path} is no file; write tokenizer.train.path=FOLDER/tokenizer.json with the file "
            "of a Hugging Face model"
        )
    return read_tokenizer(Path(path))


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, or in a folder by `tokenizer_files`. It neither cuts texts off nor fills
    them up, whatever the file says."""
    if not path.is_dir():
        require_file(path)
    files = tokenizer_files(path) if path.is_dir() else [path]
    with reading(" with ".join(map(str, files)), Exception):  # which the library raises for whatever is wrong
        match [file.name for file in files] if path.is_dir() else []:
            case ["vocab.json", "merges.txt"]:
                its = _byte_bpe(path)
            case ["vocab.txt"]:
                its = _wordpiece(path)
            case _:
                its = HuggingFaceTokenizer.from_str(_text(files[0]))
        its.no_truncation()
        its.no_padding()
        ids = its.get_vocab().values()
        if {*ids} != {*range(len(ids))}:
            raise UsageError(f"the ids of its {len(ids)} tokens are not 0 to {len(ids) - 1}")
        tokenizer = Tokenizer(its)
        model = model_of(tokenizer)
        if (unknown := model.get("unk_token")) is not None and unknown not in model["vocab"]:
            raise UsageError(f"its vocabulary has no {unknown}, which stands for what it lacks")
        tokenizer.boundary  # noqa: B018  a tokenizer without a mark that ends text can't write a stream
        return tokenizer


def tokenizer_files(folder: Path) -> list[Path]:
    """What a checkpoint's folder has of FILES. UsageError where that is none."""
    for names in FILES:
        if all((folder / name).is_file() for name in names):
            return [folder / name for name in names]
    raise UsageError(
        f"{folder} has no tokenizer.json, no vocab.json with merges.txt, and no vocab.txt; let transformers write one: "
        f'AutoTokenizer.from_pretrained("{folder}").save_pretrained("{folder}")'
    )


def _byte_bpe(folder: Path) -> HuggingFaceTokenizer:
    """GPT-2's (Radford et al. 2019)."""
    lines = (line for line in read_lines(folder / "merges.txt") if not line.startswith("#version"))
    merges = [(first, second) for first, second in (line.split(" ") for line in lines)]
    its = HuggingFaceTokenizer(models.BPE(json.loads(_text(folder / "vocab.json")), merges))
    its.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    its.decoder = decoders.ByteLevel()
    its.add_special_tokens([END_OF_TEXT])
    return its


def _wordpiece(folder: Path) -> HuggingFaceTokenizer:
    """BERT's (Devlin et al. 2019), in lower case unless `tokenizer_config.json` says otherwise."""
    config, said = folder / "tokenizer_config.json", {}
    if config.exists():
        with reading(config, ValueError, RecursionError):
            said = dict(json.loads(_text(config)))
    vocabulary = {line.rstrip(): i for i, line in enumerate(read_lines(folder / "vocab.txt"))}
    its = HuggingFaceTokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    its.normalizer = normalizers.BertNormalizer(
        lowercase=said.get("do_lower_case", True),
        strip_accents=said.get("strip_accents"),
        handle_chinese_chars=said.get("tokenize_chinese_chars", True),
    )
    its.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    its.decoder = decoders.WordPiece(PREFIX, cleanup=False)
    its.add_special_tokens(MARKS)
    return its


def _text(path: Path) -> str:
    """Return the text of a file without a byte-order mark, which the libraries do not read."""
    return "\n".join(read_lines(path))
