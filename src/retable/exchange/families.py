"""Convert settings, weights and heads of GPT, BERT, ELECTRA and T5 between Retable and transformers.

Import and export use the same description of each family of models. If a setting of one library has no counterpart in
the other library, an error names the setting. Two variants of our models have other names in transformers: StarCoder2
computes the same function as our GPT with rotary positions, and ESM the same function as our BERT with rotary positions
and the norm before each layer.

In this module, "our" refers to Retable and "their" to transformers.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.exchange.layers import Layer, Layers, layer, to_theirs, under
from retable.models.base import DelimitedLeftToRight, LeftToRight, Model
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.t5 import ACTIVATIONS as GATES
from retable.models.t5 import T5
from retable.nn.transformer import ACTIVATIONS
from retable.objectives.answer_as_text import AnswerAsText
from retable.objectives.answer_span import AnswerSpan
from retable.objectives.base import embedding_of
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.multiple_choice import MultipleChoice
from retable.objectives.regression import Regression
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.objectives.summary_as_text import SummaryAsText
from retable.objectives.tagging import Tagging
from retable.objectives.text_to_text import TextToText

Settings = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """A class of the library transformers, and Retable's objective or model that computes the same function."""

    architecture: str  # name of the class in transformers
    ours: type[nn.Module]  # Retable's class
    layers: Layers = field(default_factory=dict)
    needs: Mapping[str, Any] = field(default_factory=dict)  # Retable's settings with the values that the class needs
    leaves: tuple[str, ...] = ()  # prefixes of weights that are not exported, as outputs do not need these weights
    task: str | None = None  # name of the task on the hub
    pretrains: bool = True  # whether the head is for pretraining, so that all tasks can start from the checkpoint
    remote: bool = False  # whether the class is in modeling_pooled.py, which is copied into the export


@dataclass(frozen=True)
class Family:
    """The models with one `model_type` in transformers.

    `settings` maps each of Retable's settings to the settings of transformers' `config.json` with the same value.
    """

    name: str
    model_type: str
    model: type[Model]
    prefix: str  # prefix of the model's weight names in a class with a head
    settings: Mapping[str, tuple[str, ...]]
    silent: Mapping[str, Any]  # default values of settings that a config.json may omit
    fixed: Mapping[str, Any]  # settings of config.json for which Retable supports only these values
    needs: Mapping[str, Any]  # Retable's settings for which the library transformers supports only these values
    layers: Callable[[Settings], Layers]
    heads: tuple[Head, ...]
    # Maps Retable's name of an activation to transformers' names of it; an export uses the first name.
    activations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    width: str | None = None  # setting of config.json that must be four times the model's width
    has_segments: bool = True  # if False, exports add segment 0 to token embeddings, and text pairs are not supported
    renamed: Mapping[str, str] = field(default_factory=dict)  # maps names after conversion to the names in files
    unused: Callable[[Settings], dict[str, Tensor]] = lambda ours: {}  # weights of a file that do not affect logits

    def configuration(self, ours: Settings) -> Settings:
        """Convert Retable's settings to the contents of `config.json`."""
        theirs = dict(self.fixed)
        for setting, names in self.settings.items():
            value = ours["d_model"] if ours[setting] is None else ours[setting]  # for d_embedding, None means d_model
            theirs |= dict.fromkeys(names, self.activations[value][0] if setting == "activation" else value)
        return theirs | ({self.width: 4 * ours["d_model"]} if self.width else {})

    def read(self, config: Settings, where: str) -> Settings:
        """Convert the contents of `config.json` to the settings of Retable's model.

        where: path of the file `config.json`, for messages.

        Raises: UsageError: Retable's model does not support a setting or value of the file.
        """
        theirs = {**self.fixed, **self.silent, **config}
        words = {their: our for our, several in self.activations.items() for their in several}
        ours = {setting: theirs[names[0]] for setting, names in self.settings.items()}
        expected = dict(self.fixed) | ({self.width: 4 * ours["d_model"]} if self.width else {})
        for setting, (first, *others) in self.settings.items():
            expected |= {} if setting == "dropout" else dict.fromkeys(others, theirs[first])
        for name, value in expected.items():
            if theirs.get(name, value) not in (value, None):
                raise UsageError(
                    f"{where}: {name}={_text(theirs[name])}, but {self.name} is only supported with "
                    f"{name}={_text(value)}; use another checkpoint"
                )
        if self.activations:
            if ours["activation"] not in words:
                raise UsageError(
                    f"{where}: {self.settings['activation'][0]}={ours['activation']}, but {self.name} is only "
                    f"supported with one of {', '.join(words)}; use another checkpoint"
                )
            ours["activation"] = words[ours["activation"]]
        if ours.get("d_embedding") == ours["d_model"]:
            del ours["d_embedding"]
        defaults = inspect.signature(self.model).parameters
        needs = {name.removeprefix("model."): value for name, value in self.needs.items()}
        return ours | {name: value for name, value in needs.items() if value != defaults[name].default}


