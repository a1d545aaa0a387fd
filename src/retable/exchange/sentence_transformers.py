"""Read the pooling of a checkpoint of the library sentence-transformers.

`modules.json` lists the modules that a text passes through: a Transformer, a pooling and possibly a normalisation.
`1_Pooling/config.json` contains the pooling. The maximum number of tokens is in `sentence_bert_config.json` or, since
version 6, in `tokenizer_config.json`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retable.core.errors import UsageError, reading
from retable.core.settings import shown

MODULES = "modules.json"
# Files with the maximum number of tokens, and its key in each file; the first file that has the key counts.
LIMITS = {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}
POOLING = "pooling_mode"
# Maps the names of poolings in a checkpoint to those of `retable.evaluation.sentence_encoder`. Before version 6,
# config.json has a key per pooling, such as pooling_mode_mean_tokens, with the value true or false.
POOLINGS = {"mean": "mean", "max": "max", "cls": "first", "lasttoken": "last"}


def pooling_files(folder: Path) -> list[Path]:
    """Return the existing files that determine how a checkpoint pools its states; [] without `modules.json`.

    Raises: UsageError: a listed module is not one that Retable computes.
    """
    if not (folder / MODULES).exists():
        return []
    settings = [folder / name for name in LIMITS if (folder / name).exists()]
    return [folder / MODULES, *(path / "config.json" for path in _modules(folder).get("Pooling", ())), *settings]


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
    if not (folder / MODULES).exists():
        return {"pooling": "mean", "normalize": False, "max_length": longest}
    modules = _modules(folder)
    path = modules["Pooling"][0] / "config.json"
    chosen = _poolings(_read(path, dict))
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        names = " and ".join(chosen) or "no pooling"
        raise UsageError(f"{path} has {names}, but exactly one of {', '.join(POOLINGS)} is supported; use another one")
    settings = {name: _read(folder / name, dict) for name in LIMITS if (folder / name).exists()}
    own = next(iter(LIMITS))
    if settings.get(own, {}).get("do_lower_case") and not lowercases:
        raise UsageError(
            f"{folder / own} has do_lower_case=true, but the tokenizer keeps capitals; use a checkpoint whose "
            "tokenizer converts texts to lower case"
        )
    limits = {name: each[LIMITS[name]] for name, each in settings.items() if each.get(LIMITS[name]) is not None}
    name, limit = next(iter(limits.items()), ("", longest))
    if not isinstance(limit, int) or limit < 3:
        raise UsageError(f"{folder / name}: {LIMITS[name]}={shown(limit)} is out of range; write 3 to {longest}")
    # tokenizers without a limit have a model_max_length of 10^30
    return {
        "pooling": POOLINGS[chosen[0]],
        "normalize": "Normalize" in modules,
        "max_length": min(limit, longest),
    }


def _poolings(config: Mapping[str, Any]) -> list[str]:
    if POOLING in config:
        return [str(mode) for mode in (config[POOLING] if isinstance(config[POOLING], list) else [config[POOLING]])]
    modes = [name.removeprefix(f"{POOLING}_") for name, value in config.items() if name.startswith(POOLING) and value]
    return [mode.removesuffix("_tokens").removesuffix("_token") for mode in modes]


def _modules(folder: Path) -> dict[str, list[Path]]:
    """Return the folders of the modules by the name of their class.

    Raises: UsageError: the modules are not a Transformer, a Pooling and possibly a Normalize, in this order.
    """
    path = folder / MODULES
    listed = _read(path, list)
    known = [each for each in listed if isinstance(each, Mapping) and isinstance(each.get("type"), str)]
    names = [str(each["type"]).rpartition(".")[2] for each in known]
    if len(known) < len(listed) or names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UsageError(
            f"{path} lists the modules {', '.join(names) or 'of no known class'}, but only Transformer, Pooling and "
            "Normalize, in this order, are supported; use another checkpoint"
        )
    places = [Path(str(each.get("path", ""))) for each in known]
    if places[0] != Path() or any(place.is_absolute() or ".." in place.parts for place in places):
        raise UsageError(f"{path}: the Transformer must be in the checkpoint's folder, and the other modules below it")
    return {name: [folder / place] for name, place in zip(names, places, strict=True)}


def _read(path: Path, kind: type) -> Any:
    with reading(path, OSError, ValueError, RecursionError):
        contents = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(contents, kind):
            raise ValueError(f"the file does not contain a JSON {'object' if kind is dict else 'array'}")
        return contents
