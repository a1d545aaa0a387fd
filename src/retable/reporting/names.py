"""Display names of systems and explanations of column titles, from `names.yaml`."""

import re
from functools import cache
from importlib import resources
from typing import Any

import yaml


def display_name(key: str) -> str:
    """Return the display name of a system or tokenizer, or the key if `names.yaml` has no name for this key.

    `kn5` is "Kneser–Ney 5-gram (modified)". The names of derived systems follow rules: `lstm_neural_cache` is "LSTM +
    neural cache".
    """
    return _name(key) or key


def meaning(head: str) -> str:
    """Return the explanation of a column's title, or of a heading over columns; "" for an unknown title."""
    return _contents()["heads"].get(head, "")


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
