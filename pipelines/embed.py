"""Tokens → word vectors: `python -m pipelines.embed corpus=grammar model=skipgram seed=1`."""

from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def embed(cfg: DictConfig) -> None:
    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [require(folder / name) for name in ("tokenizer.json", "train.bin")]
    tokenizer = Tokenizer.load(inputs[0])
    tokens = read_tokens(inputs[1], tokenizer.vocab_size)
    counts = np.bincount(tokens, minlength=tokenizer.vocab_size)
    counts[tokenizer.boundary] = 0
    torch.manual_seed(cfg.seed)
    model = instantiate(cfg.model, vocab_size=tokenizer.vocab_size)
    objective = instantiate(cfg.objective, model=model, counts=counts, seed=cfg.seed)
    batches = instantiate(cfg.batches, tokens=tokens, counts=counts, boundary=tokenizer.boundary, seed=cfg.seed)
    with recorded(cfg, inputs, [folder], cfg.system, cfg.seed) as record:
        train(cfg, record, objective, batches, validate=lambda objective: {})


if __name__ == "__main__":
    embed()
