"""`init=hf:…`: put the model of a Hugging Face checkpoint into a recipe's configuration before anything is built."""

from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from retable.core.errors import UsageError
from retable.planning.cell import CHECKPOINT

READER = "retable.exchange.checkpoint.Checkpoint"  # imported only where it is needed, since this takes seconds
# Maps a model's class to the class of its checkpoints: the model has their settings and all or some of their weights.
BEGUN_AS = {
    "retable.models.t5_encoder.T5Encoder": "retable.models.t5.T5",
    "retable.models.gpt_special_tokens.GPTWithSpecialTokens": "retable.models.gpt.GPT",
}

RECIPES = {"GPT": "transformer/gpt", "BERT": "bert/bert", "T5": "t5/t5"}


def use_checkpoint_config(cfg: DictConfig, overrides: list[str]) -> None:
    """If `cfg.init` names a checkpoint, replace the model settings in `cfg` by the checkpoint's settings.

    The objective's settings `vocab_size` and `tie` and all settings of the model except dropout are replaced. `init`
    becomes the `_target_` that opens the checkpoint. So the cell's `config.yaml` lists the settings that were used.

    Args:
        cfg: the composed configuration; changed in place.
        overrides: `name=value` arguments of the command line.

    Raises: UsageError: the recipe has another kind of model, or an override changes the model's settings.
    """
    if not str(init := OmegaConf.select(cfg, "init", default="")).startswith(CHECKPOINT):
        return
    from retable.exchange.checkpoint import Checkpoint

    checkpoint = Checkpoint(init.removeprefix(CHECKPOINT))
    settings, target = dict(checkpoint.model), str(cfg.model._target_)
    kind, in_recipe = (each.rpartition(".")[2] for each in (settings["_target_"], target))
    if BEGUN_AS.get(target, target) != settings["_target_"]:
        raise UsageError(
            f"init={init} is a {kind}, but the recipe's model is a {in_recipe}; write recipe={RECIPES[kind]}"
        )
    if changed := next((override for override in overrides if _is_of_model(override)), None):
        raise UsageError(f"init={init} sets the model's settings; remove {changed} from the command")
    own: dict = OmegaConf.to_container(cfg.model, resolve=False)  # type: ignore[assignment]
    with open_dict(cfg):
        cfg.model = settings | {"_target_": target, "dropout": own["dropout"]}
        if cfg.get("objective") is not None:
            cfg.objective.vocab_size = settings["vocab_size"]
            if "tie" in cfg.objective and "tie" in (checkpoint.objective or {}):
                cfg.objective.tie = (checkpoint.objective or {})["tie"]
        cfg.init = opened_by(init)


def opened_by(init: Any) -> Any:
    """Return the part with a `_target_` that opens the checkpoint `init`; return any other `init` unchanged."""
    if not str(init).startswith(CHECKPOINT):
        return init
    return {"_target_": READER, "name": str(init).removeprefix(CHECKPOINT)}


def _is_of_model(override: str) -> bool:
    name = override.lstrip("+~").partition("=")[0]
    return name.startswith("model.") and name != "model.dropout"
