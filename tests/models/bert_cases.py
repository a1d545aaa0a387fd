from torch import Tensor

from retable.models.bert import BERT


def names_in_transformers(model: BERT) -> dict[str, Tensor]:
    """The weights of a BERT by their names in transformers, whose queries, keys and values have a matrix each."""
    top = {
        "embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "segments": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "projection": "embeddings_project",
        "pooler": "pooler.dense",
    }
    inside = {
        "attention.query": "attention.self.query",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "expand": "intermediate.dense",
        "contract": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    weights = {}
    for name, parameter in model.named_parameters():
        layer, _, kind = name.rpartition(".")
        if not layer.startswith("blocks"):
            weights[f"{top[layer]}.{kind}"] = parameter
            continue
        _, number, layer = layer.split(".", 2)
        if layer == "attention.key_value":
            for part, half in zip(("key", "value"), parameter.chunk(2), strict=True):
                weights[f"encoder.layer.{number}.attention.self.{part}.{kind}"] = half
        else:
            weights[f"encoder.layer.{number}.{inside[layer]}.{kind}"] = parameter
    return weights
