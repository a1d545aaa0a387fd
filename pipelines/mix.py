"""Mix language models: `python -m pipelines.mix cells=[pretrain/grammar/kn5-1,pretrain/grammar/lstm-1]`.

The weights are fitted on the validation text, or equal (`weights=equal`). A cell may itself be a mixture.
"""

import shutil
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from safetensors.numpy import save_file

from pipelines.app.devices import on_devices
from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.digests import digest
from retable.core.errors import UsageError
from retable.evaluation.mixture import fit_weights, log_average
from retable.inference.systems import carry_parts, load_language_model, read_config
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@stage
def mix(cfg: DictConfig) -> None:
    if isinstance(cfg.cells, str) or len(set(cfg.cells)) < max(len(cfg.cells), 2):
        raise UsageError(
            "a mixture needs two or more different cells; write cells=[pretrain/grammar/kn5-1,pretrain/grammar/lstm-1]"
        )
    cells = [Path("outputs", cell) for cell in cfg.cells]
    for cell in cells:
        tokens = read_config(cell)["tokens"]
        if tokens != cfg.tokens:
            corpus, _, tokenizer = tokens.partition("/")
            raise UsageError(
                f"{cell} was trained on {tokens}, not {cfg.tokens}; mix cells of the same tokens, and write "
                f"corpus={corpus} tokenizer={tokenizer}"
            )
    systems = [load_language_model(cell) for cell in cells]
    folder = Path("outputs/tokenize", cfg.tokens)
    inputs = [cell / "model.safetensors" for cell in cells]
    inputs += [require(folder / name) for name in ("tokenizer.json", "validation.bin")]
    tokens = read_tokens(inputs[-1], Tokenizer.load(inputs[-2]).vocab_size)
    with (
        on_devices(cfg, *systems) as computed,
        run_folder(cfg, inputs, [*cells, folder], cfg.system, cfg.seed, corpus=chosen("corpus")) as record,
    ):
        record.costs |= computed
        log_probs = np.stack([system.log_prob(tokens) for system in systems])
        weights = fit_weights(log_probs) if cfg.weights == "fitted" else np.full(len(cells), 1 / len(cells))
        # The mixture's model.safetensors contains the digests of all parts' weights, so it changes with these weights.
        digests = [list(bytes.fromhex(digest(cell / "model.safetensors"))) for cell in cells]
        arrays = {"weights": weights, "digests": np.array(digests, np.uint8)}
        save_file(arrays, record.folder / "model.safetensors")
        carry_parts(cells, record.folder)
        shutil.copy(folder / "tokenizer.json", record.folder)
        record.metrics = {f"weight/{name}": float(weight) for name, weight in zip(cfg.cells, weights, strict=True)}
        record.metrics["validation/loss"] = -float(log_average(log_probs, weights).mean())


if __name__ == "__main__":
    mix()
