"""Small systems of each family with weights far from initial ones, and transformers' models of their exports."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from retable.exchange.card import Card
from retable.exchange.export import export
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.t5 import T5
from retable.objectives.causal_lm import CausalLM
from retable.objectives.masked_lm import MaskedLM
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.objectives.text_to_text import TextToText
from retable.tokenizers import byte_bpe, unigram, wordpiece
from retable.tokenizers.tokenizer import Tokenizer

LINES = ["the cat sees a bird", "a bird sees the cat , and it sees it", "no cat saw what the bird had seen"]
D, L, H, T = 16, 2, 4, 12


def bpe() -> Tokenizer:
    return byte_bpe.train(LINES, vocab_size=270)


def pieces() -> Tokenizer:
    return wordpiece.train(LINES, vocab_size=60, lowercase=True, alphabet=30)


def unigrams() -> Tokenizer:
    return unigram.train(LINES, vocab_size=130)


TOKENIZERS = {"gpt": bpe, "bert": pieces, "electra": pieces, "t5": unigrams}


def gpt(V: int, tie: bool = True, **settings: Any) -> CausalLM:
    return CausalLM(GPT(V, D, L, H, T, 0.1, **settings), V, tie=tie, bias=False, reduction="mean")


def bert(V: int, next_sentence: bool = True, **settings: Any) -> MaskedLM:
    return MaskedLM(BERT(V, D, L, H, T, 0.1, **settings), V, next_sentence)


def electra(V: int, d_embedding: int = 8, **settings: Any) -> ReplacedTokenDetection:
    small = partial(BERT, d_model=8, n_layers=1, n_heads=2, max_length=T, dropout=0.1, pooler=False)
    model = BERT(V, D, L, H, T, 0.1, d_embedding=d_embedding, pooler=False, **settings)
    return ReplacedTokenDetection(model, V, partial(small, d_embedding=d_embedding))


def t5(V: int, tie: bool = True, **settings: Any) -> TextToText:
    return TextToText(T5(V, D, L, H, 24, 0.1, d_head=5, **settings), V, tie)


SYSTEMS = {
    "gpt2": (gpt, {}, bpe),
    "gpt2, own softmax": (gpt, {"tie": False, "activation": "relu"}, bpe),
    "gpt, rotary": (gpt, {"positions": "rotary"}, bpe),
    "gpt, rotary, own softmax": (gpt, {"positions": "rotary", "tie": False, "activation": "silu"}, bpe),
    "bert": (bert, {}, pieces),
    "bert, masked alone": (bert, {"next_sentence": False, "pooler": False}, pieces),
    "bert, narrow": (bert, {"next_sentence": False, "pooler": False, "d_embedding": 8}, pieces),
    "bert, rotary": (bert, {"next_sentence": False, "norm": "pre", "positions": "rotary"}, pieces),
    "electra": (electra, {}, pieces),
    "electra, wide": (electra, {"d_embedding": D}, pieces),
    "t5": (t5, {}, unigrams),
    "t5 1.1": (t5, {"tie": False, "activation": "geglu"}, unigrams),
}


def system(name: str) -> tuple[Any, Tokenizer]:
    make, settings, tokenize = SYSTEMS[name]
    tokenizer = tokenize()
    torch.manual_seed(0)
    return widened(make(tokenizer.vocab_size, **settings)).eval(), tokenizer


def widened(module: nn.Module) -> nn.Module:
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=float("norm" in name and name.endswith("weight")), std=0.3)
    return module


def exported(trained: nn.Module, tokenizer: Tokenizer, folder: Path, **card: Any) -> Path:
    export(trained, tokenizer, folder, Card(**{"name": "tiny"} | card))
    return folder
