"""Load checkpoints of transformers, from a folder or the hub, as Retable's models, objectives and tokenizers."""

import json
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from retable.core.errors import UsageError, reading
from retable.core.escaping import in_one_line
from retable.core.hub import locate
from retable.core.settings import check, shown
from retable.exchange.families import FAMILIES, Family, Head, Settings
from retable.exchange.layers import Layers, to_ours, under
from retable.exchange.sentence_transformers import has_pooling, read_pooling
from retable.models.bert import BERT
from retable.models.t5 import T5
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.text_to_text import TextToText
from retable.tokenizers.pretrained import read_tokenizer, tokenizer_files
from retable.tokenizers.tokenizer import Tokenizer

SHORTEST = 3  # tokens: [CLS], one token of the text, [SEP]
# Files to download. Other files of a repository on the hub, such as weights in other libraries' formats, are not
# needed.
SNAPSHOT = ("*.json", "*.txt", "*.safetensors", "pytorch_model*.bin")
SOFTMAXES = (CausalLM, TextToText)  # objectives whose head is only a softmax layer, which may be tied to the embedding
ENCODER = "retable.evaluation.sentence_encoder.PooledEncoder"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class Checkpoint:
    """A checkpoint of GPT-2, StarCoder2, BERT, ELECTRA, ESM or T5 in the format of transformers.

    Args:
        name: a folder; or a name on Hugging Face's hub, such as `openai-community/gpt2`, to download. A commit, tag or
            branch may follow, as in `openai-community/gpt2@main`.
        max_length: maximum number of tokens of a text, if it is to be lower than the checkpoint's. A table of learnt
            positions loses its other rows.

    Raises: UsageError: the checkpoint does not exist, no model of Retable computes the same function, or `max_length`
        is out of range.
    """

    def __init__(self, name: str, max_length: int | None = None):
        self.name, self.folder = locate(name, SNAPSHOT)  # the name of a checkpoint of the hub ends in its commit
        self._path = path = self.folder / "config.json"
        try:
            self._config: Settings = _read_json(path)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error}); write a folder that save_pretrained has written"
            ) from None
        kind = self._config.get("model_type")
        family = next((family for family in FAMILIES if family.model_type == kind), None)
        if family is None:
            known = ", ".join(family.model_type for family in FAMILIES)
            raise UsageError(f"{path}: model_type={kind}, but only {known} are supported; use another checkpoint")
        self._family: Family = family
        try:
            self._settings = family.read(self._config, str(path))
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path} lacks settings of a {family.name} ({error}); download it again") from None
        self._positions = most = self._settings.get("max_length", 0)
        if max_length is not None:
            if not SHORTEST <= max_length <= most:
                hint = f"write {SHORTEST} to {most}" if most else "the checkpoint has no maximum; leave it out"
                raise UsageError(f"model.max_length={max_length} is out of range; {hint}")
            self._settings = self._settings | {"max_length": max_length}
        check({"_target_": _full_name(family.model)} | self._settings, str(path))

    @property
    def files(self) -> list[Path]:
        """All files of the checkpoint that are read, except the files of its pooling."""
        return [self.folder / "config.json", *tokenizer_files(self.folder), *self._weight_files]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = read_tokenizer(self.folder)
        if tokenizer.vocab_size > self._settings["vocab_size"]:
            raise UsageError(
                f"{tokenizer_files(self.folder)[0]} has {tokenizer.vocab_size} tokens, but the model has only "
                f"{self._settings['vocab_size']}; use another checkpoint"
            )
        return tokenizer

    @cached_property
    def model(self) -> Settings:
        """The settings of Retable's model: the class, under `_target_`, and its arguments."""
        if self._settings["n_layers"] > len(self._theirs):
            raise UsageError(
                f"{self.folder}: config.json lists {self._settings['n_layers']} layers, but there are fewer weights; "
                "the checkpoint is incomplete or of another model: download it again"
            )
        arguments = self._settings
        if self._family.model is BERT:
            pooler = self._layers["model.pooler"].names[0]
            arguments = arguments | {"pooler": f"{pooler}.weight" in self._theirs}
        with reading(self._path, ValueError), torch.device("meta"):
            self._family.model(**arguments)  # raises an error for incompatible sizes; `reading` adds the file's name
        return {"_target_": _full_name(self._family.model)} | arguments

    @property
    def objective(self) -> Settings | None:
        """The settings of the pretraining objective, in the same format as `model`.

        The result is None if the checkpoint has no head, or a head that is not for pretraining.
        """
        if self._head is None or not self._head.pretrains:
            return None
        needs = {name.removeprefix("objective."): value for name, value in self._head.needs.items()}
        tied = {"tie": self._tied} if self._head.ours in SOFTMAXES else {}
        if self._head.ours is MaskedLM and not self._tied:
            tied = {"tie": False}
        return {"_target_": _full_name(self._head.ours)} | needs | tied

    @cached_property
    def encoder(self) -> Settings | None:
        """The settings of the sentence encoder, in the same format as `model`.

        The result is None if the model is not a BERT. It is also None if the BERT has a head, unless the checkpoint's
        `modules.json` lists only modules that Retable computes.

        Raises: UsageError: Retable does not compute the checkpoint's pooling.
        """
        if self._family.model is not BERT or (self._head is not None and not has_pooling(self.folder)):
            return None
        lowercases = self.tokenizer.encode("A") == self.tokenizer.encode("a")
        pooling = read_pooling(self.folder, self._settings["max_length"], lowercases)
        return {"_target_": ENCODER} | pooling

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The weights in fp32 under Retable's names: `model.…`, and the weights of the objective or of a task's head.

        The weights of a regression head are for Retable's regression objective with `low=0, high=1`.
        """
        with torch.device("meta"):
            model: nn.Module = self._family.model(**{k: v for k, v in self.model.items() if k != "_target_"})
        shapes = {f"model.{name}": weight.shape for name, weight in model.named_parameters()}
        ours = to_ours(self._layers, shapes, self._theirs)
        if (positions := ours.get("model.positions.weight")) is not None and len(positions) == self._positions:
            ours["model.positions.weight"] = positions[: self._settings["max_length"]]
        if not self._family.has_segments:
            ours["model.segments.weight"] = torch.zeros(shapes["model.segments.weight"])
        wrong = next((name for name, shape in shapes.items() if name not in ours or ours[name].shape != shape), None)
        if wrong is not None:
            raise UsageError(
                f"{self.folder}: the weights lack {wrong.removeprefix('model.')} as config.json describes it; the "
                "checkpoint is incomplete or of another model: download it again"
            )
        return ours | self._of_head()

    @cached_property
    def _layers(self) -> Layers:
        """The table that maps layer names of Retable's model to layers of transformers.

        In transformers, some of these layers belong to the head.
        """
        of_head = {} if self._head is None else self._head.layers
        layers = under("model.", self._family.layers(self._settings), self._prefix)
        return layers | {name: each for name, each in of_head.items() if name.startswith("model.")}

    @cached_property
    def _head(self) -> Head | None:
        """A head whose weights are all in the checkpoint, or None if there is no such head.

        If several heads are complete, a head for pretraining is preferred, then a head that `config.json` names. A head
        that is tied to the embedding needs no weights of its own.
        """
        complete = [
            head
            for head in self._family.heads
            if head.layers and (head.ours in SOFTMAXES or head.layers.keys() == self._layers_of(head))
        ]
        named = [head for head in complete if head.architecture in (self._config.get("architectures") or ())]
        # A head that can be tied to the embedding is always complete, even if config.json names another head, for a
        # task.
        pretrain = [head for head in complete if head.pretrains and (head in named or head.ours not in SOFTMAXES)]
        return next(iter([*pretrain, *named, *complete]), None)

    def _layers_of(self, head: Head) -> set[str]:
        return {name.rpartition(".")[0] for name in self._read_head(head)}

    def _of_head(self) -> dict[str, Tensor]:
        if self._head is None or (self._head.ours in SOFTMAXES and self._tied):
            return {}
        own = {"head.weight": self._theirs[self._embedding]} if self._head.ours in SOFTMAXES else {}
        return own | self._read_head(self._head)

    def _read_head(self, head: Head) -> dict[str, Tensor]:
        names = [f"{layer}.{kind}" for layer in head.layers for kind in ("weight", "bias")]
        if head.ours is MaskedLM and self._tied:
            names.remove("head.decoder.weight")
        return to_ours(head.layers, names, self._theirs)

    @property
    def _tied(self) -> bool:
        """Whether the softmax layer is tied to the embedding.

        In Retable, a tied T5 scales the inputs of the softmax layer, as T5 1.0 does. T5 1.1 has a separate softmax
        layer. If a checkpoint of T5 1.1 ties this layer, the inputs are not scaled, so the result is False.
        """
        tied = self._config.get("tie_word_embeddings") is not False
        return bool(self._config.get("scale_decoder_outputs", tied)) if self._family.model is T5 else tied

    @property
    def _embedding(self) -> str:
        return self._prefix + self._family.layers(self._settings)["embedding"].names[0] + ".weight"

    @property
    def _prefix(self) -> str:
        return self._family.prefix

    @cached_property
    def _theirs(self) -> dict[str, Tensor]:
        """The weights in fp32 under transformers' names, including `Family.prefix`."""
        weights: dict[str, Tensor] = {}
        for path in self._weight_files:
            if path.suffix == ".json":
                continue
            weights |= _read_weights(path)
        ours = {new: old for old, new in self._family.renamed.items()}
        named = {ours.get(name, _renamed(name)): weight.float() for name, weight in weights.items()}
        if any(name.startswith(self._prefix) for name in named):
            return named
        return {self._prefix + name: weight for name, weight in named.items()}

    @cached_property
    def _weight_files(self) -> list[Path]:
        """The file of weights; for sharded weights, the index and the files that the index lists."""
        for name in WEIGHTS:
            path = self.folder / name
            if path.is_file() and path.suffix != ".json":
                return [path]
            if path.is_file():
                weight_map: Any = _read_json(path).get("weight_map")
                shards = [*weight_map.values()] if isinstance(weight_map, dict) else [weight_map]
                for shard in shards:
                    exists = isinstance(shard, str) and Path(shard).name == shard and (self.folder / shard).is_file()
                    if not exists:
                        raise UsageError(
                            f"{path} lists {shown(shard)}, which is not a file in that folder; download it again"
                        )
                return [path, *(self.folder / shard for shard in sorted({*shards}))]
        raise UsageError(f"{self.folder} has no weights; it needs one of the files {', '.join(WEIGHTS)}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError):
        contents = None
    if not isinstance(contents, dict):
        raise UsageError(f"{path} is damaged; download it again, or let save_pretrained write it")
    return contents


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights without executing code.

    Raises: UsageError: the file is damaged, or contains anything except finite weights.
    """
    try:
        read = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except UnpicklingError:
        raise UsageError(
            f"{path} is refused: it contains more than weights, and loading it could run code; use a checkpoint with "
            "a model.safetensors"
        ) from None
    except Exception as error:  # for a damaged file, the libraries raise many types of exceptions
        raise UsageError(f"{path} is damaged ({in_one_line(str(error))[:200]}); download it again") from None
    if not isinstance(read, dict) or not all(isinstance(each, Tensor) for each in read.values()):
        raise UsageError(f"{path} does not map names to weights; use a checkpoint that save_pretrained has written")
    if not all(weight.isfinite().all() for weight in read.values()):
        raise UsageError(f"{path} is damaged: some weights are not finite; download it again")
    return {str(name): weight for name, weight in read.items()}


def _renamed(name: str) -> str:
    """Return the current name of a weight; `name` may come from a BERT checkpoint made before 2019."""
    layer, _, kind = name.rpartition(".")
    return ".".join([layer, {"gamma": "weight", "beta": "bias"}.get(kind, kind)])


def _full_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
