"""The recipes under conf/recipe/ by their names, which are unique over all families."""

import copy
from functools import cache

from hydra import compose, initialize_config_dir
from hydra.utils import get_class
from omegaconf import DictConfig

from pipelines.config.project import CONF
from retable.objectives.causal_lm import CausalLM
from retable.planning.conf import Conf

FILES = [path for path in sorted((CONF / "recipe").glob("*/*.yaml")) if not path.stem.startswith("_")]
PATHS = {path.stem: f"{path.parent.name}/{path.stem}" for path in FILES}
FAMILIES = ("counted", "window", "recurrent", "transformer")
LANGUAGE_MODELS = [name for name, path in PATHS.items() if path.startswith(FAMILIES)]  # from left to right


def _kind(name: str) -> str:
    """A recipe's classes, and the settings of its model: their names, and values that are words or switches."""
    recipe = _READ.says("recipe", PATHS[name])
    chosen = recipe["choices"]
    model = (_READ.says("model", chosen["model"]) if chosen.get("model") else {}) | recipe.get("model", {})
    words = {key: value for key, value in model.items() if isinstance(value, str | bool) and key != "choices"}
    return str((sorted(words.items()), sorted(model), chosen.get("objective")))


def _one_per_kind(names: list[str]) -> list[str]:
    """Of recipes that differ in numbers only, the one with the shortest name."""
    return sorted({_kind(name): name for name in sorted(names, key=len, reverse=True)}.values())


_READ = Conf(CONF)
COUNTED = _one_per_kind([name for name in LANGUAGE_MODELS if PATHS[name].startswith("counted/")])
TRAINED = _one_per_kind([name for name in LANGUAGE_MODELS if not PATHS[name].startswith("counted/")])
# The objectives that train any model that reads from left to right.
OBJECTIVES = [
    name
    for name in _READ.names("objective")
    if (target := _READ.says("objective", name).get("_target_")) and issubclass(get_class(target), CausalLM)
]


def composed(stage: str, name: str, *overrides: str) -> DictConfig:
    """The configuration of a stage with a recipe, of which `overrides` may change what they like."""
    return copy.deepcopy(_composed(stage, name, *overrides))


@cache
def _composed(stage: str, name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(stage, overrides=[f"recipe={PATHS[name]}", *overrides])
