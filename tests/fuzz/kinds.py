"""The kinds of files that users provide: for each, a small valid example, and what stages do with it."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from pipelines.cli.import_ import _arpa, _vectors
from retable.core import settings
from retable.core.artifacts import read_json, write_json, write_metrics
from retable.corpora.benchmarks import write_wikitext
from retable.corpora.collection import write_collection
from retable.corpora.cut import write_cut
from retable.corpora.minimal_pairs import BLiMP
from retable.corpora.overlap import example_overlap
from retable.corpora.pairs import write_pairs
from retable.corpora.questions import PIQA, HellaSwag, Labelled, Lambada
from retable.corpora.text import SPLITS, read_lines, read_units, write_corpus
from retable.corpora.text8 import write_text8
from retable.data.encode import COUNTED, write_tokens
from retable.data.shards import MAGIC, write_tokenized
from retable.data.spelling import Vocabulary
from retable.evaluation.analogies import Analogies
from retable.evaluation.capitals import Capitals
from retable.evaluation.last_words import LastWords
from retable.evaluation.minimal_pairs import MinimalPairs
from retable.evaluation.prompting import Prompted
from retable.evaluation.similarity import Similarity
from retable.evaluation.word_vectors import WordVectors
from retable.exchange.checkpoint import Checkpoint
from retable.inference.build import build_counted, build_model
from retable.inference.vectors import Vectors
from retable.models.arpa import write_arpa
from retable.models.ngram import KneserNey
from retable.models.vector_files import read_vectors, write_word2vec
from retable.tasks.base import Task
from retable.tokenizers import byte_bpe, unigram, word, wordpiece
from retable.tokenizers.pretrained import load
from retable.tokenizers.report import count_unknown
from retable.tokenizers.tokenizer import Tokenizer, read_tokens
from retable.training.weights import put_weights, save_weights
from tests.exchange.cases import exported, system
from tests.models.test_vector_files import fasttext_model

LINES = ["the cat sees a bird", "a bird sees the cat , and it sees it", "no cat saw what the bird had seen"]
WORDS = sorted({token for line in LINES for token in line.split()})
MARKS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]


class Kind(NamedTuple):
    """files: content by name. use: reads the files in the working folder, as stages do."""

    files: Mapping[str, bytes]
    use: Callable[[Random], None]


@cache
def words() -> Tokenizer:
    return word.train(LINES, marks=MARKS)


@cache
def counted() -> KneserNey:
    model = KneserNey(words().vocab_size, 2, words().boundary)
    model.estimate(np.concatenate([ids for ids, _, _ in words().encode_units([[line] for line in LINES], False)]))
    return model


@cache
def tokens() -> str:
    """Return a folder with the tokenizer of the counted model."""
    folder = mkdtemp(prefix="fuzz")
    words().save(Path(folder, "tokenizer.json"))
    return folder


def of_lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def of_records(*records: Mapping[str, Any]) -> bytes:
    return of_lines(*(json.dumps(record, ensure_ascii=False) for record in records))


def of_rows(*rows: Mapping[str, Any], delimiter: str = ",") -> bytes:
    return pd.DataFrame(rows).to_csv(sep=delimiter, index=False).encode()


def in_splits(content: bytes, end: str, *splits: str) -> dict[str, bytes]:
    return {f"{split}.{end}": content for split in splits or SPLITS}


# Corpora


def tokenized(dice: Random, documents: bool = False) -> None:
    """Tokenize what stage prepare has written into `out`."""
    pieces = partial(byte_bpe.train, vocab_size=270), partial(wordpiece.train, vocab_size=10_000, lowercase=True)
    train: Callable[[Any], Tokenizer] = dice.choice([word.train, partial(word.train, english=True), *pieces])
    train([*read_lines(Path("out/train.txt"))]).save(Path("out/tokenizer.json"))
    tokenizer = Tokenizer.load(Path("out/tokenizer.json"))
    for split in SPLITS:
        text = Path("out", f"{split}.txt")
        totals = write_tokens(
            tokenizer, read_units(text, "document" if documents else "line"), documents, Path("out", split)
        )
        stream = read_tokens(Path("out", f"{split}.bin"), tokenizer.vocab_size)
        assert len(stream) == totals["tokens"] > 0 and int(stream.max()) < tokenizer.vocab_size
        units = np.load(Path("out", f"{split}.units.npy"))
        assert units.sum(axis=0).tolist() == [totals[name] for name in COUNTED]
        assert totals["marks"] <= count_unknown(tokenizer, stream) <= len(stream) and totals["lost"] <= totals["bytes"]
        assert tokenizer.decode(stream.tolist()) is not None


def corpus(dice: Random) -> None:
    documents = dice.random() < 0.5
    counts = write_corpus(Path("out"), *(f"{split}.txt" for split in SPLITS), documents)
    assert all(counts[f"{split}/words"] for split in SPLITS)
    tokenized(dice, documents)


def collection(dice: Random) -> None:
    documents = dice.random() < 0.5
    write_collection(Path("out"), ".", "*.train", "*.dev", "*.test", documents)
    tokenized(dice, documents)


def wikitext(dice: Random) -> None:
    write_wikitext(Path("out"), ".")
    tokenized(dice)


def one_file(dice: Random) -> None:
    write_cut(Path("out"), "whole.txt", 0.5, dice.choice([0.0, 0.25]))
    tokenized(dice)


def text8(dice: Random) -> None:
    name = next(Path().glob("text8*")).name
    write_text8(Path("out"), name, 10, dice.random() < 0.5)
    tokenized(dice)


def zipped(name: str, text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return file.getvalue()


def translations(dice: Random) -> None:
    sides = {f"{split}_{side}": f"{split}.{side}" for split in SPLITS for side in ("source", "target")}
    write_pairs(Path("out"), dice.random() < 0.5, **sides)
    tokenized(dice)
    decoding = part("retable.generation.sampling.Greedy", max_new_tokens=3)
    task = part(
        "retable.tasks.translation.TranslationTask", folder="out", decoding=decoding, strategy="greedy",
        max_tokens=4096, alignments=1,
    )  # fmt: skip
    learnt(
        task, TRANSLATOR, {"label_smoothing": 0.1, "tie": True, "bias": False},
        Tokenizer.load(Path("out/tokenizer.json")),
    )  # fmt: skip


def shards(dice: Random) -> None:
    write_tokenized(Path("out"), ".", "train_*.bin", "val_*.bin", "tokenizer.json", 20, 8)
    vocab_size = Tokenizer.load(Path("out/tokenizer.json")).vocab_size
    for split in SPLITS:
        stream = read_tokens(Path("out", f"{split}.bin"), vocab_size)
        assert len(stream) and int(np.max(stream)) < vocab_size
    tokenized(dice, documents=True)


def shard(n: int, header: bool = True) -> bytes:
    ids = np.array(([counted().boundary, 5, 6, 7, 3] * n)[:n], "<u2").tobytes()
    return (np.array([MAGIC, 1, n] + [0] * 253, "<i4").tobytes() if header else b"") + ids


# Tasks


def part(target: str, **own: Any) -> dict[str, Any]:
    return {"_target_": target, **own}


SMALL = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_length": 24, "dropout": 0.1}
SPELLING = {"d_embedding": 4, "d_character": 4, "filters": [[2, 4]]}
ENCODER = part("retable.models.bert.BERT", **SMALL)
TRANSLATOR = part("retable.models.t5.T5", **{k: v for k, v in SMALL.items() if k != "max_length"}, d_ff=8)
TAGGER = part("retable.models.tagger.BiLSTMTagger", **SPELLING, d_model=8, n_layers=1, dropout=0.1)
LABELLER = {**TAGGER, "d_predicate": 4}
READER = part("retable.models.bidaf.BiDAF", **SPELLING, n_highway=1, d_hidden=4, dropout=0.1)
RANKER = part(
    "retable.models.mention_ranker.MentionRanker", **SPELLING, d_model=4, d_feature=4, d_hidden=4, max_width=4,
    spans_per_word=0.4, max_antecedents=4, dropout=0.1, input_dropout=0.1,
)  # fmt: skip
OF_CLASSES = {"dropout": 0.1, "auxiliary": 0.0, "d_hidden": None, "pooling": None, "tie": True}
OF_TAGS = {"dropout": 0.1, "crf": True}
OF_CHOICES = {name: OF_CLASSES[name] for name in ("dropout", "auxiliary", "d_hidden", "pooling")}


def learnt(
    task_part: Mapping[str, Any], model_part: Mapping[str, Any], head: Mapping[str, Any], tokenizer: Any
) -> None:
    """Do what stage train does with a task; instead of training, compute one loss."""
    task: Task[Any, Any] = settings.build(task_part, "task", Task)
    task.require(settings.resolve(model_part["_target_"]), model_part.get("d_predicate", 0))  # type: ignore[arg-type]
    examples = {split: task.examples(split) for split in task.splits}
    text = tokenizer
    if tokenizer is None:
        texts = {split: list(task.words(rows)) for split, rows in examples.items()}
        text = Vocabulary.of_texts(texts["train"], (row for rows in texts.values() for row in rows))
        text.save(Path("vocabulary.json"))
        assert Vocabulary.load(Path("vocabulary.json")).words == text.words
    torch.manual_seed(1)
    model = build_model({"model": model_part}, text)
    objective = task.objective(model, text, **head)
    encoded = {split: task.encode(model, text, rows) for split, rows in examples.items()}
    size = 4096 if task.kind == "translation" else 4  # number of tokens, or of examples
    loss, *_ = objective.loss(task.batches(encoded["train"], size, seed=1).batch(0), None, 0)
    assert torch.isfinite(loss).all()
    objective.eval()
    if known := task.learnt():
        write_json(Path("learnt.json"), known)
        task.recall(read_json(Path("learnt.json")))
    whole = [task.answered(example) for example in examples["train"]]
    assert example_overlap(whole, whole)["overlap_examples"] == 1
    metrics = {}
    for split in task.measured:
        metrics |= example_overlap(whole, map(task.answered, examples[split]))
        predictions = task.predict(objective, encoded[split])
        units = task.units(examples[split], predictions)
        units.to_csv("units.csv", index=False, lineterminator="\n")
        metrics |= {f"{split}/{name}": value for name, value in task.score(units).items()}
        task.write(Path(), split, examples[split], predictions)
    write_metrics(Path(), metrics)


def sentences(
    end: str, form: Mapping[str, Any] | None = None, files: Mapping[str, Any] | None = None, **own: Any
) -> Callable:
    settings_of_task = {
        "name": "own", "files": files or {split: f"{split}.{end}" for split in SPLITS}, "sentences": ["sentence"],
        "label": "label", "labels": ["bad", "good"], "metrics": ["accuracy", "matthews", "f1"], "form": form,
    } | own  # fmt: skip

    def use(dice: Random) -> None:
        learnt(part("retable.tasks.sentences.SentenceTask", **settings_of_task), ENCODER, OF_CLASSES, words())

    return use


ROWS = [{"sentence": line, "label": label} for line, label in zip(LINES * 2, ["good", "bad"] * 3, strict=True)]
PAIRS = [
    {"a": a, "b": b, "score": score} for a, b, score in zip(LINES * 2, [*LINES[1:] * 3][:6], range(6), strict=True)
]


def of_parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(rows).to_parquet(file)
    return file.getvalue()


TREES = ["(3 (2 It) (4 (2 's) (4 lovely)))", "(1 (2 no) (1 good))", "(2 so)", "(4 (4 good) (2 it))"]
COLUMNS = ["the DT B-NP", "cat NN I-NP", "sees VB O", "", "a DT B-NP", "bird NN I-NP", "", "it PR B-NP", "sees VB O"]
CONLLU = [
    "# text = The cat's", "1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_", "2-3\tcat's\t_\t_\t_\t_\t_\t_\t_\t_",
    "2\tcat\tcat\tNOUN\tNN\t_\t0\troot\t_\t_", "3\t's\tbe\tAUX\tVB\t_\t2\tcop\t_\t_",
    "3.1\tx\tx\tX\tX\t_\t_\t_\t_\t_", "", "1\tIt\tit\tPRON\tPR\t_\t2\tnsubj\t_\t_",
    "2\tsees\tsee\tVERB\tVB\t_\t0\troot\t_\t_",
]  # fmt: skip
ROLES = [
    "the - (A0* *", "cat - *) *", "sees see (V*) *", "it - (A1*) *", "go go * (V*)", "", "a - (A0*", "bird - *)",
    "sees see (V*)", "", "no -", "",
]  # fmt: skip
CLUSTERS = [
    "#begin document (a); part 000", "a 0 0 The (0", "a 0 1 cat 0)", "a 0 2 sees -", "a 0 3 it (1)", "", "a 0 0 It (0)",
    "a 0 1 has (1)|(2", "a 0 2 it 2)", "", "#end document", "#begin document (b); part 001", "b 1 0 It -",
    "b 1 1 runs -", "", "#end document",
]  # fmt: skip


def asked(line: str, name: str) -> dict[str, Any]:
    """Return the entry of a paragraph in SQuAD's format, with two questions."""
    answers = enumerate(line.split()[:2])
    asks = [
        {"id": f"{name}-{q}", "question": "what sees ?", "answers": [{"text": a, "answer_start": line.index(a)}]}
        for q, a in answers
    ]
    return {"title": name, "paragraphs": [{"context": f"{line} , number {name} .", "qas": asks}]}


