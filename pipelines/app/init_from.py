"""Initialise models from the weights of a cell or checkpoint, or from word vectors, instead of at random."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from omegaconf import DictConfig
from torch import Tensor, nn

from pipelines.app.task_text import Pretrained
from pipelines.config.conf import chosen
from pipelines.config.errors import is_main_process
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.hub import CHECKPOINT
from retable.core.settings import build
from retable.data.spelling import Vocabulary
from retable.data.word_vectors import summary
from retable.inference.systems import read_config
from retable.models.base import EncoderDecoder, Model
from retable.nn.embedding import initialise_embedding
from retable.objectives.base import Objective
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import put_weights, read_weights

if TYPE_CHECKING:
    from retable.exchange.checkpoint import Checkpoint


FEWEST = 0.1  # share of training tokens; if fewer have a vector, the vectors are probably of another language


class Start(NamedTuple):
    inputs: list[Path]
    drawn: list[str]  # parameters that stay randomly initialised, while other parameters get pretrained weights


def initialise(
    cfg: DictConfig,
    objective: Objective,
    model: Model,
    text: Text,
    pretrained: Pretrained | None,
    checkpoint: "Checkpoint | None",
) -> list[Path]:
    """Load the weights of the cell `cfg.init` or of a checkpoint into `model`, and word vectors into its input layer.

    Args:
        cfg: configuration of finetune; `init`, `frozen`, `embedding` and `freeze_embedding` are used.
        objective: the objective that trains `model`.
        model: the model to initialise and, if configured, to freeze.
        text: the tokenizer; for a model that reads the spelling of words, the vocabulary instead of a tokenizer.
        pretrained: vectors of the text's words; None if no file has vectors.
        checkpoint: the checkpoint to load instead of a cell.

    Returns: the files that were read, except the file of `pretrained`.
    Raises: UsageError: frozen parts would keep random weights, or the weights do not fit the model.
    """
    inputs: list[Path] = []
    if cfg.init != "random":
        weights, inputs = _weights(cfg, checkpoint)
        load_pretrained(objective, model, weights, inputs[-1])
    elif cfg.frozen:
        raise UsageError(
            f"init=random leaves a frozen {type(model).__name__} with random weights; write a cell, as in "
            "init=pretrain/grammar/gpt-1, or frozen=false"
        )
    elif model.frozen:
        raise UsageError(
            f"init=random leaves the frozen parts of {type(model).__name__} with random weights; write a cell, as "
            "in init=pretrain/grammar/elmo-1, or model.frozen=false"
        )
    if cfg.frozen:
        freeze(model)
    initialise_input(model, cfg, text.known if isinstance(text, Vocabulary) else text.words, pretrained)
    return inputs


def continue_from(
    cfg: DictConfig, objective: Objective, tokenizer: Tokenizer, checkpoint: "Checkpoint | None"
) -> Start:
    """Initialise pretraining from the weights of the cell `cfg.init` or of a checkpoint.

    All weights of the model are loaded. Every other part of the objective is loaded if its name and shape match.

    Returns: the files read, and the names of the parameters that keep random initial values.
    Raises: UsageError: the loaded weights do not fit the model's shape, or were trained with another tokenizer.
    """
    if cfg.init == "random":
        return Start([], [])
    if checkpoint is None:
        cell = Path("outputs", cfg.init)
        made = read_config(cell)["tokens"]
        if Tokenizer.load(require(cell / "tokenizer.json")).digest != tokenizer.digest:
            raise UsageError(
                f"{cell} was trained on the tokens {made}, not {cfg.tokens}; set corpus and tokenizer to {made}"
            )
    elif checkpoint.tokenizer.digest != tokenizer.digest:
        corpus, path = chosen("corpus"), checkpoint.folder
        raise UsageError(
            f"{cfg.tokens} was not encoded by the tokenizer of {path}; first run "
            f"python -m pipelines.tokenize_text corpus={corpus} tokenizer=pretrained "
            f"tokenizer.train.path={CHECKPOINT}{checkpoint.name}, then repeat this command with tokenizer=pretrained"
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
    """Return the Hugging Face checkpoint that `init=hf:…` names, or None if `init` names no checkpoint."""
    return build(cfg.init, "init") if isinstance(cfg.init, DictConfig) else None


def _weights(cfg: DictConfig, checkpoint: "Checkpoint | None") -> tuple[dict[str, Tensor], list[Path]]:
    """Return tensors by Retable's parameter names, and the files that were read; the last file has the weights."""
    if checkpoint is not None:
        return checkpoint.weights, checkpoint.files
    path = require(Path("outputs", cfg.init, "model.safetensors"))
    return read_weights(path), [path]


