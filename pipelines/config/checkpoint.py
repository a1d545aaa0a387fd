"""`init=hf:…`: put the model of a Hugging Face checkpoint into a recipe's configuration before anything is built."""

from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from retable.core.errors import UsageError
from retable.core.hub import CHECKPOINT, locate
from retable.core.settings import PositiveInt, require

if TYPE_CHECKING:
    from retable.exchange.checkpoint import Checkpoint

READER = "retable.exchange.checkpoint.Checkpoint"  # imported only where it is needed, since this takes seconds
LOADER = "retable.tokenizers.pretrained.load"
# Maps a model's class to the class of the checkpoints that it can start from. The model has the settings of such a
# checkpoint, and all or some of its weights.
BEGUN_AS = {
    "retable.models.t5_encoder.T5Encoder": "retable.models.t5.T5",
    "retable.models.gpt_special_tokens.GPTWithSpecialTokens": "retable.models.gpt.GPT",
}

# Recipes for each kind of checkpoint: to continue pretraining, and to fine-tune.
PRETRAINING = {"GPT": "transformer/gpt", "BERT": "bert/bert", "T5": "t5/t5"}
FINE_TUNING = {kind: f"checkpoints/finetuned_{kind.lower()}" for kind in PRETRAINING}


def with_recipe(arguments: list[str]) -> list[str]:
    """Add a recipe to a command that fine-tunes a checkpoint, if the command names none.

    The recipe is the one of the checkpoint's kind, such as `recipe=checkpoints/finetuned_bert`.

    Args:
        arguments: the command line of stage finetune.

    Raises: UsageError: the checkpoint cannot be read, or the command sweeps over checkpoints of several kinds.
    """
    if any(_name(each) == "recipe" for each in arguments):
        return arguments
    init = next((each for each in arguments if each.startswith("init=")), "")
    try:
        override = OverridesParser.create().parse_override(init)
        values = [*override.sweep_iterator()] if override.is_discrete_sweep() else [override.value()]
    except HydraException:  # Hydra reports the error later
        return arguments
    names = [text.removeprefix(CHECKPOINT) for value in values if (text := str(value)).startswith(CHECKPOINT)]
    if not names:
        return arguments
    if len(names) < len(values):
        raise UsageError(f"{init} has a checkpoint and a value without hf:; write recipe=…, or sweep over checkpoints")
    from retable.exchange.checkpoint import Checkpoint

    kinds = {str(Checkpoint(name).model["_target_"]).rpartition(".")[2] for name in names}
    if len(kinds) > 1:
        raise UsageError(f"{init} names checkpoints of several kinds: {', '.join(sorted(kinds))}; sweep over one kind")
    place = arguments.index(init)  # next to `init`, since settings must not come after options
    return [*arguments[:place], f"recipe={FINE_TUNING[kinds.pop()]}", *arguments[place:]]


