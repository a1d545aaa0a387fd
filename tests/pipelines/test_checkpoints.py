"""`init=hf:…` and `init=` of a cell: stages that begin with weights of transformers, or of another pretraining."""

import json

import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf

from pipelines.checkpoint import take_over
from retable.errors import UsageError
from retable.exchange.checkpoint import Checkpoint
from retable.training.weights import read_weights
from tests.exchange.cases import exported
from tests.pipelines.recipes import composed

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
ROWS = [("the cat sees a bird", 0), ("a bird sees the cat", 1), ("it sees it", 0), ("no cat saw it", 1)] * 10
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "max_position_embeddings": 32}
BERTISH = SIZES | {"intermediate_size": 64}


def write(folder, model: str, **settings):
    """A random checkpoint of transformers itself, with a tokenizer of ours."""
    from tests.exchange.cases import TOKENIZERS

    family = {"Bert": "bert", "GPT2": "gpt", "T5Fo": "t5", "Elec": "electra"}[model[:4]]
    tokenizer = TOKENIZERS[family]()
    kind = getattr(transformers, model)
    torch.manual_seed(1)
    its = kind(kind.config_class(vocab_size=tokenizer.vocab_size + 3, **settings))
    its.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return its


@pytest.fixture(scope="module")
def bert(project):
    folder = project.folder / "tiny-bert"
    return write(folder, "BertForPreTraining", **BERTISH)


@pytest.fixture(scope="module")
def labelled(project):
    """Files of a small task of sentences, as SST-2 has them."""
    folder = project.folder / "data/glue/SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        pd.DataFrame(ROWS, columns=["sentence", "label"]).to_csv(folder / f"{split}.tsv", sep="\t", index=False)
    pd.DataFrame(ROWS, columns=["sentence", "label"])["sentence"].to_csv(folder / "test.tsv", sep="\t", index_label="index")
    return project


FAST = ("task=sst2", "epochs=1", "+checkpoint_every=100", "RETABLE")[:2]


def test_a_checkpoint_is_fine_tuned(labelled, bert):
    done = labelled.run("train", *FAST, "recipe=bert/bert", "init=hf:tiny-bert", "out=tuned", RETABLE_DATA="data")
    assert done.returncode == 0, done.stderr
    cell = labelled.folder / "outputs/train/tuned"
    cfg = OmegaConf.load(cell / "config.yaml")
    assert (cfg.model.d_model, cfg.model.norm if "norm" in cfg.model else "post", cfg.model.dropout) == (16, "post", 0.1)
    assert cfg.init == {"_target_": "retable.exchange.checkpoint.Checkpoint", "name": "tiny-bert"}
    run = json.loads((cell / "run.json").read_text())
    assert "tiny-bert/model.safetensors" in run["digests"] and "outputs/encode" not in str(run["digests"])
    assert (cell / "tokenizer.json").read_bytes() == (labelled.folder / "tiny-bert/tokenizer.json").read_bytes()
    weights = read_weights(cell / "model.safetensors")
    table = bert.bert.embeddings.word_embeddings.weight
    assert (weights["model.embedding.weight"] - table).abs().max() < 0.05  # a few steps from where it began