def load_pretrained(objective: nn.Module, model: Model, weights: Mapping[str, Tensor], source: Path) -> None:
    """Load pretrained weights into the model's `pretrained` parts.

    If the model is an encoder-decoder, load the weights into the whole objective, which contains the model.

    Args:
        objective: the objective that contains `model`.
        model: the model; its attribute `pretrained` lists the parts to load.
        weights: tensors by parameter name.
        source: the file of the weights, for messages.

    Raises: UsageError: the model has no pretrained part, or the weights do not fit it.
    """
    if isinstance(model, EncoderDecoder):
        put_weights(objective, weights, source)
        return
    if not model.pretrained:
        raise UsageError(
            f"{type(model).__name__} has no pretrained part; write init=random, or a recipe with an ELMo: "
            "recipe=taggers/elmo_tagger or recipe=coreference/mention_ranker_elmo"
        )
    for name, part in model.pretrained.items():
        put_weights(part, weights, source, prefix=f"model.{name}")


def freeze(model: Model) -> None:
    """Freeze the model's weights.

    Raises: UsageError: only parts of the model are pretrained, or the model has no head to train.
    """
    if isinstance(model, EncoderDecoder):
        raise UsageError(f"{type(model).__name__} writes labels as text and has no head to train; remove frozen=true")
    if [*model.pretrained.values()] != [model]:
        raise UsageError(
            f"only parts of {type(model).__name__} are pretrained; remove frozen=true"
            + (", or write model.frozen=true to freeze those parts" if "frozen" in vars(model) else "")
        )
    model.requires_grad_(False)


def initialise_input(model: Model, cfg: DictConfig, words: Sequence[str], pretrained: Pretrained | None) -> None:
    """Initialise the input layer with pretrained word vectors, if `embedding` names a file.

    With `cfg.freeze_embedding`, the layer is not trained. With `cfg.rescale=false`, the vectors keep their lengths. A
    line in the log has the numbers of words with a vector.

    Args:
        words: the word of each row of the input layer.

    Raises: UsageError: the model has no layer of word vectors, or the layer has another width.
    """
    if cfg.embedding == "random":
        if cfg.get("lookup") is not None:
            raise UsageError("lookup= is for word vectors from a file; write embedding=FILE, or remove lookup")
        if "rescale" in cfg:
            raise UsageError("rescale= is for word vectors from a file; write embedding=FILE, or remove rescale")
        if cfg.freeze_embedding:
            raise UsageError(
                "freeze_embedding=true would freeze random vectors; write embedding=FILE, or remove freeze_embedding"
            )
        return
    embedding = model.input_embedding
    if embedding is None or pretrained is None:
        raise UsageError(f"{type(model).__name__} has no layer of word vectors; write embedding=random")
    if (width := pretrained.vectors.shape[1]) != embedding.embedding_dim:
        name = "d_embedding" if "d_embedding" in cfg.model else "d_model"
        raise UsageError(
            f"the vectors of {cfg.embedding} have {width} dimensions, but the model's have {embedding.embedding_dim}; "
            f"write model.{name}={width}"
        )
    initialise_embedding(embedding, words, pretrained.words, pretrained.vectors, cfg.get("rescale", True))
    if cfg.freeze_embedding:
        embedding.requires_grad_(False)
    if is_main_process():
        print(f"embedding={cfg.embedding}: {summary(pretrained.coverage)}", file=sys.stderr)
        if pretrained.coverage["tokens"].get("train", 1) < FEWEST:
            print(f"warning: fewer than {FEWEST:.0%} of the training tokens have a vector; check the language and case "
                  "of the vectors", file=sys.stderr)  # fmt: skip
