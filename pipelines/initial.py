"""What a model begins with, in place of what is drawn: the weights of a pretrained cell, word vectors."""

from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from torch import nn

from pipelines.texts import Vectors
from retable.artifacts import require
from retable.data.spelling import Vocabulary
from retable.errors import UsageError
from retable.models.base import EncoderDecoder, Model
from retable.models.word2vec_format import read_word2vec
from retable.nn.embedding import initialise_embedding
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import load_weights


def initialise(cfg: DictConfig, objective: nn.Module, model: Model, text: Text, vectors: Vectors) -> list[Path]:
    """Give `model`, which `objective` trains, the weights of the cell `cfg.init`, and keep them if it is to be frozen;
    and give its input the vectors of its words. Returns the files that these came from, but for that of `vectors`."""
    inputs = []
    if cfg.init != "random":
        inputs.append(require(Path("outputs", cfg.init, "model.safetensors")))
        load_pretrained(objective, model, inputs[-1])
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


def load_pretrained(objective: nn.Module, model: Model, path: Path) -> None:
    """Give `model`, or the parts of it that it names as `pretrained`, the weights of a cell's model; where it writes,
    `objective` with its softmax. UsageError where there is no such part, or they are those of another."""
    if isinstance(model, EncoderDecoder):
        load_weights(objective, path)
        return
    if not model.pretrained:
        raise UsageError(
            f"{type(model).__name__} has no part that is pretrained; write init=random, or take a model with an ELMo, "
            "recipe=taggers/elmo_tagger or recipe=coreference/mention_ranker_elmo"
        )
    for name, part in model.pretrained.items():
        load_weights(part, path, prefix=f"model.{name}")


def freeze(model: Model) -> None:
    """Keep the model's weights. UsageError for one that is pretrained in parts, or that has no head to learn."""
    if isinstance(model, EncoderDecoder):
        raise UsageError(f"{type(model).__name__} writes its labels, and has no head; leave frozen=True out")
    if [*model.pretrained.values()] != [model]:
        raise UsageError(
            f"{type(model).__name__} is pretrained in parts, and learns the others; leave frozen=true out: "
            "model.frozen=true keeps those parts"
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