SQUAD = {"data": [asked(line, f"t{a}") for a, line in enumerate(LINES)]}
TRIPLES = [{"context": line, "question": "what ?", "answer": line.split()[-1]} for line in LINES]
CHOICES = [
    {"start": line, "ending0": "a bird", "ending1": "the cat", "endings": ["a bird", "the cat"], "label": i % 2}
    for i, line in enumerate(LINES * 2)
]


def tags(end: str, read: Mapping[str, Any] | None, model: Mapping[str, Any] = TAGGER, **own: Any) -> Callable:
    files = {split: f"{split}.{end}" for split in SPLITS} | (
        {} if read is None else {"read": {**read, "_partial_": True}}
    )
    task = part("retable.tasks.tagged.TaggingTask", sentences=part("retable.tasks.tagged.TaggedFiles", **files), **own)
    return lambda dice: learnt(task, model, OF_TAGS, words() if model is ENCODER else None)


def clusters(dice: Random) -> None:
    files = part("retable.corpora.coreference.DocumentFiles", **{split: f"{split}.conll" for split in SPLITS})
    learnt(part("retable.tasks.clusters.CoreferenceTask", documents=files), RANKER, {}, None)


def answers(read: str, model: Mapping[str, Any]) -> Callable:
    readers = {f"read_{split}": part(f"retable.corpora.squad.{read}", _partial_=True) for split in ("train", "test")}
    files = part("retable.tasks.questions.QuestionFiles", train="train.json", test="test.json", held_out=1, **readers)
    task = part("retable.tasks.questions.QuestionTask", questions=files)
    return lambda dice: learnt(task, model, {"dropout": 0.1}, words() if model is ENCODER else None)