def settings_of(model: Model) -> Settings:
    """Return the settings of a model of Retable that determine which function it computes.

    Raises: UsageError: the model cannot be exported.
    """
    positions = {"learnt": getattr(model, "positions", None), "rotary": getattr(model, "rotations", None)}
    known = next((name for name, table in positions.items() if table is not None), "sinusoidal")
    blocks: Any
    match model:
        case GPT() if not isinstance(model, DelimitedLeftToRight):
            blocks = model.blocks
            more = {
                "max_length": model.max_length,
                "norm": blocks[0].norm,
                "positions": known,
                "activation": _name(ACTIVATIONS, blocks[0].activation),
                "bias": blocks[0].expand.bias is not None,
                "separate_documents": model.separate_documents,
                "initializer_range": model.initializer_range,
            }
        case BERT():
            blocks, d_embedding = model.blocks, model.embedding.embedding_dim
            more = {
                "max_length": model.max_length,
                "norm": blocks[0].norm,
                "positions": known,
                "d_embedding": None if d_embedding == model.d_model else d_embedding,
                "pooler": model.pooler is not None,
                "initializer_range": model.initializer_range,
            }
        case T5():
            blocks = model.encoder.blocks
            more = {
                "d_ff": blocks[0].contract.in_features,
                "d_head": blocks[0].attention.query.out_features // blocks[0].attention.n_heads,
                "activation": _name(GATES, blocks[0].activation),
            }
        case _:
            raise UsageError(
                f"transformers has no class for {type(model).__name__}; export a GPT, BERT, ELECTRA or T5, "
                "such as recipe=bert/bert_small"
            )
    return {
        "vocab_size": model.embedding.num_embeddings,
        "d_model": model.d_model,
        "n_layers": len(blocks),
        "n_heads": blocks[0].attention.n_heads,
        "dropout": blocks[0].dropout.p,
    } | more


def settings_of_head(objective: nn.Module) -> Settings:
    """Return the settings of an objective, by configuration name, that determine its class in transformers."""
    match objective:
        case CausalLM():
            return {
                "objective.tie": _ties(objective.head, objective.model),
                "objective.bias": objective.head.bias is not None,
                "objective.projection": objective.projection_penalty,
            }
        case MaskedLM():
            return {
                "objective.tie": _ties(objective.head.decoder, objective.model),
                "objective.next_sentence": objective.next_sentence is not None,
            }
        case TextToText():
            return {"objective.tie": _ties(objective.head, objective.model)}
        case Classification():
            head: Any = objective.head
            return {
                "pooling": objective.pooling,
                "d_hidden": None if isinstance(head, nn.Linear) else head[0].out_features,
                "pairs": objective.pairs,
            }
        case Tagging():
            features = True if objective.features is not None else None
            return {"crf": objective.crf is not None, "task.features": features}
    return {}


def _ties(softmax: nn.Linear, model: Model) -> bool:
    return softmax.weight is embedding_of(model).weight


