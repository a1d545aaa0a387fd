"""Train word vectors on tokens: `python -m pipelines.embed corpus=grammar recipe=vectors/skipgram seed=1`."""

from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.models.vector_files import write_word2vec
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def embed(cfg: DictConfig) -> None:
    import torch

    from pipelines.app.training import train

    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [require(folder / name) for name in ("tokenizer.json", "train.bin")]
    tokenizer = Tokenizer.load(inputs[0])
    tokens = read_tokens(inputs[1], tokenizer.vocab_size)
    counts = np.bincount(tokens, minlength=tokenizer.vocab_size)
    counts[tokenizer.boundary] = 0
    seen = [(i, tokenizer.words[i]) for i in np.flatnonzero(counts)]  # words that do not occur get no vector
    if spaced := next((word for _, word in seen if word.split() != [word]), None):
        raise UsageError(
            f"the token {spaced!r} contains white space, which word-vector files do not allow; write tokenizer=word"
        )
    if cfg.word_by_word and cfg.clip_norm is not None:
        raise UsageError("word_by_word=true does not clip gradients; write clip_norm=null, or word_by_word=false")
    if cfg.word_by_word and cfg.trainer.get("strategy") == "fsdp":
        raise UsageError(
            "word_by_word=true needs all weights in each process; write trainer=ddp, or word_by_word=false"
        )
    torch.manual_seed(cfg.seed)
    model = build(cfg.model, "model", words=tokenizer.words)
    objective = build(cfg.objective, "objective", model=model, counts=counts)
    facts = {"tokens": tokens, "counts": counts, "boundary": tokenizer.boundary, "seed": cfg.seed}
    batches = build(cfg.batches, "batches", **facts)
    learner = objective
    if cfg.word_by_word:
        from retable.objectives.word_by_word import WordByWord

        torch.set_num_threads(1)  # PyTorch does little work here, and its idle threads would slow WordByWord's threads

        learner = WordByWord(objective, cfg.threads)
    with run_folder(cfg, inputs, [folder], cfg.system, cfg.seed, corpus=chosen("corpus")) as record:
        train(cfg, record, learner, batches, validation=None)
        tokenizer.save(record.folder / "tokenizer.json")
        ids, words = zip(*seen, strict=True)
        write_word2vec(record.folder / "vectors.bin", words, objective.vectors().numpy()[list(ids)])


if __name__ == "__main__":
    embed()
