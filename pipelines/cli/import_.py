"""Models that were made elsewhere as cells: what `retable import` does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from pipelines.config.checkpoint import RECIPES
from pipelines.study.compose import composing, conf, configuration
from retable.core import artifacts
from retable.core.digests import FORMAT, digest
from retable.core.errors import UsageError, closest, near
from retable.core.publishing import check_path, exclusive, publish
from retable.models.word2vec_format import read_word2vec, write_word2vec
from retable.planning.cell import Cell
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer
from retable.tokenizers.word import of_words

VECTORS = (".txt", ".bin")
KEPT = ("model", "objective", "batches", "scorer")  # of a recipe: what its system is built from and measured by


def import_cell(source: str, name: str) -> Path:
    """Leave `source`, an ARPA file, a file of word vectors or a checkpoint of transformers, as the cell `name`, a
    corpus and a name of its own; return its folder below `outputs/`. Word vectors may have a task in place of a corpus.

    Its `run.json` has the digests of what was read, and no seed. UsageError where there is such a cell already.
    """
    path = Path(source)
    stage = "embed" if path.suffix in VECTORS else "pretrain"
    corpus, _, system = name.partition("/")
    if not system or "/" in system:
        raise UsageError(f"{name} is no name of a cell; write a corpus and a name, as in grammar/{path.stem}")
    of_task = stage == "embed" and _is_task(corpus, f"retable import {source} {name}")
    if not of_task:
        conf().require("corpus", corpus, f"retable import {source} {name}")
    out = Path("outputs", stage, corpus, system)
    if out.exists():
        raise UsageError(f"{out} is there already; import under another name, or first remove it: rm -r {out}")
    check_path(name)
    bench = Path("work/import", name)
    with exclusive(bench, out), publish(out, bench / "payload", bench / "replaced") as folder:
        if path.suffix == ".arpa":
            files, config = [path], _arpa(path, corpus, folder)
        elif path.suffix in VECTORS:
            files, config = [path], _vectors(path, corpus, folder)
        else:
            files, config = _checkpoint(source, corpus, folder)
        config |= {"tokens": None} if of_task else {"corpus": {"unit": _unit(corpus)}}
        OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
        artifacts.write_metrics(folder, {})
        facts = {"stage": stage, "system": system, "corpus": corpus, "seed": None, "task": None}
        digests = {source if file == path else f"{source}/{file.name}": digest(file) for file in files}
        origins = {"made_from": [], "imported": source, "digests": digests, "format": FORMAT}
        artifacts.write_json(folder / "run.json", facts | origins)
    return out


def _is_task(name: str, where: str) -> bool:
    """Return whether word vectors are to be of a task, whose words have no corpus. UsageError for a name that is not a
    corpus, and nearest to that of a task."""
    corpora, tasks = conf().names("corpus"), conf().names("task")
    if name not in (*corpora, *tasks) and not {*near(name, [*corpora, *tasks])[:1]} <= {*corpora}:
        raise UsageError(f"{where}: there is no corpus or task {name!r}; {closest(name, tasks)}")
    return name in tasks and name not in corpora


def _arpa(path: Path, corpus: str, folder: Path) -> dict[str, Any]:
    from retable.models.arpa import read_arpa

    read = read_arpa(path)
    words = [{"</s>": END_OF_LINE, "<UNK>": UNKNOWN}.get(each, each) for each in read.words]
    if UNKNOWN not in words or len({*words}) < len(words):
        raise UsageError(f"{path} lacks <unk>, which other words are read as, or has <eos> beside </s>; make it anew")
    tables = read.model.tables
    tables[0].log_prob[len(words)] = 0  # <s>, which a file may leave out, and no one looks up
    if not all(np.isfinite(column).all() for table in tables for column in (table.log_prob, table.backoff)):
        raise UsageError(
            f"{path} has a probability of 0, or lacks n-grams that longer ones begin with; write it by KenLM or SRILM, "
            "which list them"
        )
    read.model.save(folder / "model.safetensors")
    (tokenizer := of_words(words)).save(folder / "tokenizer.json")
    model = {"_target_": "retable.models.ngram.BackoffModel", "order": read.model.order}
    return {"tokens": _tokens(corpus, tokenizer), "model": model, "objective": None}


def _vectors(path: Path, corpus: str, folder: Path) -> dict[str, Any]:
    write_word2vec(folder / "vectors.bin", *read_word2vec(path))
    return {"tokens": f"{corpus}/word"}  # under which it is evaluated


def _checkpoint(source: str, corpus: str, folder: Path) -> tuple[list[Path], dict[str, Any]]:
    from retable.exchange.checkpoint import Checkpoint
    from retable.inference.build import build_model, build_objective
    from retable.training.weights import put_weights, save_weights

    checkpoint = Checkpoint(source)
    kind = checkpoint.model["_target_"].rpartition(".")[2]
    settings = _settings(checkpoint.model, checkpoint.objective)
    with composing():
        made = configuration(Cell("pretrain", corpus, {"corpus": corpus, "recipe": RECIPES[kind], **settings}))
    head = checkpoint.objective or {}
    if head.get("_target_") != made["objective"]["_target_"]:
        raise UsageError(
            f"{source} has no head that a {kind} is pretrained with, and a cell is whole; begin a training with it, "
            f"init=hf:{source}"
        )
    made["objective"] |= head | {"vocab_size": checkpoint.model["vocab_size"]}
    config = {"tokens": _tokens(corpus, checkpoint.tokenizer)} | {key: made[key] for key in KEPT if key in made}
    config["model"] = checkpoint.model
    objective = build_objective(config, checkpoint.tokenizer, build_model(config, checkpoint.tokenizer))
    put_weights(objective, checkpoint.weights, checkpoint.folder)
    save_weights(objective, folder / "model.safetensors")
    checkpoint.tokenizer.save(folder / "tokenizer.json")
    return checkpoint.files, config


def _settings(model: Mapping[str, Any], head: Mapping[str, Any] | None) -> dict[str, str]:
    """Those of the recipe that follow from a checkpoint: it is measured in texts as long as it reads, and by the loss
    that it has."""
    settings = {"batches.length": str(model["max_length"])} if "max_length" in model else {}
    return settings | ({"batches.next_sentence": "none"} if head and head.get("next_sentence") is False else {})


def _tokens(corpus: str, tokenizer: Tokenizer) -> str:
    """The tokens of the corpus that the same tokenizer made, or what such would be called."""
    for path in sorted(Path("outputs/tokenize", corpus).glob("*/tokenizer.json")):
        if Tokenizer.load(path).digest == tokenizer.digest:
            return f"{corpus}/{path.parent.name}"
    return f"{corpus}/pretrained"


def _unit(corpus: str) -> str:
    return str(conf().says("corpus", corpus)["unit"])
