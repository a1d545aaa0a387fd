"""Names of tries, which are runs by hand whose settings differ from the study's cell with the same name.

A try is written to a folder next to the cell. The folder's name ends with the settings that differ, as in
`outputs/pretrain/grammar/lstm-1+epochs-0.05`.
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
_LONGEST = 100  # characters of a cell-name suffix; file systems allow 255 bytes for the name


def difference(stage: str, place: str, config: Mapping[str, Any], overrides: Sequence[str]) -> str:
    """Return a name suffix with the settings in which a run differs from the cell that DVC tracks.

    The tracked cell is the cell of the working folder's study with the same stage and place. The configuration of the
    tracked cell is composed from the cell's command in `params.yaml`, so no plans are needed.

    Args:
        stage, place: the stage of the run, and the path of its cell below `outputs/<stage>/`.
        config: the run's configuration.
        overrides: the run's command line, whose settings come first in the name.

    Returns: the suffix, such as `+epochs-0.05`, or "" if no setting differs or there is no tracked cell.
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
    # Values are compared as text: 1.0 == 1 in Python, but "1.0" and "1" are different texts in the cell's
    # configuration.
    differing = {key: value for key, value in differing.items() if repr(value) != repr(other.get(key, _ABSENT))}
    of_cell = [f"{key}={value}" for key, value in cell.settings.items()]
    return cell_suffix(differing, [override for override in overrides if override not in of_cell])


def _tracked(stage: str, place: str) -> Cell | None:
    """Return the cell `<stage>/<place>` of the study in the working folder, or None if there is no such cell."""
    params, place = Path("params.yaml"), os.path.normpath(place)
    if not params.exists():
        return None
    entries = (yaml.load(params.read_text(encoding="utf-8"), yaml.CSafeLoader) or {}).get(stage, {})
    matching = (entry for entry in entries.values() if entry["of"]["out"] == place)
    return next((Cell(stage, place, settings_of(entry)) for entry in matching), None)


def cell_suffix(differing: Mapping[str, Any], overrides: Sequence[str], named: Sequence[str] = ()) -> str:
    """Return a name suffix with the differing settings.

    Settings of the command line come first. Settings that `named` lists and the command line sets are included even if
    their values do not differ.
    """
    parts, left = {}, dict(differing)
    for key, _, text in sorted(override.lstrip("+~").partition("=") for override in overrides):
        under = [each for each in left if f"{each}.".startswith(f"{key}.")]
        if under or key in named:
            parts[key] = left.get(key, text)
            left = {each: value for each, value in left.items() if each not in under}
    whole = "".join(f"+{key}-{value}" for key, value in (parts | left).items())
    name = re.sub(r"[^\w.+-]+", "_", whole)
    # A digest is added if different values, such as ["the old"] and ["the", "old"], would result in the same name.
    texts = [text for value in (parts | left).values() if isinstance(value, list) for text in value]
    is_unique = not any(re.search(r"[^\w.+-]", str(text)) for text in texts)
    return name if is_unique and len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{digest_of(parts | left)[:8]}"