def choices(end: str, endings: Any, label: str | None = "label", **own: Any) -> Callable:
    files = {"train": f"train.{end}", "test": f"test.{end}", "context": "start", "endings": endings, "label": label}
    source = part("retable.corpora.choice_files.ChoiceFiles", **files, held_out=2, **own)
    return lambda dice: learnt(part("retable.tasks.choices.ChoiceTask", choices=source), ENCODER, OF_CHOICES, words())


# Benchmarks


def measured(benchmark: Any, system: Any) -> None:
    """Do what stage evaluate does."""
    write_metrics(Path(), benchmark(system, Path("out")))


def prompted(questions: Callable[[], Any], template: str) -> Callable:
    def use(dice: Random) -> None:
        by, shots = dice.choice(["likelihood", "generation"]), dice.choice([0, 2])
        measured(Prompted("own", tokens(), questions(), template, shots=shots, examples=questions(), by=by), counted())

    return use


def labelled_prompts(path: str) -> Callable:
    return prompted(lambda: Labelled(path, "label", {"good": "cat", "bad": "bird"}), "{sentence} :")


def last_words(path: str) -> Callable:
    return lambda dice: measured(LastWords(tokens(), Lambada(path)), counted())


def vectors() -> WordVectors:
    return WordVectors(WORDS, np.random.default_rng(1).normal(size=(len(WORDS), 4)).astype(np.float32))


