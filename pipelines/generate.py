"""Generate texts with a language model, T5 or translator:
`python -m pipelines.generate cell=grammar/lstm-1 decoding=beam`."""

import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from pipelines.app.devices import on_devices
from pipelines.app.inputs import first_words, open_cell
from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from retable.core.artifacts import read_run, require
from retable.core.settings import build
from retable.core.stages import TASK_STAGES
from retable.core.systems import System
from retable.corpora.text import read_lines
from retable.metrics.diversity import distinct, repetition
from retable.tokenizers.report import unknown_in
from retable.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from retable.generation.strategy import Completion


@stage
def generate(cfg: DictConfig) -> None:
    cell, system, path = open_cell(cfg)
    with on_devices(cfg, system) as computed:
        write(cfg, cell, system, path, computed)


def write(cfg: DictConfig, cell: Path, system: System, path: Path, computed: dict[str, Any]) -> None:
    """Generate texts with a system and write them to a new cell.

    Args:
        cfg: the stage's configuration.
        cell: folder of the system's cell.
        system: the system.
        path: the file of the system's tokenizer.
        computed: the devices on which the texts are generated; these devices are recorded with the costs.
    """
    from retable.generation.fudge import FUDGE
    from retable.inference.texts import tokenizer_files
    from retable.inference.writing import Writer

    tokenizer, run = Tokenizer.load(path), read_run(cell)
    writer = Writer(system, tokenizer, cfg.stop)
    inputs, cells = [cell / "model.safetensors", *tokenizer_files(path)], [cell]
    if cfg.prompts is None:
        translates = cfg.stage in TASK_STAGES
        inputs.append(require(Path("outputs/prepare", run["corpus"], f"test{'.source' * translates}.txt")))
        if translates:
            prompts = [*islice(filter(None, read_lines(inputs[-1])), cfg.n_prompts)]
        else:
            prompts = first_words(inputs[-1], cfg.prompt_words, cfg.n_prompts)
    else:
        prompts = [str(prompt) for prompt in cfg.prompts]
        if not cfg.special_tokens and (unknown := unknown_in(writer.reader, prompts)):
            print(unknown, file=sys.stderr)
    ids = writer.encode(prompts, cfg.special_tokens)
    strategy = build(cfg.decoding, "decoding")
    if isinstance(strategy, FUDGE):
        strategy.discriminator.require_tokens(tokenizer.digest)
        inputs += strategy.discriminator.files
        cells.append(strategy.discriminator.cell)
    with run_folder(cfg, inputs, cells, run["system"], run["seed"], corpus=run["corpus"]) as record:
        record.costs |= computed
        completions = [
            (prompt, begun, completion)
            for prompt, begun, several in zip(prompts, ids, strategy(writer.model, ids, writer.end), strict=True)
            for completion in several
        ]
        texts = [writer.read(begun, completion.ids) for _, begun, completion in completions]
        with (record.folder / "samples.jsonl").open("w", encoding="utf-8") as file:
            for (prompt, _, completion), text in zip(completions, texts, strict=True):
                row = {"prompt": prompt, "text": text, "log_prob": round(completion.log_prob, 4)}
                row |= {"tokens": len(completion.ids), "strategy": cfg.strategy}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        with (record.folder / "samples.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{prompt} | {text}\n\n" for (prompt, _, _), text in zip(completions, texts, strict=True))
        record.metrics = measure([completion for _, _, completion in completions], texts)
        record.files += ["samples.jsonl", "samples.txt"]
        record.extra["strategy"] = cfg.strategy


def measure(completions: "list[Completion]", texts: list[str]) -> dict[str, float]:
    """Return the metrics of generated texts: mean length in tokens, log-probability per token (nats), and diversity."""
    tokens = sum(len(completion.ids) for completion in completions)
    words = [text.split() for text in texts]
    metrics = {
        "samples": len(texts),
        "mean_length": tokens / len(texts),
        "log_prob_token": sum(completion.log_prob for completion in completions) / tokens,
        "distinct_1": distinct(words, 1),
        "distinct_2": distinct(words, 2),
        "repetition": repetition(words),
    }
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


if __name__ == "__main__":
    generate()
