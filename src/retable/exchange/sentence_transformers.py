"""Read the pooling of a checkpoint of the library sentence-transformers.

`modules.json` lists the modules that a text passes through: a Transformer, a pooling and possibly a normalisation.
`1_Pooling/config.json` contains the pooling. The maximum number of tokens is in `sentence_bert_config.json`; without
this number, as since version 6 of the library, it is the number in `tokenizer_config.json`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retable.core.errors import UsageError, reading
from retable.core.settings import shown

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
OF_TOKENIZER = "tokenizer_config.json"
SUPPORTED = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
POOLING = "pooling_mode"
# Maps the names of poolings in a checkpoint to those of `retable.evaluation.sentence_encoder`. Before version 6,
# config.json has a key per pooling, such as pooling_mode_mean_tokens, with the value true or false.
POOLINGS = {"mean": "mean", "max": "max", "cls": "first", "lasttoken": "last"}


def pooling_files(folder: Path) -> list[Path]:
    """Return the existing files from which `read_pooling` reads a checkpoint's pooling.

    Raises: UsageError: a listed module is not one that Retable computes.
    """
    if not (folder / MODULES).exists():
        return [path for path in [folder / OF_TOKENIZER] if path.exists()]
    settings = [path for path in (folder / name for name in (SETTINGS, PROMPTS, OF_TOKENIZER)) if path.exists()]
    return [folder / MODULES, _modules(folder)["Pooling"] / "config.json", *settings]


def has_pooling(folder: Path) -> bool:
    """Return whether a checkpoint has `modules.json`, and all modules in it are modules that Retable computes.

    Raises: UsageError: `modules.json` is damaged.
    """
    return (folder / MODULES).exists() and _names(_read(folder / MODULES, list)) in SUPPORTED


def read_pooling(folder: Path, longest: int, lowercases: bool) -> dict[str, Any]:
    """Return the settings of `PooledEncoder` for a checkpoint.

    A checkpoint without `modules.json` gets the mean over its tokens, without normalisation, as in
    sentence-transformers.

    Args:
        folder: the folder of the checkpoint.
        longest: maximum number of tokens of the model.
        lowercases: whether the checkpoint's tokenizer converts texts to lower case.

    Raises: UsageError: a file is damaged, or contains a module or setting that Retable does not compute.
    """
    of_tokenizer = _read(folder / OF_TOKENIZER, dict) if (folder / OF_TOKENIZER).exists() else {}
    limit = of_tokenizer.get("model_max_length", longest)  # tokenizers without a limit have 10^30
    if not isinstance(limit, int | float) or limit < 3:
        raise UsageError(
            f"{folder / OF_TOKENIZER}: model_max_length={shown(limit)} is out of range; write 3 to {longest}"
        )
    default = int(min(limit, longest))
    if not (folder / MODULES).exists():
        return {"pooling": "mean", "normalize": False, "max_length": default}
    modules = _modules(folder)
    path = modules["Pooling"] / "config.json"
    chosen = _poolings(_read(path, dict))
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        names = " and ".join(chosen) or "no pooling"
        raise UsageError(f"{path} has {names}, but exactly one of {', '.join(POOLINGS)} is supported; use another one")
    settings = _read(folder / SETTINGS, dict) if (folder / SETTINGS).exists() else {}
    if settings.get("do_lower_case") and not lowercases:
        raise UsageError(
            f"{folder / SETTINGS} has do_lower_case=true, but the tokenizer keeps capitals; use a checkpoint whose "
            "tokenizer converts texts to lower case"
        )
    prompts = _read(folder / PROMPTS, dict) if (folder / PROMPTS).exists() else {}
    if (prompt := prompts.get("default_prompt_name")) is not None:
        raise UsageError(
            f"{folder / PROMPTS} has default_prompt_name={shown(prompt)}, but Retable puts no prompt before a text; "
            "use another checkpoint"
        )
    max_length = settings.get("max_seq_length") or default
    if not isinstance(max_length, int) or max_length < 3:
        place = f"{folder / SETTINGS}: max_seq_length={shown(max_length)}"
        raise UsageError(f"{place} is out of range; write 3 to {longest}")
    pooling = POOLINGS[chosen[0]]
    return {"pooling": pooling, "normalize": "Normalize" in modules, "max_length": min(max_length, longest)}


def _poolings(config: Mapping[str, Any]) -> list[str]:
    if POOLING in config:
        return [str(mode) for mode in (config[POOLING] if isinstance(config[POOLING], list) else [config[POOLING]])]
    modes = [name.removeprefix(f"{POOLING}_") for name, value in config.items() if name.startswith(POOLING) and value]
    return [mode.removesuffix("_tokens").removesuffix("_token") for mode in modes]


def _modules(folder: Path) -> dict[str, Path]:
    """Return the folders of the modules by the name of their class.

    Raises: UsageError: the modules are not a Transformer, a Pooling and possibly a Normalize, in this order.
    """
    path = folder / MODULES
    listed = _read(path, list)
    if (names := _names(listed)) not in SUPPORTED:
        raise UsageError(
            f"{path} lists the modules {', '.join(filter(None, names)) or 'of no known class'}, but only Transformer, "
            "Pooling and Normalize, in this order, are supported; use another checkpoint"
        )
    places = [Path(str(each.get("path", ""))) for each in listed]
    if places[0] != Path() or any(place.is_absolute() or ".." in place.parts for place in places):
        raise UsageError(f"{path}: the Transformer must be in the checkpoint's folder, and the other modules below it")
    return {name: folder / place for name, place in zip(names, places, strict=True)}


def _names(listed: Sequence[Any]) -> list[str]:
    """Return the class name of each module; "" for an entry without a class."""
    types = [each.get("type") if isinstance(each, Mapping) else None for each in listed]
    return [each.rpartition(".")[2] if isinstance(each, str) else "" for each in types]


def _read(path: Path, kind: type) -> Any:
    with reading(path, OSError, ValueError, RecursionError):
        contents = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(contents, kind):
            raise ValueError(f"the file does not contain a JSON {'object' if kind is dict else 'array'}")
        return contents
