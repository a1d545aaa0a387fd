"""Test the import of sentence encoders: the vectors are those of transformers with the pooling of the checkpoint."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.core.settings import build
from retable.evaluation import sentence_encoder
from retable.evaluation.sentence_encoder import PooledEncoder
from retable.exchange.checkpoint import Checkpoint
from retable.exchange.sentence_transformers import pooling_files
from retable.inference.build import build_model
from retable.training.weights import put_weights
from tests.exchange.cases import exported, pieces, system

TEXTS = ["the cat sees a bird", "it", "", "No cat saw what the bird had seen , and it sees a bird", "a bird sees"]
TRANSFORMER, POOLING, NORMALIZE = (
    {"type": f"sentence_transformers.models.{name}", "path": path}
    for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
)


def headless(folder: Path) -> Any:
    """Write a random BERT without a head, as sentence-transformers stores one, and return it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    tokenizer = pieces()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 64}
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size, max_position_embeddings=12, initializer_range=0.5, **sizes
    )
    its = transformers.BertModel(config).eval()
    its.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return its


def sentence_files(folder: Path, mode: str = "mean_tokens", modules: Any = None, **settings: Any) -> None:
    modules = [TRANSFORMER, POOLING, NORMALIZE] if modules is None else modules
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, content in (("modules", modules), ("1_Pooling/config", modes), ("sentence_bert_config", settings)):
        (folder / f"{name}.json").write_text(json.dumps(content))


def encoder(folder: Path) -> PooledEncoder:
    checkpoint = Checkpoint(str(folder))
    assert checkpoint.encoder is not None
    model = build_model({"model": checkpoint.model}, checkpoint.tokenizer)
    put_weights(model, checkpoint.weights, folder, prefix="model.")
    return build(checkpoint.encoder, "encoder", PooledEncoder, model=model, tokenizer=checkpoint.tokenizer)


def expected(its: Any, mode: str, normalize: bool, max_length: int) -> np.ndarray:
    """Encode each text separately with transformers, with a pooling written from the definition."""
    tokenizer, rows = pieces(), []
    for text in TEXTS:
        first, last = (tokenizer.special_ids[mark] for mark in ("[CLS]", "[SEP]"))
        ids = [first, *tokenizer.encode(text)[: max_length - 2], last]
        with torch.no_grad():
            states = its(torch.tensor([ids])).last_hidden_state[0].numpy()
        rows.append({"mean_tokens": states.mean(0), "max_tokens": states.max(0), "cls_token": states[0],
                     "lasttoken": states[-1]}[mode])  # fmt: skip
    return np.stack([row / np.linalg.norm(row) if normalize else row for row in rows])


@pytest.mark.parametrize("mode", ["mean_tokens", "max_tokens", "cls_token", "lasttoken"])
@pytest.mark.parametrize(("normalize", "max_length"), [(True, 8), (False, None)])
def test_vectors_are_those_of_transformers(mode, normalize, max_length, tmp_path, monkeypatch):
    its = headless(tmp_path)
    sentence_files(tmp_path, mode, [TRANSFORMER, POOLING, NORMALIZE][: 2 + normalize], max_seq_length=max_length)
    monkeypatch.setattr(sentence_encoder, "CHUNK", 3)  # several chunks, and batches of one and of several texts
    monkeypatch.setattr(sentence_encoder, "BATCH_TOKENS", 16)
    ours = encoder(tmp_path).encode(TEXTS)
    assert ours.dtype == np.float32 and ours.shape == (5, 16)
    np.testing.assert_allclose(ours, expected(its, mode, normalize, max_length or 12), atol=1e-5)


def test_a_bert_without_files_of_sentence_transformers_has_the_mean(tmp_path):
    its = headless(tmp_path)
    np.testing.assert_allclose(encoder(tmp_path).encode(TEXTS), expected(its, "mean_tokens", False, 12), atol=1e-5)
    assert [path.name for path in Checkpoint(str(tmp_path)).files] == [
        "config.json", "tokenizer.json", "model.safetensors"
    ]  # fmt: skip


def test_a_checkpoint_with_a_head_is_an_encoder_only_with_files_of_sentence_transformers(tmp_path):
    exported(*system("bert"), tmp_path)
    assert Checkpoint(str(tmp_path)).encoder is None
    sentence_files(tmp_path)
    encoder(tmp_path).encode(TEXTS)
    assert [str(path.relative_to(tmp_path)) for path in pooling_files(tmp_path)] == [
        "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer_config.json"
    ]  # fmt: skip
    exported(*system("gpt2"), tmp_path / "gpt")
    assert Checkpoint(str(tmp_path / "gpt")).encoder is None


@pytest.mark.parametrize(("limit", "longest"), [(8, 8), (10**30, 12)])
def test_the_files_of_version_6_have_other_keys(limit, longest, tmp_path):
    its = headless(tmp_path)
    sentence_files(tmp_path, transformer_task="feature-extraction")
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"embedding_dimension": 16, "pooling_mode": "cls"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": limit}))
    ours = encoder(tmp_path)
    assert (ours.pooling, ours.normalize, ours.max_length) == ("first", True, longest)
    np.testing.assert_allclose(ours.encode(TEXTS), expected(its, "cls_token", True, longest), atol=1e-5)
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": ["cls", "mean"]}))
    with pytest.raises(UsageError, match=r"1_Pooling/config.json has cls and mean, but exactly one of mean, max, cls"):
        encoder(tmp_path)


