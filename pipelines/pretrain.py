"""Tokens → a language model: `python -m pipelines.pretrain corpus=grammar model=lstm seed=1`."""

from pathlib import Path

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import build_model
from pipelines.entry import recorded, stage
from retable.artifacts import require
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def pretrain(cfg: DictConfig) -> None:
    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [require(folder / name) for name in ("tokenizer.json", "train.bin", "validation.bin")]
    tokenizer = Tokenizer.load(inputs[0])
    tokens, validation = (read_tokens(path, tokenizer.vocab_size) for path in inputs[1:])
    if cfg.objective is None:  # counted in closed form
        model = build_model(cfg, tokenizer)
        with recorded(cfg, inputs, [folder], system=cfg.system, seed=cfg.seed) as record:
            model.estimate(tokens)
            model.save(record.folder / "model.safetensors")
        return

    import torch

    from pipelines.training import initialise_input, train

    torch.manual_seed(cfg.seed)
    model = build_model(cfg, tokenizer)
    initialise_input(model, cfg, tokenizer, inputs)
    objective = instantiate(cfg.objective, model=model, vocab_size=tokenizer.vocab_size)
    if hasattr(objective, "count"):
        objective.count(np.bincount(tokens, minlength=tokenizer.vocab_size))
    if cfg.compile:
        model.compile()
    batches = instantiate(cfg.batches, tokens=tokens, seed=cfg.seed)
    scorer = instantiate(cfg.validation_scorer)

    def validate(objective: torch.nn.Module) -> dict[str, float]:
        return {"loss": -float(scorer.log_prob(objective, validation, tokenizer.boundary).mean())}

    with recorded(cfg, inputs, [folder], system=cfg.system, seed=cfg.seed) as record:
        train(cfg, record, objective, batches, validate)


if __name__ == "__main__":
    pretrain()
