"""The recipes under conf/recipe/ by their names, which are unique over all families."""

import copy
from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from pipelines.entry import CONF

FILES = [path for path in sorted((CONF / "recipe").glob("*/*.yaml")) if not path.stem.startswith("_")]
PATHS = {path.stem: f"{path.parent.name}/{path.stem}" for path in FILES}
FAMILIES = ("counted", "window", "recurrent", "transformer")
LANGUAGE_MODELS = [name for name, path in PATHS.items() if path.startswith(FAMILIES)]  # from left to right
# Of those that differ in numbers alone, one.
TRAINED = [
    "fixed_window", "log_bilinear", "convolution", "gcnn_14", "elman", "elman_one_hot", "gru", "lstm", "lstmp",
    "lstm_512_512", "lstm_1024_512", "lstm_wikitext103", "lstm_first_state", "residual_elman", "residual_gru",
    "residual_lstm", "character_lstm", "awd_lstm_small", "gpt", "gpt_post_norm", "gpt_rotary", "gpt_swiglu",
    "gpt_swish", "gpt_toy_sinusoidal", "gpt_shakespeare", "transformer_wikitext103", "transformer_xl_small",
    "transformer_xl",
]  # fmt: skip
COUNTED = ["ad3", "add_k3", "cache", "gt3", "jm3", "kn3", "kn5_pruned", "maxent", "snm", "snm_skip", "wb3"]


def composed(stage: str, name: str, *overrides: str) -> DictConfig:
    """The configuration of a stage with a recipe, of which `overrides` may change what they like."""
    return copy.deepcopy(_composed(stage, name, *overrides))


@cache
def _composed(stage: str, name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(stage, overrides=[f"recipe={PATHS[name]}", *overrides])
