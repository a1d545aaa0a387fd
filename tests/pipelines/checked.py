"""Check command lines of stages in the process of the test, as the stages do."""

import copy
from functools import cache

from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, flag_override

from pipelines.app.stage import make_ready


@cache
def composed(command: tuple[str, ...]) -> DictConfig:
    """Return the composed configuration of a stage with its choices, including Hydra's part."""
    return compose(command[0], overrides=[*command[1:]], return_hydra_config=True)


def check(command: list[str], overrides: list[str]) -> DictConfig:
    """Return the checked configuration of a command with further overrides."""
    whole = copy.deepcopy(composed(tuple(command)))
    parsed = OverridesParser.create().parse_overrides(overrides)
    OmegaConf.set_struct(whole, True)
    ConfigLoaderImpl._apply_overrides_to_config(parsed, whole)
    with flag_override(whole, ["struct", "readonly"], False):
        whole.hydra.overrides.task = [*command[1:], *overrides]
        HydraConfig.instance().set_config(whole)
        cfg = copy.deepcopy(whole)
        del cfg["hydra"]
    make_ready(command[0], cfg)
    return cfg
