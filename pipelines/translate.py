"""Tokens, pairs of sentences → a translator: `python -m pipelines.translate recipe=translation/rnn_translation`."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.build import build_model, build_objective
from pipelines.entry import recorded, stage
from pipelines.training import train
from retable.artifacts import require
from retable.corpora.pairs import pair_splits, read_pairs
from retable.data.pairs import encode_lines
from retable.evaluation import translation
from retable.metrics.translation import translation_scores
from retable.objectives.translation import Translation
from retable.tokenizers.tokenizer import Tokenizer


@stage
def translate(cfg: DictConfig) -> None:
    tokens, text = Path("outputs/encode", cfg.tokens), Path("outputs/prepare", cfg.text)
    tokenizer = Tokenizer.load(require(tokens / "tokenizer.json"))
    splits = pair_splits(require(text))
    lines = {split: read_pairs(text, split) for split in splits}
    pairs = {split: tuple(encode_lines(tokenizer, side) for side in both) for split, both in lines.items()}
    inputs = [tokens / "tokenizer.json"]
    inputs += [text / f"{split}.{side}.txt" for split in splits for side in ("source", "target")]

    torch.manual_seed(cfg.seed)
    objective = build_objective(cfg, tokenizer, build_model(cfg, tokenizer))
    # Hydra would read lists that it is given as configuration, one number at a time
    batches = instantiate(cfg.batches, _partial_=True)(*pairs["train"], seed=cfg.seed)
    strategy = instantiate(cfg.decoding)

    def validate(objective: Any) -> dict[str, float]:
        sources, targets = pairs["validation"]
        return {"loss": translation.nats_per_token(objective, sources, targets, cfg.batches.max_tokens)}

    with recorded(cfg, inputs, [tokens, text], cfg.system, cfg.seed, corpus=cfg.text, task="translation") as record:
        train(cfg, record, objective, batches, validate)
        for split in splits[2:]:
            found = translation.translate(objective, pairs[split][0], strategy, tokenizer.boundary)
            written = [" ".join(line.split()) for line in tokenizer.decode_batch(found)]
            file = record.folder / f"translations.{split}.txt"
            file.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")
            scores = translation_scores(written, lines[split][1])
            task = split.replace("test", "translation", 1)  # test_2017 is a task of its own in the tables
            record.metrics |= {f"{task}/test/{name}": score.value for name, score in scores.items()}
            record.extra |= {"protocol": cfg.strategy, "signatures": {n: s.signature for n, s in scores.items()}}
            record.files.append(file.name)
            if split == "test" and getattr(objective.model, "attention", None) is not None:
                shown = list(zip(pairs[split][0], found, strict=True))[: cfg.alignments]
                tables = [alignment(tokenizer, objective, i, *pair) for i, pair in enumerate(shown)]
                pd.concat(tables).to_csv(record.folder / "alignments.csv", index=False)


def alignment(
    tokenizer: Tokenizer, objective: Translation, sentence: int, source: list[int], target: list[int]
) -> pd.DataFrame:
    """The alignment of a source and its translation, a row a pair of tokens, both with their end marks."""
    target = [*target, source[-1]]
    words = {"source": source, "target": target}
    names = {side: [word.strip() for word in tokenizer.decode_batch([i] for i in ids)] for side, ids in words.items()}
    rows = [
        (sentence, u, names["target"][u], s, names["source"][s], round(float(weight), 4))
        for u, shares in enumerate(translation.align(objective, source, target))
        for s, weight in enumerate(shares)
    ]
    return pd.DataFrame(rows, columns=["sentence", "target_place", "target", "source_place", "source", "weight"])


if __name__ == "__main__":
    translate()