DENSE = {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}


def test_a_training_from_a_checkpoint_ignores_modules(tmp_path):
    """For example LaBSE: its modules are not computed, but it can be fine-tuned. Its record has only files it reads."""
    headless(tmp_path)
    sentence_files(tmp_path, modules=[TRANSFORMER, POOLING, DENSE])
    checkpoint = Checkpoint(str(tmp_path))
    assert [path.name for path in checkpoint.files] == ["config.json", "tokenizer.json", "model.safetensors"]
    exported(*system("bert"), tmp_path / "headed")
    sentence_files(tmp_path / "headed", modules=[TRANSFORMER, POOLING, DENSE])
    assert Checkpoint(str(tmp_path / "headed")).encoder is None
    exported(*system("gpt2"), tmp_path / "gpt")
    (tmp_path / "gpt/modules.json").write_text("{")
    assert Checkpoint(str(tmp_path / "gpt")).encoder is None


@pytest.mark.parametrize(("of_tokenizer", "settings", "expected"), [
    ({"model_max_length": 8}, {}, 8), ({"model_max_length": 1e30}, {}, 12), ({}, {}, 12),
    ({"model_max_length": 8}, {"max_seq_length": 10}, 10),
])  # fmt: skip
def test_the_maximum_length_may_be_that_of_the_tokenizer(of_tokenizer, settings, expected, tmp_path):
    """In sentence-transformers, too: `Transformer` takes the smaller of the limits of the model and the tokenizer."""
    headless(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(of_tokenizer))
    assert pooling_files(tmp_path) == [tmp_path / "tokenizer_config.json"]
    assert encoder(tmp_path).max_length == min(of_tokenizer.get("model_max_length", 12), 12)
    sentence_files(tmp_path, **settings)
    assert encoder(tmp_path).max_length == expected
    assert tmp_path / "tokenizer_config.json" in pooling_files(tmp_path)


def test_a_default_prompt_is_refused(tmp_path):
    headless(tmp_path)
    sentence_files(tmp_path)
    for prompt in (None, "query"):
        content = {"prompts": {"query": "query: "}, "default_prompt_name": prompt}
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(content))
        if prompt is None:
            encoder(tmp_path)
    with pytest.raises(UsageError, match=r"default_prompt_name=query, but Retable puts no prompt before a text; use"):
        encoder(tmp_path)


def test_a_maximum_length_without_place_for_a_word_is_refused():
    class Unlimited:
        max_length = None

    for length, most in ((1, 3), (2, 3)):
        with pytest.raises(UsageError, match=rf"encoder.max_length={length} is out of range; write 3 to {most}"):
            PooledEncoder(Unlimited(), pieces(), "mean", True, length)


@pytest.mark.parametrize(("files", "message"), [
    ({"mode": "mean_sqrt_len_tokens"}, r"1_Pooling/config.json has no pooling, but exactly one of mean, max, cls"),
    ({"modules": [TRANSFORMER, POOLING, DENSE]}, r"modules.json lists the modules Transformer, Pooling, Dense, but"),
    ({"modules": [POOLING]}, r"modules.json lists the modules Pooling, but only Transformer, Pooling and Normal"),
    ({"modules": []}, r"modules.json lists the modules of no known class, but only"),
    ({"modules": ["Transformer"]}, r"modules.json lists the modules of no known class, but only"),
    ({"modules": {}}, r"modules.json cannot be read: the file does not contain a JSON array"),
    ({"modules": [TRANSFORMER, POOLING | {"path": "../x"}]}, r"modules.json: the Transformer must be in the"),
    ({"modules": [TRANSFORMER | {"path": "0_Transformer"}, POOLING]}, r"modules.json: the Transformer must be in the"),
    ({"max_seq_length": 2}, r"sentence_bert_config.json: max_seq_length=2 is out of range; write 3 to 12"),
    ({"max_seq_length": "long"}, r"sentence_bert_config.json: max_seq_length=long is out of range; write 3 to 12"),
])  # fmt: skip
def test_poolings_that_are_not_computed_are_refused(files, message, tmp_path):
    headless(tmp_path)
    sentence_files(tmp_path, **files)
    with pytest.raises(UsageError, match=message):
        encoder(tmp_path)


def test_damaged_files_have_one_line(tmp_path):
    headless(tmp_path)
    sentence_files(tmp_path, do_lower_case=True)  # without effect, since the tokenizer converts to lower case
    encoder(tmp_path)
    (tmp_path / "1_Pooling/config.json").write_text("{")
    with pytest.raises(UsageError, match=r"1_Pooling/config.json cannot be read: "):
        encoder(tmp_path)
    (tmp_path / "1_Pooling/config.json").unlink()
    with pytest.raises(UsageError, match=r"1_Pooling/config.json cannot be read: "):
        encoder(tmp_path)


def test_a_setting_of_sentence_transformers_that_the_tokenizer_contradicts_is_refused(tmp_path):
    from retable.tokenizers import wordpiece
    from tests.exchange.cases import LINES

    headless(tmp_path)
    sentence_files(tmp_path, do_lower_case=True)
    size = pieces().vocab_size
    wordpiece.train([*LINES, "A Bird"], vocab_size=size, lowercase=False, alphabet=30).save(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match=r"has do_lower_case=true, but the tokenizer keeps capitals"):
        encoder(tmp_path)
