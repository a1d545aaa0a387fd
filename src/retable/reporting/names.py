"""Display names of systems, from `names.yaml`: "Kneser–Ney 5-gram (modified)" for `kn5`."""

import re
from functools import cache
from importlib import resources
from typing import Any

import yaml


def display_name(key: str) -> str:
    """Return the display name of a system or tokenizer; its key if `names.yaml` gives it no name.

    A derived system is named by rule: `rnn_kn5_cache` is "RNN + Kneser–Ney 5-gram + cache".
    """
    return _name(key) or key


@cache
def _name(key: str) -> str:
    contents = _contents()
    if key in contents["names"]:
        return contents["names"][key]
    for ending, text in contents["endings"].items():
        if (match := re.fullmatch(f"(?P<rest>.+?){ending}", key)) and (rest := _name(match["rest"])):
            return rest + re.sub(ending, text, key[match.end("rest") :])
    return ""


@cache
def _contents() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("names.yaml").read_text(encoding="utf-8")
    return yaml.load(text, yaml.CSafeLoader)
