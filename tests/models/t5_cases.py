"""Small T5s of both kinds, and transformers' with the same weights."""

import torch
from torch import Tensor, nn

from retable.models.t5 import T5

V, D, L, H, K, F = 31, 16, 2, 2, 5, 24
KINDS = {"v1.0": "relu", "v1.1": "geglu"}


def widened(model: nn.Module) -> nn.Module:
    """Weights far from the start, where norms are idle and attention flat."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
        elif "embedding" not in name and "head" not in name:
            nn.init.normal_(parameter, std=0.4)
    return model


def build(kind: str, dropout: float = 0.1) -> T5:
    torch.manual_seed(0)
    return widened(T5(V, D, L, H, F, dropout, KINDS[kind], d_head=K)).eval()


def transformers_names(model: T5) -> dict[str, Tensor]:
    """The weights of `model` under the names of transformers' T5ForConditionalGeneration, less its head."""
    weights = {f"{name}.weight": model.embedding.weight for name in ("shared", "encoder.embed_tokens")}
    weights["decoder.embed_tokens.weight"] = model.embedding.weight
    for side in ("encoder", "decoder"):
        stack = getattr(model, side)
        first = f"{side}.block.0.layer.0.SelfAttention"
        weights[f"{first}.relative_attention_bias.weight"] = stack.positions.numbers.weight
        weights[f"{side}.final_layer_norm.weight"] = stack.norm.weight
        for i, block in enumerate(stack.blocks):
            layers = [("SelfAttention", block.attention, block.attention_norm)]
            if side == "decoder":
                layers.append(("EncDecAttention", block.crossing, block.crossing_norm))
            for j, (name, attention, norm) in enumerate(layers):
                at = f"{side}.block.{i}.layer.{j}"
                keys, values = attention.key_value.weight.chunk(2)
                parts = {"q": attention.query.weight, "k": keys, "v": values, "o": attention.output.weight}
                weights |= {f"{at}.{name}.{part}.weight": weight for part, weight in parts.items()}
                weights[f"{at}.layer_norm.weight"] = norm.weight
            at = f"{side}.block.{i}.layer.{len(layers)}"
            gated = len(block.expand.weight) == 2 * F
            inner = dict(zip(["wi_0", "wi_1"], block.expand.weight.chunk(2), strict=True)) if gated else {}
            inner = inner or {"wi": block.expand.weight}
            weights |= {f"{at}.DenseReluDense.{name}.weight": weight for name, weight in inner.items()}
            weights[f"{at}.DenseReluDense.wo.weight"] = block.contract.weight
            weights[f"{at}.layer_norm.weight"] = block.feed_forward_norm.weight
    return weights


def transformers_t5(model: T5, kind: str, head: Tensor) -> nn.Module:
    """T5ForConditionalGeneration with the weights of `model` and of a head, its own or, in v1.0, the embedding."""
    import transformers

    config = transformers.T5Config(
        vocab_size=V, d_model=D, d_kv=K, d_ff=F, num_layers=L, num_heads=H, dropout_rate=0.1,
        feed_forward_proj="relu" if kind == "v1.0" else "gated-gelu", tie_word_embeddings=kind == "v1.0",
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(config).eval()
    theirs.lm_head.weight = nn.Parameter(head.detach().clone())  # it ties the two whatever the configuration says
    theirs.load_state_dict({**transformers_names(model), "lm_head.weight": head})
    return theirs
