"""Models and objectives of ours as a folder that transformers loads: weights, configuration, tokenizer, model card."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from retable.core.errors import UsageError
from retable.exchange.card import Card, write_card
from retable.exchange.families import (
    Family,
    counterpart,
    generator_of,
    settings_of_head,
    weights_in_transformers,
)
from retable.objectives.regression import Regression
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.tokenizers.tokenizer import UNKNOWN, Tokenizer

# transformers' names of a tokenizer's marks, with those that ours may have.
MARKS = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", UNKNOWN),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
}


def export(trained: nn.Module, tokenizer: Tokenizer, folder: Path, card: Card, labels: Sequence[str] = ()) -> None:
    """Write `trained`, an objective or a model alone, as transformers' `save_pretrained` would, with its tokenizer.

    Of an ELECTRA that is the discriminator; the generator goes to `generator/` in the folder.

    `labels` are the names of a classifier's, in the order of its logits. The folder may be there already. UsageError
    for a system that transformers can't express, and where the tokenizer is another than the model's.
    """
    family, head, ours = counterpart(trained)
    if ours["vocab_size"] < tokenizer.vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, and the model only {ours['vocab_size']}; give it the "
            "tokenizer that the model was trained with"
        )
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_in_transformers(trained)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    marks = _marks(family, tokenizer)
    ids = {name: tokenizer.words.index(word) for name, word in marks.items()}
    configuration: dict[str, Any] = (
        {"architectures": [head.architecture], "model_type": family.model_type, "dtype": "float32"}
        | family.configuration(ours)
        | {f"{name}_id": ids.get(name) for name in ("bos_token", "eos_token", "pad_token")}
    )
    if (tie := settings_of_head(trained).get("objective.tie")) is not None:
        configuration["tie_word_embeddings"] = tie
    if head.task in ("text-classification", "token-classification"):
        names = labels or [f"LABEL_{i}" for i in range(len(weights["classifier.weight"]))]
        configuration["id2label"] = {str(i): name for i, name in enumerate(names)}
        configuration["label2id"] = {name: i for i, name in enumerate(names)}
    if isinstance(trained, Regression):
        configuration["problem_type"] = "regression"
    _write(folder / "config.json", configuration)
    if head.task in ("text-generation", "text2text-generation"):
        of_generation = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        _write(folder / "generation_config.json", {name: configuration.get(name) for name in of_generation})
    _write_tokenizer(family, tokenizer, marks, ours.get("max_length"), folder)
    write_card(card, folder / "README.md", head.architecture, head.task, [family.model_type])
    if isinstance(trained, ReplacedTokenDetection):
        its = Card(f"{card.name}-generator", card.about, card.license, card.datasets)
        export(generator_of(trained), tokenizer, folder / "generator", its)


def _marks(family: Family, tokenizer: Tokenizer) -> dict[str, str]:
    """What stands for transformers' marks: of BERT, whose sequences have marks of their own, no beginning and end."""
    words = {*tokenizer.words}
    marks = {name: next((word for word in several if word in words), None) for name, several in MARKS.items()}
    if family.model_type == "gpt2":
        marks |= dict.fromkeys(("bos_token", "eos_token"), tokenizer.words[tokenizer.boundary])
    elif family.model_type == "t5":
        end = "</s>" if "</s>" in words else tokenizer.words[[tokenizer.boundary, *tokenizer.encode("\n")][-1]]
        marks["eos_token"] = end
    return {name: word for name, word in marks.items() if word is not None}


def _write_tokenizer(
    family: Family, tokenizer: Tokenizer, marks: dict[str, str], max_length: int | None, folder: Path
) -> None:
    """`tokenizer.json`, which puts a model's own marks round a text, and what transformers wants to know beside it."""
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    template = {"bert": "[CLS] $A [SEP]", "electra": "[CLS] $A [SEP]", "t5": f"$A {marks.get('eos_token')}"}
    if family.model_type in template:
        single = template[family.model_type]
        used = [(mark, tokenizer.words.index(mark)) for mark in single.split() if mark in tokenizer.words]
        if len(used) == len(single.split()) - 1:
            pair = {"t5": f"{single} {single.replace('$A', '$B')}"}.get(family.model_type, f"{single} $B:1 [SEP]:1")
            its = HuggingFaceTokenizer.from_file(str(path))
            its.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=used)
            its.save(str(path))
    inputs = ["input_ids", "attention_mask"]
    if family.model_type in ("bert", "electra"):
        inputs.insert(1, "token_type_ids")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **marks}
    lengths = {} if max_length is None else {"model_max_length": max_length}
    _write(folder / "tokenizer_config.json", settings | lengths | {"model_input_names": inputs})
    _write(folder / "special_tokens_map.json", marks)


def _write(path: Path, facts: dict[str, Any]) -> None:
    kept = {name: value for name, value in facts.items() if value is not None or not name.endswith("_id")}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
