"""What a model begins with, in place of what is drawn: the weights of a cell or of a checkpoint, word vectors."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from omegaconf import DictConfig
from torch import Tensor, nn

from pipelines.app.task_text import Vectors
from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.data.spelling import Vocabulary
from retable.inference.systems import read_config
from retable.models.base import EncoderDecoder, Model
from retable.models.word2vec_format import read_word2vec
from retable.nn.embedding import initialise_embedding
from retable.objectives.base import Objective
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import put_weights, read_weights

if TYPE_CHECKING:
    from retable.exchange.checkpoint import Checkpoint


class Start(NamedTuple):
    inputs: list[Path]
    drawn: list[str]  # the parameters that began as they were drawn, where others did not


def initialise(
    cfg: DictConfig, objective: Objective, model: Model, text: Text, vectors: Vectors, checkpoint: "Checkpoint | None"
) -> list[Path]:
    """Give `model`, which `objective` trains, the weights of the cell `cfg.init`, or of a checkpoint, and keep them if
    it is to be frozen; and give its input the vectors of its words. Returns the files that these came from, but for
    that of `vectors`."""
    inputs: list[Path] = []
    if cfg.init != "random":
        weights, inputs = _weights(cfg, checkpoint)
        load_pretrained(objective, model, weights, inputs[-1])
    elif cfg.frozen:
        raise UsageError(
            f"init=random would leave a frozen {type(model).__name__} as it was drawn; give init= a cell, as in "
            "init=pretrain/grammar/gpt-1, or write frozen=false"
        )
    elif model.frozen:
        raise UsageError(
            f"init=random would leave what {type(model).__name__} keeps frozen as it was drawn; give init= a cell, as "
            "in init=pretrain/grammar/elmo-1, or write model.frozen=false"
        )
    if cfg.frozen:
        freeze(model)
    if isinstance(text, Vocabulary):
        if vectors:
            rows = np.stack(list(vectors.values()))
            initialise_embedding(_embedding(model), text.known, list(vectors), rows)
        freeze_input(model, cfg)
        return inputs
    return inputs + initialise_input(model, cfg, text)


def continue_from(
    cfg: DictConfig, objective: Objective, tokenizer: Tokenizer, checkpoint: "Checkpoint | None"
) -> Start:
    """Begin pretraining with the weights of the cell `cfg.init`, or of a checkpoint: the model's, and of what stands on
    it those that have the same name and shape. UsageError for a model of another shape or of other tokens."""
    if cfg.init == "random":
        return Start([], [])
    if checkpoint is None:
        cell = Path("outputs", cfg.init)
        made = read_config(cell)["tokens"]
        if Tokenizer.load(require(cell / "tokenizer.json")).digest != tokenizer.digest:
            raise UsageError(f"{cell} was trained on the tokens of {made}, not of {cfg.tokens}; go on with those")
    elif checkpoint.tokenizer.digest != tokenizer.digest:
        corpus, path = chosen("corpus"), checkpoint.folder
        raise UsageError(
            f"{cfg.tokens} was encoded by another tokenizer than that of {path}; first run "
            f"python -m pipelines.tokenize_text corpus={corpus} tokenizer=pretrained "
            f"tokenizer.train.path={path}, then this with tokenizer=pretrained"
        )
    weights, files = _weights(cfg, checkpoint)
    put_weights(objective.model, weights, files[-1], prefix="model.")
    drawn = []
    for name, parameter in objective.named_parameters():
        if not name.startswith("model."):
            if name in weights and weights[name].shape == parameter.shape:
                parameter.data.copy_(weights[name])
            else:
                drawn.append(name)
    return Start(files, drawn)


def open_checkpoint(cfg: DictConfig) -> "Checkpoint | None":
    """What `pipelines.config.checkpoint` has put in place of init=hf:…"""
    return build(cfg.init, "init") if isinstance(cfg.init, DictConfig) else None


def _weights(cfg: DictConfig, checkpoint: "Checkpoint | None") -> tuple[dict[str, Tensor], list[Path]]:
    """The weights that `cfg.init` names, as our objectives call them, and the files that they are from, theirs last."""
    if checkpoint is not None:
        return checkpoint.weights, checkpoint.files
    path = require(Path("outputs", cfg.init, "model.safetensors"))
    return read_weights(path), [path]


def load_pretrained(objective: nn.Module, model: Model, weights: Mapping[str, Tensor], source: Path) -> None:
    """Give `model`, or the parts of it that it names as `pretrained`, the weights of a pretrained model, which were
    read from `source`; where it writes, `objective` with its softmax. UsageError where there is no such part, or they
    are those of another."""
    if isinstance(model, EncoderDecoder):
        put_weights(objective, weights, source)
        return
    if not model.pretrained:
        raise UsageError(
            f"{type(model).__name__} has no part that is pretrained; write init=random, or take a model with an ELMo, "
            "recipe=taggers/elmo_tagger or recipe=coreference/mention_ranker_elmo"
        )
    for name, part in model.pretrained.items():
        put_weights(part, weights, source, prefix=f"model.{name}")


def freeze(model: Model) -> None:
    """Keep the model's weights. UsageError for one that is pretrained in parts, or that has no head to learn."""
    if isinstance(model, EncoderDecoder):
        raise UsageError(f"{type(model).__name__} writes its labels, and has no head; leave frozen=True out")
    if [*model.pretrained.values()] != [model]:
        raise UsageError(
            f"{type(model).__name__} is pretrained in parts, and learns the others; leave frozen=true out"
            + (": model.frozen=true keeps those parts" if "frozen" in vars(model) else "")
        )
    model.requires_grad_(False)


def initialise_input(model: Model, cfg: DictConfig, tokenizer: Tokenizer) -> list[Path]:
    """Start the input layer from the word2vec file that `cfg.embedding` names, unless it says random, and tune it on
    or, with `cfg.freeze_embedding`, leave it there. Returns the file."""
    inputs = []
    if cfg.embedding != "random":
        inputs.append(require(Path(cfg.embedding)))
        initialise_embedding(_embedding(model), tokenizer.words, *read_word2vec(inputs[0]))
    freeze_input(model, cfg)
    return inputs


def freeze_input(model: Model, cfg: DictConfig) -> None:
    """Leave the input layer as it begins, where `cfg` says so."""
    if cfg.freeze_embedding:
        if cfg.embedding == "random":
            raise UsageError("freeze_embedding=true would leave the input as it was drawn; give embedding= a file")
        _embedding(model).requires_grad_(False)


def _embedding(model: Model) -> nn.Embedding:
    if (embedding := model.input_embedding) is None:
        raise UsageError(f"{type(model).__name__} has no layer of word vectors; write embedding=random")
    return embedding