HELLASWAG = [
    {
        "activity_label": "Cats", "ctx_a": line, "ctx_b": "then it", "endings": ["sees [title] a bird", "has seen"],
        "label": i % 2,
    }
    for i, line in enumerate(LINES)
]  # fmt: skip
BLIMP = [
    {"sentence_good": line, "sentence_bad": "bird a sees", "UID": f"p{i % 2}", "linguistics_term": "s-selection"}
    for i, line in enumerate(LINES)
]


# Files made by other programs


def arpa(dice: Random) -> None:
    """Do what `retable import` and then `retable score` do with the file."""
    config = _arpa(Path("model.arpa"), "own", Path("out"))
    tokenizer = Tokenizer.load(Path("out/tokenizer.json"))
    model = build_counted(config, tokenizer)
    model.load(Path("out/model.safetensors"))
    ids = np.array([i for line in LINES for i in tokenizer.encode(f"{line}\n")])
    log_prob = model.log_prob(ids)
    assert np.isfinite(log_prob).all()  # with such back-off weights, the probabilities need not sum to 1
    assert all((table.log_prob <= 1e-3).all() for table in model.tables)


def word_vectors(dice: Random) -> None:
    path = next(Path().glob("vectors.*"))
    _vectors(path, "own", Path("out"))
    system = Vectors.of_file(Path("out/vectors.bin"))
    for name in system.words[:2]:
        assert all(np.isfinite(cosine) and abs(cosine) < 1.01 for _, cosine in system.neighbours(name))
    write_word2vec("out/vectors.txt", system.words, system.system.vectors)
    assert read_vectors("out/vectors.txt")[0] == system.words


