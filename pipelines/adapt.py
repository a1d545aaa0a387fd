"""Adapt a trained language model while it reads a text (dynamic evaluation, neural cache):
`python -m pipelines.adapt cell=grammar/lstm-1 adaptation=neural_cache system=lstm_neural_cache`.

The adaptation's settings are chosen on the validation text. The trained cell is unchanged;
the new cell contains a copy of the trained model.
"""

import csv
import shutil
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from safetensors.numpy import save_file

from pipelines.app.devices import on_devices
from pipelines.app.inputs import require_tokens
from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.digests import digest
from retable.core.errors import UsageError
from retable.core.settings import build
from retable.inference.systems import carry_parts, load_system
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def adapt(cfg: DictConfig) -> None:
    cell, folder = Path("outputs/pretrain", cfg.cell), Path("outputs/tokenize", cfg.tokens)
    weights = require(cell / "model.safetensors")
    require_tokens(cell, cfg.tokens)
    system, adaptation = load_system(cell), build(cfg.adaptation, "adaptation")
    if not isinstance(system, adaptation.requires):
        raise UsageError(
            f"{cell} is not a {adaptation.requires.__name__}, but adaptation={chosen('adaptation')} needs one; set "
            "cell to a left-to-right neural model, as trained with recipe=recurrent/lstm or recipe=transformer/gpt"
        )
    tokenizer = require(folder / "tokenizer.json")
    texts = {split: require(folder / f"{split}.bin") for split in adaptation.splits}
    inputs = [weights, tokenizer, *texts.values()]
    with (
        on_devices(cfg, system) as computed,
        run_folder(cfg, inputs, [cell, folder], cfg.system, cfg.seed, corpus=chosen("corpus")) as record,
    ):
        record.costs |= computed
        vocab_size = Tokenizer.load(tokenizer).vocab_size
        fitted = adaptation.fit(system, {split: read_tokens(path, vocab_size) for split, path in texts.items()})
        best = {name: value for name, value in fitted.best.items() if name != "loss"}
        # This file contains the digest of the trained weights, so that a change of the weights also changes this file.
        arrays = {name: np.array(value, np.float64) for name, value in best.items()} | fitted.measured
        save_file(arrays | {"digests": np.array([[*bytes.fromhex(digest(weights))]], np.uint8)},
                  record.folder / "model.safetensors")  # fmt: skip
        carry_parts([cell], record.folder)
        shutil.copy(tokenizer, record.folder)
        with (record.folder / "tried.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(fitted.best)
            writer.writerows([*map("{:.6g}".format, each.values())] for each in fitted.tried)
        record.files.append("tried.csv")
        record.metrics = best | {"validation/loss": fitted.best["loss"]}


if __name__ == "__main__":
    adapt()
