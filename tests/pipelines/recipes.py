"""The recipes in conf/recipe/ by name; names are unique over all families."""

import copy
from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from pipelines.config.project import CONF

FILES = [path for path in sorted((CONF / "recipe").glob("*/*.yaml")) if not path.stem.startswith("_")]
PATHS = {path.stem: f"{path.parent.name}/{path.stem}" for path in FILES}
FAMILIES = ("counted", "window", "recurrent", "transformer")
LANGUAGE_MODELS = [name for name, path in PATHS.items() if path.startswith(FAMILIES)]  # left-to-right language models


def composed(stage: str, name: str, *overrides: str) -> DictConfig:
    """Return the configuration of a stage with a recipe and `overrides`."""
    return copy.deepcopy(_composed(stage, name, *overrides))


@cache
def _composed(stage: str, name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(stage, overrides=[f"recipe={PATHS[name]}", *overrides])
