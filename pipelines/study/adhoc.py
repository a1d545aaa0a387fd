"""Tries: runs by hand that would take the place of a study's cell without being it. Each stands beside the cell, under
a name that says what differs: `outputs/pretrain/grammar/lstm-1+epochs-0.05`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from pipelines.config.devices import choose_machine
from pipelines.study.compose import configuration, mistakes_of
from retable.core.digests import digest_of
from retable.planning.cell import Cell
from retable.planning.conf import flat
from retable.planning.graph import settings_of

_ABSENT = "absent"
_LONGEST = 100  # of a name's end; file systems allow 255 for a name and what is written beside it


def difference(stage: str, place: str, config: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """What a run's configuration has other than that of the cell which DVC tracks at `place`, as the end of a name:
    `+epochs-0.05`. Empty where they are the same, or DVC tracks nothing there.

    The graph has the cell's command, from which its configuration is composed; so plans need not have been made. What
    the command line says comes first, a group by its choice.
    """
    cell = _tracked(stage, place)
    if cell is None:
        return ""
    running = HydraConfig.instance().cfg
    try:
        with mistakes_of(cell):
            composed = OmegaConf.create(configuration(cell, opened=True))
    finally:
        HydraConfig.instance().cfg = running
    choose_machine(stage, composed)
    own, other = flat(config), flat(OmegaConf.to_container(composed))
    differing = {key: own.get(key, _ABSENT) for key in sorted({*own, *other})}
    # 1.0 is 1 to Python, but another text in the cell
    differing = {key: value for key, value in differing.items() if repr(value) != repr(other.get(key, _ABSENT))}
    said = [f"{key}={value}" for key, value in cell.settings.items()]
    return called(differing, [override for override in overrides if override not in said])


def _tracked(stage: str, place: str) -> Cell | None:
    """The cell that the study of the working folder has at `<stage>/<place>`."""
    params, place = Path("params.yaml"), os.path.normpath(place)
    if not params.exists():
        return None
    entries = (yaml.load(params.read_text(encoding="utf-8"), yaml.CSafeLoader) or {}).get(stage, {})
    found = (entry for entry in entries.values() if entry["of"]["out"] == place)
    return next((Cell(stage, place, settings_of(entry)) for entry in found), None)


def called(differing: Mapping[str, Any], overrides: Sequence[str], named: Sequence[str] = ()) -> str:
    """The end of a name: what differs, first as the command line says it, and in any case its settings `named`."""
    parts, left = {}, dict(differing)
    for key, _, said in sorted(override.lstrip("+~").partition("=") for override in overrides):
        under = [each for each in left if f"{each}.".startswith(f"{key}.")]
        if under or key in named:
            parts[key] = left.get(key, said)
            left = {each: value for each, value in left.items() if each not in under}
    whole = "".join(f"+{key}-{value}" for key, value in (parts | left).items())
    name = re.sub(r"[^\w.+-]+", "_", whole)
    # ["the old"] is as letters what ["the", "old"] is
    texts = [text for value in (parts | left).values() if isinstance(value, list) for text in value]
    tells = not any(re.search(r"[^\w.+-]", str(text)) for text in texts)
    return name if tells and len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{digest_of(parts | left)[:8]}"
