"""`init=hf:…`: a checkpoint of transformers in the place of a recipe's model, before anything is made of the recipe."""

from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from retable.core.errors import UsageError
from retable.planning.cell import CHECKPOINT

READER = "retable.exchange.checkpoint.Checkpoint"  # imported where one is read, as it takes seconds
# Of our models that begin as others, or as a part of them, those: they have the same settings.
BEGUN_AS = {
    "retable.models.t5_encoder.T5Encoder": "retable.models.t5.T5",
    "retable.models.gpt_special_tokens.GPTWithSpecialTokens": "retable.models.gpt.GPT",
}

RECIPES = {"GPT": "transformer/gpt", "BERT": "bert/bert", "T5": "t5/t5"}


def use_checkpoint_config(cfg: DictConfig, overrides: list[str]) -> None:
    """Where `cfg.init` names a checkpoint, put its model's settings in place of the recipe's, but for dropout, which is
    of training; its softmax's, tied or not, in place of the objective's; and what opens it in place of its name.

    The cell's `config.yaml` then says what was really used. UsageError where the recipe has another kind of model, or
    `overrides` of the command line ask for another one than the checkpoint's.
    """
    if not str(init := OmegaConf.select(cfg, "init", default="")).startswith(CHECKPOINT):
        return
    from retable.exchange.checkpoint import Checkpoint

    checkpoint = Checkpoint(init.removeprefix(CHECKPOINT))
    settings, target = dict(checkpoint.model), str(cfg.model._target_)
    kind, wanted = (each.rpartition(".")[2] for each in (settings["_target_"], target))
    if BEGUN_AS.get(target, target) != settings["_target_"]:
        raise UsageError(
            f"init={init} is a {kind}, and the recipe has a {wanted}; take one of a {kind}: recipe={RECIPES[kind]}"
        )
    if asked := next((said for said in overrides if _is_of_model(said)), None):
        raise UsageError(f"init={init} brings the model's settings with it; leave {asked} out")
    own: dict = OmegaConf.to_container(cfg.model, resolve=False)  # type: ignore[assignment]
    with open_dict(cfg):
        cfg.model = settings | {"_target_": target, "dropout": own["dropout"]}
        if cfg.get("objective") is not None:
            cfg.objective.vocab_size = settings["vocab_size"]
            if "tie" in cfg.objective and "tie" in (checkpoint.objective or {}):
                cfg.objective.tie = (checkpoint.objective or {})["tie"]
        cfg.init = opened_by(init)


def opened_by(init: Any) -> Any:
    """What stands in place of `init` in a cell's configuration: of a checkpoint what opens it, else the same."""
    if not str(init).startswith(CHECKPOINT):
        return init
    return {"_target_": READER, "name": str(init).removeprefix(CHECKPOINT)}


def _is_of_model(override: str) -> bool:
    name = override.lstrip("+~").partition("=")[0]
    return name.startswith("model.") and name != "model.dropout"
