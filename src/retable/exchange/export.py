"""Export Retable's models and objectives for transformers: weights, configuration, tokenizer, model card."""

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from retable.core.errors import UsageError
from retable.exchange.card import Card, write_card
from retable.exchange.families import (
    Family,
    Head,
    Settings,
    counterpart,
    generator_of,
    pooling_of,
    settings_of_head,
    weights_in_transformers,
)
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.t5 import T5
from retable.objectives.classification import Classification
from retable.objectives.regression import Regression
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.tokenizers.tokenizer import UNKNOWN, Tokenizer

# Maps each special token of transformers to the tokens that Retable's tokenizers may use for this purpose.
MARKS = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", UNKNOWN),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
}
OF_LABELS = ("text-classification", "token-classification")


def export(trained: nn.Module, tokenizer: Tokenizer, folder: Path, card: Card, labels: Sequence[str] = ()) -> None:
    """Write an objective or a model in the format of transformers' `save_pretrained`, with its tokenizer.

    For an ELECTRA, the discriminator is written to `folder`, and the generator to the subfolder `generator/`.

    Args:
        trained: the objective or model to export.
        tokenizer: the tokenizer that the model was trained with.
        folder: the folder to write to; it may exist.
        card: contents of the model card.
        labels: names of a classifier's labels, in the order of the logits. The default names are LABEL_0, LABEL_1 and
            so on.

    Raises: UsageError: transformers has no class for the system, or the tokenizer has more tokens than the model.
    """
    family, head, ours = counterpart(trained)
    if ours["vocab_size"] < tokenizer.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, but the model has only {ours['vocab_size']}; use the "
            "tokenizer that the model was trained with"
        )
    marks = _marks(family, tokenizer)
    if family.model_type == "esm" and "pad_token" not in marks:
        raise UsageError(
            f"{head.architecture} of transformers needs a tokenizer with [PAD]; train with tokenizer=word_marked"
        )
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_in_transformers(trained)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ids = {name: tokenizer.words.index(word) for name, word in marks.items()}
    configuration: Settings = {"model_type": family.model_type} | family.configuration(ours)
    configuration |= {f"{name}_id": ids.get(name) for name in ("bos_token", "eos_token", "pad_token")}
    if isinstance(trained, Classification) and head.remote:
        configuration = _remote(configuration, trained, folder)
    configuration |= {"architectures": [head.architecture], "dtype": "float32"}
    if "objective.tie" in settings_of_head(trained):
        configuration["tie_word_embeddings"] = not {"lm_head.weight", "lm_head.decoder.weight"} & weights.keys()
    if head.task in OF_LABELS:
        softmax: Any = trained.head
        names = labels or [f"LABEL_{i}" for i in range(softmax.out_features)]
        configuration["id2label"] = {str(i): name for i, name in enumerate(names)}
        configuration["label2id"] = {name: i for i, name in enumerate(names)}
    if isinstance(trained, Regression):
        configuration["problem_type"] = "regression"
    _write(folder / "config.json", configuration)
    if head.task in ("text-generation", "text2text-generation"):
        of_generation = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        _write(folder / "generation_config.json", {name: configuration.get(name) for name in of_generation})
    _write_tokenizer(family, head, tokenizer, marks, ours.get("max_length"), folder)
    write_card(card, folder / "README.md", head.architecture, head.task, [family.model_type], head.remote)
    if isinstance(trained, ReplacedTokenDetection):
        generator_card = Card(f"{card.name}-generator", card.about, card.license, card.datasets)
        export(generator_of(trained), tokenizer, folder / "generator", generator_card)


def _remote(configuration: Settings, trained: Classification, folder: Path) -> Settings:
    """Copy modeling_pooled.py into the folder; return the configuration of the file's class, including the backbone."""
    name = "modeling_pooled"
    copyfile(Path(__file__).with_name(f"{name}.py"), folder / f"{name}.py")
    auto_map = {
        "AutoConfig": f"{name}.PooledConfig",
        "AutoModelForSequenceClassification": f"{name}.PooledForSequenceClassification",
    }
    head = {"pooling": pooling_of(trained), "dropout": trained.dropout.p}
    return {"model_type": "retable_pooled", "auto_map": auto_map, "backbone": _without_absent(configuration)} | head


def _marks(family: Family, tokenizer: Tokenizer) -> dict[str, str]:
    """Return a map from transformers' names of special tokens to the tokens that the tokenizer uses for them."""
    words = {*tokenizer.words}
    marks = {name: next((word for word in several if word in words), None) for name, several in MARKS.items()}
    if family.model is GPT:
        marks |= dict.fromkeys(("bos_token", "eos_token"), tokenizer.words[tokenizer.boundary])
    elif family.model is T5:
        end = "</s>" if "</s>" in words else _end_of_line(tokenizer)
        marks["eos_token"] = end
    return {name: word for name, word in marks.items() if word is not None}


def _end_of_line(tokenizer: Tokenizer) -> str:
    return tokenizer.words[[tokenizer.boundary, *tokenizer.encode("\n")][-1]]


def _template(family: Family, head: Head, tokenizer: Tokenizer, marks: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return two templates, for a single text and for a pair, with the special tokens that the model reads.

    Language models read no special tokens.
    """
    if family.model is BERT:
        single = ["[CLS]", "$A", "[SEP]"]
        return single, [*single, "$B:1", "[SEP]:1"]
    if family.model is T5:
        end = marks["eos_token"]
        return ["$A", end], ["$A", end, "$B", end]
    if head.task in OF_LABELS:
        begin, end = tokenizer.words[tokenizer.boundary], _end_of_line(tokenizer)
        return [begin, "$A", end], [begin, "$A", end, "$B", end]
    return ["$A"], ["$A", "$B"]


def _write_tokenizer(
    family: Family, head: Head, tokenizer: Tokenizer, marks: dict[str, str], max_length: int | None, folder: Path
) -> None:
    """Write the files of the tokenizer; `tokenizer.json` adds the special tokens that the model reads around a text."""
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    single, pair = _template(family, head, tokenizer, marks)
    needed = {mark for mark in single if mark != "$A"}
    if needed and needed <= {*tokenizer.words}:
        exported = HuggingFaceTokenizer.from_file(str(path))
        used = [(mark, tokenizer.words.index(mark)) for mark in sorted(needed)]
        exported.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=used)
        exported.save(str(path))
    if family.model is GPT and head.task in OF_LABELS:  # batches with texts of several lengths need padding
        marks = {"pad_token": marks["eos_token"]} | marks
    inputs = ["input_ids", "attention_mask"]
    if family.model_type in ("bert", "electra"):
        inputs.insert(1, "token_type_ids")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **marks}
    lengths = {} if max_length is None else {"model_max_length": max_length}
    _write(folder / "tokenizer_config.json", settings | lengths | {"model_input_names": inputs})
    _write(folder / "special_tokens_map.json", marks)


def _write(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(_without_absent(facts), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _without_absent(facts: dict[str, Any]) -> dict[str, Any]:
    """Remove ids that are None, which stand for special tokens that the tokenizer lacks."""
    return {name: value for name, value in facts.items() if value is not None or not name.endswith("_id")}