def use_checkpoint_config(cfg: DictConfig, overrides: list[str]) -> None:
    """If `cfg.init` names a checkpoint, replace the model settings in `cfg` by the checkpoint's settings.

    The objective's settings `vocab_size` and `tie`, and all settings of the model except dropout are replaced.
    `max_length` remains if the command line has it, or a recipe that leaves the other sizes to the checkpoint. The
    settings of a sentence encoder that are null are replaced, too, and the tokenizer of its recipe is removed. `init`
    is replaced by a mapping whose `_target_` opens the checkpoint, and whose `name` contains the commit of a checkpoint
    of the hub. So the cell's `config.yaml` lists the settings used.

    Args:
        cfg: the composed configuration; changed in place.
        overrides: `name=value` arguments of the command line.

    Raises: UsageError: the recipe has another kind of model, an override changes the model's settings, the recipe is a
        sentence encoder and `init` is not a checkpoint of one, or an override makes or removes a sentence encoder.
    """
    if "encoder" in cfg and cfg.encoder is None:
        raise UsageError("encoder=null removes the sentence encoder of the recipe; leave encoder out")
    is_part = isinstance(cfg.get("encoder"), DictConfig) and "_target_" in cfg.encoder
    if "encoder" in cfg and (not is_part or cfg.get("objective") is not None):
        raise UsageError(
            "encoder has no effect on this recipe, which is not a sentence encoder; leave encoder out, or write "
            "recipe=encoders/sentence_encoder"
        )
    if not str(init := OmegaConf.select(cfg, "init", default="")).startswith(CHECKPOINT):
        if cfg.get("encoder") is not None:
            raise UsageError(
                f"init={init}, but a sentence encoder is not trained here; write a checkpoint, as in init=hf:FOLDER or "
                "init=hf:OWNER/NAME"
            )
        return
    from retable.exchange.checkpoint import Checkpoint

    longest = _longest(cfg.model, overrides)
    checkpoint = Checkpoint(init.removeprefix(CHECKPOINT), **longest)
    settings, target = dict(checkpoint.model), str(cfg.model._target_)
    kind, in_recipe = (each.rpartition(".")[2] for each in (settings["_target_"], target))
    if BEGUN_AS.get(target, target) != settings["_target_"]:
        raise UsageError(
            f"init={init} is a {kind}, but the recipe's model is a {in_recipe}; "
            f"write recipe={(FINE_TUNING if 'task' in cfg else PRETRAINING)[kind]}"
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
        if cfg.get("encoder") is not None:
            own = {key: value for key, value in cfg.encoder.items() if value is not None}
            cfg.encoder = _encoder_of(checkpoint, init) | own
            cfg.tokens = None  # the encoder has its own tokenizer, and its texts are not encoded in advance
            cfg.pop("tokenizer", None)
        cfg.init = opened_by(f"{CHECKPOINT}{checkpoint.name}") | longest


def _longest(model: DictConfig, overrides: list[str]) -> dict[str, int]:
    """Return the setting `max_length` for `Checkpoint`, or nothing if texts may be as long as in the checkpoint.

    The `max_length` of a recipe that has all sizes of a model belongs to a model with random weights, and is not used.
    """
    longest = model.get("max_length")
    if longest is None or ("d_model" in model and not any(_name(each) == "model.max_length" for each in overrides)):
        return {}
    require(longest, PositiveInt, "model.max_length")
    return {"max_length": longest}


def _encoder_of(checkpoint: "Checkpoint", init: str) -> dict[str, Any]:
    if (encoder := checkpoint.encoder) is None:
        raise UsageError(
            f"init={init} has a head, and no modules.json whose modules Retable computes, so it is not a sentence "
            "encoder; write another checkpoint"
        )
    return encoder


def use_commit_of_tokenizer(cfg: DictConfig) -> None:
    """If the tokenizer is that of a checkpoint of the hub, add the checkpoint's commit to `tokenizer.train.path`.

    `cfg` is the configuration of stage `tokenize`; it is changed in place.

    Raises: UsageError: the checkpoint does not exist, or cannot be downloaded.
    """
    from retable.tokenizers.pretrained import SNAPSHOT

    path = str(OmegaConf.select(cfg, "tokenizer.train.path", default=""))
    if path.startswith(CHECKPOINT) and cfg.tokenizer.train._target_ == LOADER:
        cfg.tokenizer.train.path = CHECKPOINT + locate(path.removeprefix(CHECKPOINT), SNAPSHOT)[0]


def opened_by(init: Any) -> Any:
    """Return a mapping whose `_target_` opens the checkpoint `init`; return any other `init` unchanged."""
    if not str(init).startswith(CHECKPOINT):
        return init
    return {"_target_": READER, "name": str(init).removeprefix(CHECKPOINT)}


def _is_of_model(override: str) -> bool:
    return _name(override).startswith("model.") and _name(override) not in ("model.dropout", "model.max_length")


def _name(override: str) -> str:
    """Return the name in an override such as `+name=value` or `~name`."""
    return override.lstrip("+~").partition("=")[0]