def counterpart(trained: nn.Module) -> tuple[Family, Head, Settings]:
    """Find the class of transformers that computes the same function as one of Retable's models or objectives.

    Returns: the family, the head, and the settings of Retable's model.

    Raises: UsageError: there is no such class; the message names the settings to change.
    """
    model: Any = trained if isinstance(trained, Model) else trained.model
    ours = settings_of(model)
    of_model = [(family, head) for family in FAMILIES for head in family.heads if isinstance(model, family.model)]
    candidates = [(family, head) for family, head in of_model if type(trained) is head.ours]
    if not candidates:
        known = sorted({head.ours.__name__ for _, head in of_model})
        raise UsageError(
            f"transformers has no class for {type(model).__name__} with {type(trained).__name__} as objective; it has "
            f"classes for {', '.join(known)}"
        )
    settings = {f"model.{name}": value for name, value in ours.items()} | settings_of_head(trained)
    closest: tuple[Head, Settings] | None = None
    for family, head in candidates:
        needs = {**family.needs, **head.needs}
        if family.activations and ours["activation"] not in family.activations:
            needs["model.activation"] = next(iter(family.activations))
        needs = {name: value for name, value in needs.items() if settings[name] != value}
        if not needs:
            return family, head, ours
        if closest is None or len(needs) < len(closest[1]):
            closest = head, needs
    assert closest is not None
    head, needs = closest
    raise UsageError(
        f"{head.architecture} of transformers has no {_listed({name: settings[name] for name in needs})}; train a "
        f"system with {_listed(needs)} to export it"
    )


