"""Tokens → word vectors: `python -m pipelines.embed corpus=grammar model=skipgram seed=1`."""

from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require
from retable.models.word2vec_format import write_word2vec
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
    model = instantiate(cfg.model, words=tokenizer.words)
    objective = instantiate(cfg.objective, model=model, counts=counts)
    batches = instantiate(cfg.batches, tokens=tokens, counts=counts, boundary=tokenizer.boundary, seed=cfg.seed)
    learner = objective
    if cfg.word_by_word:
        from retable.objectives.word_by_word import WordByWord

        learner = WordByWord(objective, cfg.threads)
    with recorded(cfg, inputs, [folder], cfg.system, cfg.seed) as record:
        train(cfg, record, learner, batches, validate=lambda objective: {})
        # In the order of the ids; a word that the text lacks has no vector.
        seen = np.flatnonzero(counts)
        vectors = objective.vectors().numpy()[seen]
        write_word2vec(record.folder / "vectors.bin", [tokenizer.words[i] for i in seen], vectors)


if __name__ == "__main__":
    embed()