HOSTILE = [
    "", " ", "the cat", "\0", "\u202ethe cat", "x" * 300, "ﷺ İ e\u0301 \U0010ffff", "<unk> </s> [CLS] <|endoftext|>",
    "\n\n",
]  # fmt: skip


def encoded(tokenizer: Tokenizer) -> None:
    for ids in tokenizer.encode_batch(HOSTILE):
        assert all(0 <= i < len(tokenizer.words) == tokenizer.vocab_size for i in ids)
        tokenizer.decode(ids)
    list(tokenizer.encode_units([HOSTILE[:3]], documents=True))


def tokenizer_file(dice: Random) -> None:
    tokenizer = load((), "tokenizer.json" if Path("tokenizer.json").exists() else ".")
    encoded(tokenizer)
    tokenizer.save(Path("out/tokenizer.json"))
    assert Tokenizer.load(Path("out/tokenizer.json")).words == tokenizer.words


def checkpoint(dice: Random) -> None:
    """Do what `retable import` does with a checkpoint, without the recipe, and what a training from it does."""
    opened = Checkpoint(".")
    encoded(opened.tokenizer)
    model = build_model({"model": opened.model}, opened.tokenizer)
    put_weights(model, opened.weights, opened.folder, prefix="model.")
    save_weights(model, Path("out/model.safetensors"))
    assert all(torch.isfinite(weight).all() for weight in opened.weights.values())
    assert all(file.is_file() for file in opened.files)
    assert opened.objective is None or settings.resolve(opened.objective["_target_"])


@cache
def files_of(name: str, *kept: str) -> dict[str, bytes]:
    folder = exported(*system(name), Path(mkdtemp(prefix="fuzz")))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name in kept}


CHECKPOINT = ("config.json", "model.safetensors", "tokenizer.json")
OLD_TEXT = {"gpt2": ("vocab.json", "merges.txt"), "bert": ("vocab.txt", "tokenizer_config.json")}


def older(name: str) -> dict[str, bytes]:
    """Return the checkpoint in the older format, without safetensors and tokenizer.json: two pickle files of torch."""
    from safetensors.torch import load

    files = files_of(name, *CHECKPOINT)
    vocabulary = json.loads(files["tokenizer.json"])["model"]
    weights = load(files["model.safetensors"])
    halves = [dict([*weights.items()][k::2]) for k in (0, 1)]
    parts = {}
    for number, half in enumerate(halves):
        torch.save(half, file := io.BytesIO())
        parts[f"pytorch_model-{number}.bin"] = file.getvalue()
    index = {"weight_map": {key: f"pytorch_model-{n}.bin" for n, half in enumerate(halves) for key in half}}
    if name == "gpt2":
        merges = ["#version: 0.2", *(" ".join(pair) for pair in vocabulary["merges"])]
        ids = json.loads(files["tokenizer.json"])["added_tokens"]
        known = {**vocabulary["vocab"], **{token["content"]: token["id"] for token in ids}}
        text = {"vocab.json": json.dumps(known).encode(), "merges.txt": of_lines(*merges)}
    else:
        text = {
            "vocab.txt": of_lines(*sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)),
            "tokenizer_config.json": b'{"do_lower_case": true, "strip_accents": null}',
        }
    return {
        "config.json": files["config.json"], "pytorch_model.bin.index.json": json.dumps(index).encode(), **parts,
        **text,
    }  # fmt: skip


