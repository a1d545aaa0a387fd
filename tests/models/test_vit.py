"""Test the Vision Transformer against transformers' with the same weights, and against the paper's equations."""

import pytest
import torch
from torch import nn

from retable.data.images import ImageBatch
from retable.models.vit import ViT
from retable.objectives.image_classification import ImageClassification

transformers = pytest.importorskip("transformers")
SIZE, CHANNELS, PATCH, D, LAYERS, HEADS, L = 12, 3, 4, 16, 3, 2, 5


def make(**changed) -> ImageClassification:
    torch.manual_seed(0)
    settings = {"image_size": SIZE, "n_channels": CHANNELS, "patch_size": PATCH, "d_model": D, "n_layers": LAYERS,
                "n_heads": HEADS, "dropout": 0.0} | changed  # fmt: skip
    objective = ImageClassification(ViT(**settings), L, dropout=0.0)
    for parameter in objective.parameters():
        nn.init.normal_(parameter, std=0.3)
    return objective


def theirs(objective: ImageClassification):
    """Return transformers' model with our model's weights."""
    config = transformers.ViTConfig(
        image_size=SIZE, patch_size=PATCH, num_channels=CHANNELS, hidden_size=D, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4 * D, num_labels=L,
    )  # fmt: skip
    peer = transformers.ViTForImageClassification(config).eval()
    ours = objective.state_dict()
    weights = {
        "vit.embeddings.cls_token": ours["model.class_token"][None, None],
        "vit.embeddings.position_embeddings": ours["model.positions.weight"][None],
    }
    for end in ("weight", "bias"):
        weights[f"vit.embeddings.patch_embeddings.projection.{end}"] = ours[f"model.patches.{end}"]
        weights[f"vit.layernorm.{end}"] = ours[f"model.norm.{end}"]
        weights[f"classifier.{end}"] = ours[f"head.{end}"]
        for i in range(LAYERS):
            own, its = f"model.blocks.{i}", f"vit.layers.{i}"
            keys, values = ours[f"{own}.attention.key_value.{end}"].chunk(2)
            weights |= {f"{its}.attention.k_proj.{end}": keys, f"{its}.attention.v_proj.{end}": values}
            for name, called in (
                ("attention.query", "attention.q_proj"),
                ("attention.output", "attention.o_proj"),
                ("attention_norm", "layernorm_before"),
                ("feed_forward_norm", "layernorm_after"),
                ("expand", "mlp.fc1"),
                ("contract", "mlp.fc2"),
            ):
                weights[f"{its}.{called}.{end}"] = ours[f"{own}.{name}.{end}"]
    peer.load_state_dict(weights)
    return peer


def batch(rows: int = 4) -> ImageBatch:
    torch.manual_seed(1)
    return ImageBatch(torch.randn(rows, CHANNELS, SIZE, SIZE), torch.arange(rows) % L)


def test_equals_transformers_with_the_same_weights():
    objective, images = make().eval(), batch()
    peer = theirs(objective)
    found = peer(pixel_values=images.images, labels=images.labels)
    torch.testing.assert_close(objective(images), found.logits, atol=1e-4, rtol=1e-4)
    loss = objective.loss(images, None, 0)[0]
    torch.testing.assert_close(loss, found.loss, atol=1e-4, rtol=1e-4)
    loss.backward()
    found.loss.backward()
    torch.testing.assert_close(
        objective.model.patches.weight.grad, peer.vit.embeddings.patch_embeddings.projection.weight.grad,
        atol=1e-4, rtol=1e-3,
    )  # fmt: skip
    assert sum(p.numel() for p in objective.parameters()) == sum(p.numel() for p in peer.parameters())
