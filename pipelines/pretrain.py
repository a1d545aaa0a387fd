"""Train a language model on tokens: `python -m pipelines.pretrain corpus=grammar recipe=recurrent/lstm seed=1`."""

import os
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import chosen
from retable.core.artifacts import require, root
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.inference.build import build_batches, build_counted, build_model, build_objective, takes_setting
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def pretrain(cfg: DictConfig) -> None:
    if cfg.get("encoder") is not None:
        adopt(cfg)
    elif cfg.objective is None:
        count(cfg)
    else:
        learn(cfg)


def count(cfg: DictConfig) -> None:
    """Estimate a model from counts, in closed form."""
    if cfg.init != "random":
        raise UsageError("a count-based model cannot start from other weights; remove init=")
    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [require(folder / name) for name in ("tokenizer.json", "train.bin")]
    tokenizer = Tokenizer.load(inputs[0])
    model = build_counted(cfg, tokenizer)
    with run_folder(cfg, inputs, [folder], cfg.system, cfg.seed, corpus=chosen("corpus")) as record:
        model.estimate(read_tokens(inputs[1], tokenizer.vocab_size))
        model.save(record.folder / "model.safetensors")
        tokenizer.save(record.folder / "tokenizer.json")


def adopt(cfg: DictConfig) -> None:
    """Copy the weights, the tokenizer and the pooling of a checkpoint, which is a trained sentence encoder."""
    from retable.exchange.sentence_transformers import pooling_files
    from retable.training.weights import put_weights, save_weights

    checkpoint = build(cfg.init, "init")
    model = build_model(cfg, checkpoint.tokenizer)
    put_weights(model, checkpoint.weights, checkpoint.files[-1], prefix="model.")
    # raises UsageError for a setting that does not fit the model
    build(cfg.encoder, "encoder", model=model, tokenizer=checkpoint.tokenizer)
    cfg.tokens = None  # the encoder has its own tokenizer, and its texts are not encoded in advance
    inputs = [*checkpoint.files, *pooling_files(checkpoint.folder)]
    with run_folder(cfg, inputs, [], cfg.system, cfg.seed, corpus=chosen("corpus")) as record:
        save_weights(model, record.folder / "model.safetensors")
        checkpoint.tokenizer.save(record.folder / "tokenizer.json")


def learn(cfg: DictConfig) -> None:
    """Train a model by gradient descent."""
    import torch

    from pipelines.app.init_from import continue_from, initialise_input, open_checkpoint
    from pipelines.app.task_text import pretrained_vectors
    from pipelines.app.training import train
    from retable.data.batches import Measure
    from retable.objectives.base import CountsWords
    from retable.training.blocks import recompute_blocks
    from retable.training.progress import Best

    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [require(folder / name) for name in ("tokenizer.json", "train.bin", "validation.bin")]
    tokenizer = Tokenizer.load(inputs[0])
    tokens, validation = (read_tokens(path, tokenizer.vocab_size) for path in inputs[1:])
    torch.manual_seed(cfg.seed)
    model = build_model(cfg, tokenizer)
    counts = {}
    if cfg.embedding != "random":
        for split, ids in (("train", tokens), ("validation", validation)):
            frequencies = np.bincount(ids, minlength=tokenizer.vocab_size).tolist()
            counts[split] = {word: n for word, n in zip(tokenizer.words, frequencies, strict=True) if n}
    pretrained = pretrained_vectors(cfg, tokenizer.words, counts, unknown=tokenizer.unknown)
    initialise_input(model, cfg, tokenizer.words, pretrained)
    inputs += pretrained.inputs if pretrained else []
    objective = build_objective(cfg, tokenizer, model)
    if isinstance(objective, CountsWords):
        objective.count(np.bincount(tokens, minlength=tokenizer.vocab_size))
    inputs += (start := continue_from(cfg, objective, tokenizer, open_checkpoint(cfg))).inputs
    if cfg.recompute:
        recompute_blocks(model)
    if cfg.compile:  # one folder for all cells; torch's default is a folder in /tmp, which other users can create first
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(root().absolute() / "work/compiled"))
    batches = build_batches(cfg, tokenizer, folder, "train", cfg.seed)
    if takes_setting(cfg.batches, "units"):
        inputs += [require(folder / f"{split}.units.npy") for split in ("train", "validation")]

    if cfg.get("validation_scorer"):
        from retable.evaluation.likelihood import StreamLoss

        scorer = build(cfg.validation_scorer, "validation_scorer")
        held_out: Measure = StreamLoss(scorer, validation, tokenizer.boundary)
    else:
        from retable.evaluation.held_out import SEED, MeanMetrics

        held_out = MeanMetrics(build_batches(cfg, tokenizer, folder, "validation", SEED))

    with run_folder(cfg, inputs, [folder], cfg.system, cfg.seed, corpus=chosen("corpus")) as record:
        if pretrained:
            record.extra["coverage"] = pretrained.coverage
        if start.inputs:
            record.extra["drawn"] = start.drawn
        best = Best("validation/loss", cfg.patience) if cfg.get("patience") else None
        train(cfg, record, objective, batches, held_out, best)
        tokenizer.save(record.folder / "tokenizer.json")


if __name__ == "__main__":
    pretrain()
