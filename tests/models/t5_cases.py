"""Small T5s of both versions, and transformers' T5s with the same weights."""

import torch
from torch import Tensor, nn

from retable.exchange.families import weights_in_transformers
from retable.models.t5 import T5

V, D, L, H, K, F = 31, 16, 2, 2, 5, 24
KINDS = {"v1.0": "relu", "v1.1": "geglu"}


def widened(model: nn.Module) -> nn.Module:
    """Draw weights far from initial ones, where normalisation has no effect and attention is uniform."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif "embedding" not in name and "head" not in name:
            nn.init.normal_(parameter, std=0.4)
    return model


def build(kind: str, dropout: float = 0.1) -> T5:
    torch.manual_seed(0)
    return widened(T5(V, D, L, H, F, dropout, KINDS[kind], d_head=K)).eval()


def transformers_t5(model: T5, kind: str, head: Tensor) -> nn.Module:
    """Return T5ForConditionalGeneration with the weights of `model` and of a head; in v1.0 the head is the
    embedding.
    """
    import transformers

    config = transformers.T5Config(
        vocab_size=V, d_model=D, d_kv=K, d_ff=F, num_layers=L, num_heads=H, dropout_rate=0.1,
        feed_forward_proj="relu" if kind == "v1.0" else "gated-gelu", tie_word_embeddings=kind == "v1.0",
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    theirs.lm_head.weight = nn.Parameter(head.detach().clone())  # transformers ties both in any configuration
    weights = weights_in_transformers(model)
    for side in ("encoder", "decoder"):
        weights[f"{side}.embed_tokens.weight"] = weights["shared.weight"]
    theirs.load_state_dict(weights | {"lm_head.weight": head})
    return theirs
