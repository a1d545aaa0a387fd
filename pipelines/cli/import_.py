"""Import models made elsewhere as cells: `retable import kn5.arpa ptb/kn5_kenlm`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from pipelines.config.checkpoint import PRETRAINING
from pipelines.study.compose import composing, conf, configuration
from retable.core import artifacts
from retable.core.compressed import file_of, open_compressed, plain_name
from retable.core.digests import FORMAT, digest
from retable.core.errors import UsageError, closest, near
from retable.core.hub import CHECKPOINT
from retable.core.publishing import check_path, exclusive, publish
from retable.core.settings import build
from retable.models.vector_files import read_vectors, write_word2vec
from retable.planning.cell import Cell
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN, Tokenizer
from retable.tokenizers.word import of_words

VECTORS = (".txt", ".vec", ".bin", ".zip")
KEPT = ("model", "objective", "batches", "scorer")  # parts of a configuration that build or evaluate the system


def import_cell(source: str, name: str) -> Path:
    """Import a model as a cell.

    The cell's `run.json` contains the digests of the imported files, and null as the seed.

    Args:
        source: an ARPA file, a file of word vectors, or the folder or Hub name of a checkpoint, possibly after `hf:`. A
            commit, tag or branch may follow the name, as in `hf:OWNER/NAME@REVISION`.
            Files may be compressed, see `retable.core.compressed`.
        name: `CORPUS/NAME`, the cell's path below `outputs/<stage>/`. If the source has word vectors for the words of a
            task, CORPUS is the name of the task.

    Returns: the cell's folder in `outputs/`.
    Raises: UsageError: the name is not valid, the cell exists already, or the source cannot be read.
    """
    path = Path(source)
    is_arpa, has_vectors = _kind(path)
    stage = "embed" if has_vectors else "pretrain"
    corpus, _, system = name.partition("/")
    if not system or "/" in system:
        example = f"grammar/{Path(plain_name(path)).stem}"
        raise UsageError(f"{name} is not a cell's name; write a corpus and a name, as in {example}")
    of_task = stage == "embed" and _is_task(corpus, f"retable import {source} {name}")
    if not of_task:
        conf().require("corpus", corpus, f"retable import {source} {name}")
    out = Path("outputs", stage, corpus, system)
    if out.exists():
        raise UsageError(f"{out} exists; write another name, or first remove it: rm -r {out}")
    check_path(name)
    bench = Path("work/import", name)
    with exclusive(bench, out), publish(out, bench / "payload", bench / "replaced") as folder:
        if is_arpa:
            files, config = [file_of(path)], _arpa(path, corpus, folder)
        elif has_vectors:
            files, config = [file_of(path)], _vectors(path, corpus, folder)
        else:
            source, files, config = _checkpoint(source, corpus, folder)
        config |= {"tokens": None} if of_task else {"corpus": {"unit": _unit(corpus)}}
        OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
        artifacts.write_metrics(folder, {})
        facts = {"stage": stage, "system": system, "corpus": corpus, "seed": None, "task": None}
        digests = {artifacts.recorded_name(file): digest(file) for file in files}
        origins = {"made_from": [], "imported": source, "digests": digests, "format": FORMAT}
        artifacts.write_json(folder / "run.json", facts | origins)
    return out


def _kind(path: Path) -> tuple[bool, bool]:
    """Return whether a path is an ARPA file, and whether it is a file of word vectors.

    Raises: UsageError: the file has the weights of a checkpoint, or cannot be read.
    """
    name, start = plain_name(path), b""
    if is_file := file_of(path).is_file():
        with open_compressed(path) as (file, name):
            start = file.read(10)
    name = name.lower()
    # torch writes its weights as a ZIP archive, although the name of the file ends in .bin.
    if is_file and (name.endswith(".safetensors") or (name.endswith(".bin") and start.startswith(b"PK"))):
        raise UsageError(f"{path} has the weights of a checkpoint; write the folder of the checkpoint: {path.parent}")
    is_arpa = name.endswith(".arpa") or start.lstrip().startswith(b"\\data\\")
    return is_arpa, not is_arpa and (is_file or name.endswith(VECTORS))


def _is_task(name: str, where: str) -> bool:
    """Return whether `name` is a task and not a corpus. Word vectors for the words of a task do not belong to a corpus.

    Raises: UsageError: no corpus and no task has this name, and the most similar name is the name of a task.
    """
    corpora, tasks = conf().names("corpus"), conf().names("task")
    if name not in (*corpora, *tasks) and not {*near(name, [*corpora, *tasks])[:1]} <= {*corpora}:
        raise UsageError(f"{where}: unknown corpus or task {name!r}; {closest(name, tasks)}")
    return name in tasks and name not in corpora


def _arpa(path: Path, corpus: str, folder: Path) -> dict[str, Any]:
    from retable.models.arpa import read_arpa

    read = read_arpa(path)
    words = [{"</s>": END_OF_LINE, "<UNK>": UNKNOWN}.get(each, each) for each in read.words]
    if UNKNOWN not in words or len({*words}) < len(words):
        raise UsageError(f"{path} lacks <unk> for unknown words, or has both <eos> and </s>; write the file again")
    tables = read.model.tables
    tables[0].log_prob[len(words)] = 0  # the probability of <s> is never used, and some ARPA files lack it
    if not all(np.isfinite(column).all() for table in tables for column in (table.log_prob, table.backoff)):
        raise UsageError(
            f"{path} has a probability of 0, or lacks prefixes of its n-grams; write the file with KenLM or SRILM"
        )
    read.model.save(folder / "model.safetensors")
    (tokenizer := of_words(words)).save(folder / "tokenizer.json")
    model = {"_target_": "retable.models.ngram.BackoffModel", "order": read.model.order}
    return {"tokens": _tokens(corpus, tokenizer), "model": model, "objective": None}


def _vectors(path: Path, corpus: str, folder: Path) -> dict[str, Any]:
    write_word2vec(folder / "vectors.bin", *read_vectors(path))
    return {"tokens": f"{corpus}/word"}  # the tokens that benchmarks of word vectors use


def _checkpoint(source: str, corpus: str, folder: Path) -> tuple[str, list[Path], dict[str, Any]]:
    """Write a checkpoint's weights and tokenizer to `folder`.

    Returns: the source, in which the name of a checkpoint of the hub ends in its commit; the files that were read; and
        the cell's configuration.
    """
    from retable.exchange.checkpoint import Checkpoint
    from retable.exchange.sentence_transformers import pooling_files
    from retable.inference.build import build_model, build_objective
    from retable.training.weights import put_weights, save_weights

    checkpoint = Checkpoint(source.removeprefix(CHECKPOINT))
    origin = source if source.removeprefix(CHECKPOINT) == checkpoint.name else f"{CHECKPOINT}{checkpoint.name}"
    if checkpoint.encoder is not None:
        encoder = {"tokens": None, "model": checkpoint.model, "objective": None, "encoder": checkpoint.encoder}
        model = build_model(encoder, checkpoint.tokenizer)
        put_weights(model, checkpoint.weights, checkpoint.folder, prefix="model.")
        build(checkpoint.encoder, "encoder", model=model, tokenizer=checkpoint.tokenizer)  # refuses other tokenizers
        save_weights(model, folder / "model.safetensors")
        checkpoint.tokenizer.save(folder / "tokenizer.json")
        return origin, [*checkpoint.files, *pooling_files(checkpoint.folder)], encoder
    kind = checkpoint.model["_target_"].rpartition(".")[2]
    settings = _settings(checkpoint.model, checkpoint.objective)
    with composing():
        made = configuration(Cell("pretrain", corpus, {"corpus": corpus, "recipe": PRETRAINING[kind], **settings}))
    head = checkpoint.objective or {}
    if head.get("_target_") != made["objective"]["_target_"]:
        raise UsageError(
            f"{source} lacks the pretraining head of a {kind}, which a cell needs; train from the checkpoint instead, "
            f"with init={CHECKPOINT}{checkpoint.name}"
        )
    made["objective"] |= head | {"vocab_size": checkpoint.model["vocab_size"]}
    config = {"tokens": _tokens(corpus, checkpoint.tokenizer)} | {key: made[key] for key in KEPT if key in made}
    config["model"] = checkpoint.model
    objective = build_objective(config, checkpoint.tokenizer, build_model(config, checkpoint.tokenizer))
    put_weights(objective, checkpoint.weights, checkpoint.folder)
    save_weights(objective, folder / "model.safetensors")
    checkpoint.tokenizer.save(folder / "tokenizer.json")
    return origin, checkpoint.files, config


def _settings(model: Mapping[str, Any], head: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the settings of a checkpoint that replace the recipe's settings.

    These are the maximum length and, for a BERT without a next-sentence head, `next_sentence: none`.
    """
    settings = {"batches.length": str(model["max_length"])} if "max_length" in model else {}
    return settings | ({"batches.next_sentence": "none"} if head and head.get("next_sentence") is False else {})


def _tokens(corpus: str, tokenizer: Tokenizer) -> str:
    """Return the name of the corpus's tokens made with `tokenizer`; without such tokens, `CORPUS/pretrained`."""
    for path in sorted(Path("outputs/tokenize", corpus).glob("*/tokenizer.json")):
        if Tokenizer.load(path).digest == tokenizer.digest:
            return f"{corpus}/{path.parent.name}"
    return f"{corpus}/pretrained"


def _unit(corpus: str) -> str:
    return str(conf().read("corpus", corpus)["unit"])