def written(write: Callable[[Path], None], name: str) -> bytes:
    write(path := Path(mkdtemp(prefix="fuzz"), name))
    return path.read_bytes()


def kinds() -> dict[str, Kind]:
    text, eight = of_lines(*LINES, "", *LINES), b" ".join([b" the cat sees a bird"] * 20)
    vector, bpe, two = vectors(), byte_bpe.train(LINES, 270), ("train", "test")
    squad, triples = json.dumps(SQUAD).encode(), json.dumps(TRIPLES).encode()
    labelled = {"tsv": of_rows(*ROWS, delimiter="\t"), "csv": of_rows(*ROWS), "jsonl": of_records(*ROWS)}
    wic = {"data": of_lines(*(f"cat\tN\t1-1\t{line}\t{line}" for line in LINES)), "gold": of_lines("T", "F", "T")}
    flat = of_rows(*({key: row[key] for key in ("start", "ending0", "ending1", "label")} for row in CHOICES))
    tokenizers = {"word": words(), "bpe": bpe, "wordpiece": wordpiece.train(LINES, 60, True, 30),
                  "unigram": unigram.train(LINES, 130)}  # fmt: skip
    return {
        "text": Kind(in_splits(text, "txt"), corpus),
        "collection": Kind({"a.train": text, "b.train": text, "a.dev": text, "a.test": text}, collection),
        "wikitext": Kind({f"wiki.{name}.tokens": text for name in ("train", "valid", "test")}, wikitext),
        "one file": Kind({"whole.txt": text * 3}, one_file),
        "text8": Kind({"text8": eight}, text8),
        "text8.zip": Kind({"text8.zip": zipped("text8", eight)}, text8),
        "parallel": Kind(in_splits(of_lines(*LINES), "source") | in_splits(of_lines(*LINES), "target"), translations),
        "shards": Kind({"train_0.bin": shard(15), "train_1.bin": shard(10, False), "val_0.bin": shard(20),
                        "tokenizer.json": written(bpe.save, "tokenizer.json")}, shards),
        "tsv": Kind(in_splits(labelled["tsv"], "tsv"), sentences("tsv")),
        "csv": Kind(in_splits(labelled["csv"], "csv"), sentences("csv", form={"quotes": True})),
        "json lines": Kind(in_splits(labelled["jsonl"], "jsonl"), sentences("jsonl")),
        "parquet": Kind(in_splits(of_parquet(ROWS), "parquet"), sentences("parquet")),
        "pattern": Kind(
            in_splits(of_lines(*(f"{row['label']}:x {row['sentence']}" for row in ROWS)), "label", *two),
            sentences("label", {"pattern": r"(?P<label>\w+):\w+ (?P<sentence>.*)", "encoding": "latin-1"},
                      {"train": "train.label", "validation": 0.34, "test": "test.label"})),
        "scores": Kind(
            in_splits(of_rows(*PAIRS, delimiter="\t"), "txt"),
            sentences("txt", sentences=["a", "b"], label="score", labels=None, scores=[0, 5],
                      metrics=["pearson", "spearman"])),
        "gold": Kind(
            in_splits(wic["data"], "data") | in_splits(wic["gold"], "gold"),
            sentences("data", {"columns": ["word", "kind", "places", "a", "b"]},
                      {split: {"path": f"{split}.data", "gold": f"{split}.gold"} for split in SPLITS},
                      sentences=["a", "b"], label="gold", labels={"F": "different", "T": "same"},
                      metrics=["accuracy"])),
        "trees": Kind(
            in_splits(of_lines(*TREES), "trees"),
            sentences("trees", files={"train": {"path": "train.trees", "phrases": True},
                                      "validation": "validation.trees", "test": "test.trees"},
                      metrics=["accuracy"], labels=[*range(5)],
                      read=part("retable.tasks.trees.read_trees", _partial_=True))),
        "columns": Kind(in_splits(of_lines(*COLUMNS), "cols"), tags("cols", None, scheme="IOBES")),
        "columns, by tokens": Kind(in_splits(of_lines(*COLUMNS), "cols"), tags("cols", None, ENCODER, scheme=None)),
        "conllu": Kind(in_splits(of_lines(*CONLLU), "conllu"),
                       tags("conllu", part("retable.corpora.conllu.read_conllu"))),
        "roles": Kind(
            in_splits(of_lines(*ROLES), "props"),
            tags("props", part("retable.corpora.propbank.read_propositions", word=0, first=2), LABELLER, scheme="IOB2",
                 roles=True)),
        "coreference": Kind(in_splits(of_lines(*CLUSTERS), "conll"), clusters),
        "squad": Kind(in_splits(squad, "json", *two), answers("read_squad", READER)),
        "squad, by tokens": Kind(in_splits(squad, "json", *two), answers("read_squad", ENCODER)),
        "triples": Kind(in_splits(triples, "json", *two), answers("read_triples", READER)),
        "choices.csv": Kind(in_splits(flat, "csv", *two), choices("csv", ["ending0", "ending1"])),
        "choices.jsonl": Kind(in_splits(of_records(*CHOICES), "jsonl", *two), choices("jsonl", "endings")),
        "labelled choices": Kind(
            in_splits(of_records(*CHOICES), "jsonl", *two) | in_splits(of_lines(*"010101"), "lst", *two),
            choices("jsonl", "endings", None, labels={"train": "train.lst", "test": "test.lst"})),
        "hellaswag": Kind({"hellaswag.jsonl": of_records(*HELLASWAG)},
                          prompted(lambda: HellaSwag("hellaswag.jsonl"), "{context}")),
        "piqa": Kind(
            {"piqa.jsonl": of_records(*({"goal": line, "sol1": "a bird", "sol2": "the cat"} for line in LINES)),
             "piqa.lst": of_lines(*"010")},
            prompted(lambda: PIQA("piqa.jsonl", "piqa.lst"), "{goal}")),
        **{f"prompts.{end}": Kind({f"rows.{end}": content}, labelled_prompts(f"rows.{end}"))
           for end, content in labelled.items()},
        "lambada.txt": Kind({"lambada.txt": of_lines(*LINES)}, last_words("lambada.txt")),
        "lambada.jsonl": Kind({"lambada.jsonl": of_records(*({"text": line} for line in LINES))},
                              last_words("lambada.jsonl")),
        "blimp": Kind({"paradigm.jsonl": of_records(*BLIMP)},
                      lambda dice: measured(MinimalPairs(tokens(), BLiMP(".")), counted())),
        "similarity": Kind({"pairs.txt": of_lines("cat bird 3.5", "sees seen\t9", "the a 1", "x cat 2")},
                           lambda dice: measured(Similarity(".", dice.random() < 0.5), vector)),
        "analogies": Kind(
            {"questions.txt": of_lines(": animals", "cat bird sees seen", "the a cat bird", ": gram1", "a the it no")},
            lambda dice: measured(
                dice.choice([Analogies("questions.txt"), Capitals("questions.txt", "animals")]), vector)),
        **{name: Kind({name: written(lambda path: write_word2vec(path, WORDS, vector.vectors), name)}, word_vectors)
           for name in ("vectors.txt", "vectors.bin")},
        "vectors.txt of GloVe": Kind({"vectors.txt": of_lines("the 0.1 0.2", "cat -1 2e-3", "bird 1 0")}, word_vectors),
        "vectors.zip": Kind(
            {"vectors.zip": zipped("vectors.txt", of_lines("the 0.1 0.2", "cat -1 2e-3"))}, word_vectors),
        "vectors.bin of fastText": Kind({"vectors.bin": fasttext_model()}, word_vectors),
        "arpa": Kind(
            {"model.arpa": written(lambda path: write_arpa(counted(), words().words, path), "model.arpa")}, arpa),
        **{f"tokenizer.json of {name}": Kind({"tokenizer.json": written(its.save, "tokenizer.json")}, tokenizer_file)
           for name, its in tokenizers.items()},
        **{f"tokenizer files of {name}": Kind({file: older(name)[file] for file in OLD_TEXT[name]}, tokenizer_file)
           for name in OLD_TEXT},
        **{f"checkpoint, {name}": Kind(files_of(name, *CHECKPOINT), checkpoint)
           for name in ("gpt2", "bert", "electra", "t5")},
        **{f"older checkpoint, {name}": Kind(older(name), checkpoint) for name in OLD_TEXT},
    }  # fmt: skip