def weights_in_transformers(trained: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model or objective under transformers' names.

    The names are for the class of transformers that `counterpart` finds.

    The weights of a softmax layer that is tied to the embedding are omitted. Regression weights are scaled so that the
    exported model predicts scores on the task's scale.
    """
    family, head, ours = counterpart(trained)
    layers, alone = family.layers(ours), isinstance(trained, Model)
    if not alone:
        layers = under("model.", layers, "model." if head.remote else family.prefix) | dict(head.layers)
    parameters = trained.named_parameters()
    weights: dict[str, Tensor] = {name: weight for name, weight in parameters if not name.startswith(head.leaves)}
    if isinstance(trained, Regression):
        matrix, bias, scale = weights["head.weight"], weights["head.bias"], trained.high - trained.low
        weights |= {"head.weight": scale * matrix, "head.bias": scale * bias + trained.low}
    if not family.has_segments:
        ours_at = "" if alone else "model."
        embedding = weights[f"{ours_at}embedding.weight"]
        if isinstance(trained, MaskedLM):  # the softmax layer uses the embedding without the added segment
            weights.setdefault("head.decoder.weight", embedding)
        weights[f"{ours_at}embedding.weight"] = embedding + weights.pop(f"{ours_at}segments.weight")[0]
    theirs = {family.renamed.get(name, name): weight for name, weight in to_theirs(layers, weights).items()}
    theirs_at = "" if alone else "model." if head.remote else family.prefix
    return theirs | {theirs_at + name: weight for name, weight in family.unused(ours).items()}


def pooling_of(objective: Classification) -> str:
    """Return the name that modeling_pooled.py uses for the pooling of a classifier."""
    pooling = objective.pooling or ("last" if isinstance(objective.model, LeftToRight) else "token")
    return {"token": "first"}.get(pooling, pooling)


def generator_of(objective: ReplacedTokenDetection) -> MaskedLM:
    """Return the generator of an ELECTRA as a masked language model."""
    alone = MaskedLM(objective.generator, objective.generator_head.decoder.out_features, next_sentence=False)
    alone.head = objective.generator_head
    return alone


def _name(table: Mapping[str, Any], function: Any) -> str:
    return next(name for name, each in table.items() if each in (function, type(function)))


def _listed(settings: Settings) -> str:
    return " ".join(f"{name}={_text(value)}" for name, value in settings.items())


def _text(value: Any) -> str:
    """Format a value as in YAML."""
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def _tagging(architecture: str, their_head: str, leaves: tuple[str, ...] = ()) -> Head:
    return Head(
        architecture,
        Tagging,
        {"head": layer(their_head)},
        needs={"crf": False, "task.features": None},
        leaves=leaves,
        task="token-classification",
        pretrains=False,
    )


def _pooled(needs: Settings, leaves: tuple[str, ...] = ()) -> tuple[Head, ...]:
    """Return the heads of modeling_pooled.py, for text classifiers that have no class in transformers."""
    return tuple(
        Head(
            "PooledForSequenceClassification",
            ours,
            {"head": layer("head")},
            needs=needs | {"d_hidden": None, "pairs": False},
            leaves=leaves,
            task="text-classification",
            pretrains=False,
            remote=True,
        )
        for ours in (Classification, Regression)
    )


_CAUSAL_LM = {"objective.bias": False, "objective.projection": 0.0}
_GPT_NEEDS = {"model.norm": "pre", "model.bias": True, "model.separate_documents": False}
GPT2 = Family(
    name="GPT-2",
    model_type="gpt2",
    model=GPT,
    prefix="transformer.",
    settings={
        "vocab_size": ("vocab_size",),
        "d_model": ("n_embd",),
        "n_layers": ("n_layer",),
        "n_heads": ("n_head",),
        "max_length": ("n_positions",),
        "dropout": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        "activation": ("activation_function",),
        "initializer_range": ("initializer_range",),
    },
    activations={"gelu": ("gelu_new", "gelu_pytorch_tanh"), "relu": ("relu",), "silu": ("silu", "swish")},
    silent={
        **{"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_inner": None},
        **{"resid_pdrop": 0.1, "activation_function": "gelu_new", "initializer_range": 0.02},
    },
    fixed={
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    needs=_GPT_NEEDS | {"model.positions": "learnt"},
    width="n_inner",
    layers=lambda ours: {
        "embedding": layer("wte"),
        "positions": layer("wpe"),
        "norm": layer("ln_f"),
        "blocks.{}.attention_norm": layer("h.{}.ln_1"),
        "blocks.{}.attention.query_key_value": layer("h.{}.attn.c_attn", turned=True),
        "blocks.{}.attention.output": layer("h.{}.attn.c_proj", turned=True),
        "blocks.{}.feed_forward_norm": layer("h.{}.ln_2"),
        "blocks.{}.expand": layer("h.{}.mlp.c_fc", turned=True),
        "blocks.{}.contract": layer("h.{}.mlp.c_proj", turned=True),
    },
    heads=(
        Head(
            "GPT2LMHeadModel",
            CausalLM,
            {"head": layer("lm_head")},
            needs=_CAUSAL_LM,
            task="text-generation",
        ),
        _tagging("GPT2ForTokenClassification", "classifier"),
        *_pooled({}),
        Head("GPT2Model", GPT),
    ),
)


def _starcoder2_layers(ours: Settings) -> dict[str, Layer]:
    d_head = ours["d_model"] // ours["n_heads"]
    attention = "layers.{}.self_attn"
    projections = [f"{attention}.{name}_proj" for name in "qkv"]
    return {
        "embedding": layer("embed_tokens"),
        "norm": layer("norm"),
        "blocks.{}.attention_norm": layer("layers.{}.input_layernorm"),
        "blocks.{}.attention.query_key_value": layer(*projections, n_rotated=2, d_head=d_head),
        "blocks.{}.attention.output": layer(f"{attention}.o_proj"),
        "blocks.{}.feed_forward_norm": layer("layers.{}.post_attention_layernorm"),
        "blocks.{}.expand": layer("layers.{}.mlp.c_fc"),
        "blocks.{}.contract": layer("layers.{}.mlp.c_proj"),
    }


STARCODER2 = Family(
    name="StarCoder2",
    model_type="starcoder2",
    model=GPT,
    prefix="model.",
    settings={
        "vocab_size": ("vocab_size",),
        "d_model": ("hidden_size",),
        "n_layers": ("num_hidden_layers",),
        "n_heads": ("num_attention_heads", "num_key_value_heads"),
        "max_length": ("max_position_embeddings",),
        "dropout": ("residual_dropout", "embedding_dropout", "attention_dropout"),
        "activation": ("hidden_act",),
        "initializer_range": ("initializer_range",),
    },
    activations={"gelu": ("gelu_pytorch_tanh", "gelu_new"), "relu": ("relu",), "silu": ("silu", "swish")},
    silent={
        **{"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30},
        **{"num_attention_heads": 24, "num_key_value_heads": 2, "max_position_embeddings": 4096},
        **{"residual_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.018042},
    },
    fixed={
        "norm_epsilon": 1e-5,
        "use_bias": True,
        "sliding_window": None,
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    needs=_GPT_NEEDS | {"model.positions": "rotary"},
    width="intermediate_size",
    layers=_starcoder2_layers,
    heads=(
        Head(
            "Starcoder2ForCausalLM",
            CausalLM,
            {"head": layer("lm_head")},
            needs=_CAUSAL_LM,
            task="text-generation",
        ),
        _tagging("Starcoder2ForTokenClassification", "score"),
        *_pooled({}),
        Head("Starcoder2Model", GPT),
    ),
)


def _bert_layers(ours: Settings) -> dict[str, Layer]:
    return {
        "embedding": layer("embeddings.word_embeddings"),
        "positions": layer("embeddings.position_embeddings"),
        "segments": layer("embeddings.token_type_embeddings"),
        "embedding_norm": layer("embeddings.LayerNorm"),
        "projection": layer("embeddings_project"),  # only in ELECTRA
        "blocks.{}.attention.query": layer("encoder.layer.{}.attention.self.query"),
        "blocks.{}.attention.key_value": layer(
            "encoder.layer.{}.attention.self.key", "encoder.layer.{}.attention.self.value"
        ),
        "blocks.{}.attention.output": layer("encoder.layer.{}.attention.output.dense"),
        "blocks.{}.attention_norm": layer("encoder.layer.{}.attention.output.LayerNorm"),
        "blocks.{}.expand": layer("encoder.layer.{}.intermediate.dense"),
        "blocks.{}.contract": layer("encoder.layer.{}.output.dense"),
        "blocks.{}.feed_forward_norm": layer("encoder.layer.{}.output.LayerNorm"),
        "pooler": layer("pooler.dense"),
    }


_BERT_SETTINGS = {
    "vocab_size": ("vocab_size",),
    "d_model": ("hidden_size",),
    "n_layers": ("num_hidden_layers",),
    "n_heads": ("num_attention_heads",),
    "max_length": ("max_position_embeddings",),
    "dropout": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "initializer_range": ("initializer_range",),
}
_BERT_FIXED = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
_BERT_NEEDS = {"model.norm": "post", "model.positions": "learnt"}
_MASKED_LM = {
    "head.dense": layer("cls.predictions.transform.dense"),
    "head.norm": layer("cls.predictions.transform.LayerNorm"),
    "head.decoder": layer("cls.predictions"),  # converts only the bias, because the matrix is tied to the embedding
}
_SUMMED_UP = {"model.pooler": True, "pooling": None, "d_hidden": None}


def _of_tokens(name: str) -> tuple[Head, ...]:
    """Return the heads for tagging and question answering, which are the same for BERT and ELECTRA."""
    tagging = _tagging(f"{name}ForTokenClassification", "classifier", ("model.pooler.",))
    rows = {"start": layer("qa_outputs", row=0), "end": layer("qa_outputs", row=1)}
    reading = Head(
        f"{name}ForQuestionAnswering",
        AnswerSpan,
        rows,
        leaves=("model.pooler.",),
        task="question-answering",
        pretrains=False,
    )
    return tagging, reading


BERTS = Family(
    name="BERT",
    model_type="bert",
    model=BERT,
    prefix="bert.",
    settings=_BERT_SETTINGS,
    silent={
        **{"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        **{"intermediate_size": 3072, "max_position_embeddings": 512, "hidden_dropout_prob": 0.1},
        **{"initializer_range": 0.02},
    },
    fixed=_BERT_FIXED,
    needs=_BERT_NEEDS | {"model.d_embedding": None},
    width="intermediate_size",
    layers=_bert_layers,
    heads=(
        Head(
            "BertForPreTraining",
            MaskedLM,
            _MASKED_LM | {"next_sentence": layer("cls.seq_relationship")},
            needs={"objective.tie": True, "objective.next_sentence": True},
            task="fill-mask",
        ),
        Head(
            "BertForMaskedLM",
            MaskedLM,
            _MASKED_LM,
            needs={"objective.tie": True, "objective.next_sentence": False},
            leaves=("model.pooler.",),
            task="fill-mask",
        ),
        *(
            Head(
                "BertForSequenceClassification",
                ours,
                {"head": layer("classifier")},
                needs=_SUMMED_UP,
                task="text-classification",
                pretrains=False,
            )
            for ours in (Classification, Regression)
        ),
        Head(
            "BertForMultipleChoice",
            MultipleChoice,
            {"head": layer("classifier", row=0)},
            needs=_SUMMED_UP,
            task="multiple-choice",
            pretrains=False,
        ),
        *_of_tokens("Bert"),
        *_pooled({"model.pooler": True}),
        Head("BertModel", BERT, needs={"model.pooler": True}),
    ),
)
ELECTRAS = Family(
    name="ELECTRA",
    model_type="electra",
    model=BERT,
    prefix="electra.",
    settings=_BERT_SETTINGS | {"d_embedding": ("embedding_size",)},
    silent={
        **{"vocab_size": 30522, "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 12},
        **{"num_attention_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 512},
        **{"hidden_dropout_prob": 0.1, "initializer_range": 0.02},
    },
    fixed=_BERT_FIXED,
    needs=_BERT_NEEDS,
    width="intermediate_size",
    layers=_bert_layers,
    heads=(
        Head(
            "ElectraForPreTraining",
            ReplacedTokenDetection,
            {
                "dense": layer("discriminator_predictions.dense"),
                "head": layer("discriminator_predictions.dense_prediction"),
            },
            leaves=("generator.", "generator_head.", "model.pooler."),
        ),
        Head(
            "ElectraForMaskedLM",
            MaskedLM,
            {
                "head.dense": layer("generator_predictions.dense"),
                "head.norm": layer("generator_predictions.LayerNorm"),
                "head.decoder": layer("generator_lm_head"),
            },
            needs={"objective.tie": True, "objective.next_sentence": False},
            leaves=("model.pooler.",),
            task="fill-mask",
        ),
        *_of_tokens("Electra"),
        *_pooled({"model.pooler": False}),
        Head("ElectraModel", BERT, needs={"model.pooler": False}),
    ),
)


def _esm_layers(ours: Settings) -> dict[str, Layer]:
    d_head, attention = ours["d_model"] // ours["n_heads"], "encoder.layer.{}.attention"
    return {
        "embedding": layer("embeddings.word_embeddings"),
        "embedding_norm": layer("embeddings.layer_norm"),
        "norm": layer("encoder.emb_layer_norm_after"),
        "blocks.{}.attention_norm": layer(f"{attention}.LayerNorm"),
        "blocks.{}.attention.query": layer(f"{attention}.self.query", n_rotated=1, d_head=d_head),
        "blocks.{}.attention.key_value": layer(
            f"{attention}.self.key", f"{attention}.self.value", n_rotated=1, d_head=d_head
        ),
        "blocks.{}.attention.output": layer(f"{attention}.output.dense"),
        "blocks.{}.feed_forward_norm": layer("encoder.layer.{}.LayerNorm"),
        "blocks.{}.expand": layer("encoder.layer.{}.intermediate.dense"),
        "blocks.{}.contract": layer("encoder.layer.{}.output.dense"),
        "pooler": layer("pooler.dense"),
    }


def _unused_of_esm(ours: Settings) -> dict[str, Tensor]:
    """Return weights that a file of ESM must contain, but that do not affect logits.

    These are the frequencies of rotary positions and a head for proteins.
    """
    width = ours["d_model"] // ours["n_heads"]
    return {
        "rotary_embeddings.inv_freq": 1 / 10000 ** (torch.arange(0, width, 2) / width),
        "contact_head.regression.weight": torch.zeros(1, ours["n_layers"] * ours["n_heads"]),
        "contact_head.regression.bias": torch.zeros(1),
    }


ESMS = Family(
    name="ESM",
    model_type="esm",
    model=BERT,
    prefix="esm.",
    settings=_BERT_SETTINGS,
    silent={
        **{"vocab_size": None, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
        **{"intermediate_size": 3072, "max_position_embeddings": 1026, "hidden_dropout_prob": 0.1},
        **{"initializer_range": 0.02, "position_embedding_type": "absolute", "emb_layer_norm_before": False},
    },
    fixed={
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "rotary",
        "rope_theta": 10000.0,
        "emb_layer_norm_before": True,
        "token_dropout": False,
        "is_folding_model": False,
        "is_decoder": False,
        "add_cross_attention": False,
    },
    needs={"model.norm": "pre", "model.positions": "rotary", "model.d_embedding": None},
    width="intermediate_size",
    has_segments=False,
    renamed={"lm_head.decoder.bias": "lm_head.bias"},
    unused=_unused_of_esm,
    layers=_esm_layers,
    heads=(
        Head(
            "EsmForMaskedLM",
            MaskedLM,
            {
                "head.dense": layer("lm_head.dense"),
                "head.norm": layer("lm_head.layer_norm"),
                "head.decoder": layer("lm_head.decoder"),
            },
            needs={"objective.next_sentence": False},
            leaves=("model.pooler.",),
            task="fill-mask",
        ),
        *(
            Head(
                "EsmForSequenceClassification",
                ours,
                {"model.pooler": layer("classifier.dense"), "head": layer("classifier.out_proj")},
                needs=_SUMMED_UP | {"pairs": False},
                task="text-classification",
                pretrains=False,
            )
            for ours in (Classification, Regression)
        ),
        _tagging("EsmForTokenClassification", "classifier", ("model.pooler.",)),
        *_pooled({"model.pooler": True}),
        Head("EsmModel", BERT, needs={"model.pooler": True}),
    ),
)


def _t5_layers(ours: Settings) -> dict[str, Layer]:
    expanded = ("wi_0", "wi_1") if ours["activation"] == "geglu" else ("wi",)
    layers = {"embedding": layer("shared")}
    for side, attentions in (
        ("encoder", {"attention": "SelfAttention"}),
        ("decoder", {"attention": "SelfAttention", "crossing": "EncDecAttention"}),
    ):
        ours_at, theirs_at = f"{side}.blocks.{{}}", f"{side}.block.{{}}.layer"
        layers[f"{side}.positions.numbers"] = layer(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias")
        layers[f"{side}.norm"] = layer(f"{side}.final_layer_norm")
        for number, (our, their) in enumerate(attentions.items()):
            at = f"{theirs_at}.{number}.{their}"
            layers |= {
                f"{ours_at}.{our}_norm": layer(f"{theirs_at}.{number}.layer_norm"),
                f"{ours_at}.{our}.query": layer(f"{at}.q"),
                f"{ours_at}.{our}.key_value": layer(f"{at}.k", f"{at}.v"),
                f"{ours_at}.{our}.output": layer(f"{at}.o"),
            }
        at = f"{theirs_at}.{len(attentions)}"
        layers |= {
            f"{ours_at}.feed_forward_norm": layer(f"{at}.layer_norm"),
            f"{ours_at}.expand": layer(*(f"{at}.DenseReluDense.{name}" for name in expanded)),
            f"{ours_at}.contract": layer(f"{at}.DenseReluDense.wo"),
        }
    return layers


T5S = Family(
    name="T5",
    model_type="t5",
    model=T5,
    prefix="",
    settings={
        "vocab_size": ("vocab_size",),
        "d_model": ("d_model",),
        "n_layers": ("num_layers", "num_decoder_layers"),
        "n_heads": ("num_heads",),
        "d_ff": ("d_ff",),
        "dropout": ("dropout_rate",),
        "activation": ("feed_forward_proj",),
        "d_head": ("d_kv",),
    },
    activations={"relu": ("relu",), "geglu": ("gated-gelu",)},
    silent={
        **{"vocab_size": 32128, "d_model": 512, "num_layers": 6, "num_heads": 8, "d_ff": 2048, "d_kv": 64},
        **{"dropout_rate": 0.1, "feed_forward_proj": "relu"},
    },
    fixed={
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "is_encoder_decoder": True,
        "decoder_start_token_id": TextToText.start_id,
    },
    needs={},
    layers=_t5_layers,
    heads=(
        *(
            Head("T5ForConditionalGeneration", ours, {"head": layer("lm_head")}, task="text2text-generation")
            for ours in (TextToText, LabelsAsText, AnswerAsText, SummaryAsText)
        ),
        Head("T5Model", T5),
    ),
)
FAMILIES = (GPT2, STARCODER2, BERTS, ELECTRAS, ESMS, T5S)
