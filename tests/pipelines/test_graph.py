"""Test the whole graph with small sizes, stage by stage, as a user runs it."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow.tracking import MlflowClient
from safetensors.torch import load_file

from pipelines import evaluate
from retable.core.artifacts import read_record
from retable.models.vector_files import read_vectors
from retable.objectives.word_by_word import WordByWord
from retable.tokenizers.tokenizer import Tokenizer
from tests.pipelines.conftest import CELLS, SHORT, SKIPGRAM, TINY, TWO, unrecorded

ELMAN = [*SHORT, "recipe=recurrent/elman", "model.d_model=8"]
FINE_TUNED = CELLS["finetune/grammar_tiny/acceptability-gpt-1"]


@pytest.fixture(scope="module")
def graph(own):
    """Return the project after every stage has run."""
    return own


def test_cells_are_complete(cells):
    for place in CELLS:
        folder = cells.folder / "outputs" / place
        names = {path.name for path in folder.iterdir()}
        assert {"config.yaml", "metrics.json", "run.json", "digests.json"} <= names and read_record(folder), place


LEARNT = {  # by the path of a cell: its task, the numbers of examples of its splits, and its special files
    "finetune/grammar_tiny/sentiment-bilstm-1": ("sentiment", (60, 20, 40), {"tokenizer.json"}),
    "finetune/grammar_tiny/acceptability-gpt-1": ("acceptability", (60, 20, 40), {"tokenizer.json"}),
    "from_scratch/grammar_pos/bilstm_crf-1": ("grammar_pos", (41, 11, 18), {
        "vocabulary.json", "learnt.json", "validation.tags.txt", "test.tags.txt"}),
    "from_scratch/grammar_questions_tiny/bidaf-1": ("grammar_questions_tiny", (24, 8, 16), {
        "vocabulary.json", "predictions.json"}),
    "from_scratch/grammar_documents_tiny/mention_ranker-1": ("grammar_documents_tiny", (6, 2, 5), {
        "vocabulary.json", "validation.key.conll", "validation.response.conll", "test.key.conll",
        "test.response.conll"}),
    "from_scratch/english_endings_tiny/bilstm-1": ("english_endings_tiny", (60, 20, 20), {"tokenizer.json"}),
}  # fmt: skip


@pytest.mark.parametrize("place", LEARNT)
def test_a_cell_of_a_task_is_complete(place, cells):
    folder, (task, sizes, own) = cells.folder / "outputs" / place, LEARNT[place]
    always = {"config.yaml", "curve.csv", "digests.json", "metrics.json", "model.safetensors", "run.json", "units.csv"}
    assert {path.name for path in folder.iterdir()} == always | own
    run, (stage, corpus, name) = cells.read(f"{place}/run.json"), place.split("/")
    facts = [stage, task, corpus, name.removeprefix(f"{task}-")[:-2], 1]
    assert [run[key] for key in ("stage", "task", "corpus", "system", "seed")] == facts
    train, validation, test = sizes
    assert run["examples"] == {"train": train, "validation": validation, "test": test}
    units = pd.read_csv(folder / "units.csv").groupby("split").size()
    assert units.to_dict() == {"validation": validation, "test": test}


def test_run_leads_to_its_origins(graph):
    cell, *origins = ("evaluate/grammar_tiny/elman-1", "pretrain/grammar_tiny/elman-1", "tokenize/grammar_tiny/word")
    run = graph.read(f"{cell}/run.json")
    assert (run["system"], run["made_from"]) == ("elman", origins)
    record, *upstream = (read_record(graph.folder / "outputs" / place) for place in (cell, *origins))
    assert record["upstream_runs"] == [each["mlflow_run_id"] for each in upstream]
    client = MlflowClient(f"sqlite:///{graph.folder / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'retable'")
    (tracked,) = client.search_runs([experiment.experiment_id], f"tags.`retable.cell` = '{cell}'")
    assert tracked.info.run_id == record["mlflow_run_id"]
    assert tracked.data.tags["retable.upstream"] == ",".join(record["upstream_runs"])
    assert tracked.data.tags["mlflow.runName"] == "perplexity"  # named after the cell of its parent run


def test_a_cell_whose_origins_have_no_record_is_made_alike(graph):
    cell, origin = (graph.folder / f"outputs/{stage}/grammar_tiny/elman-1" for stage in ("evaluate", "pretrain"))
    before = {path: path.read_bytes() for path in cell.rglob("*.*")}
    with unrecorded(origin):
        graph.succeed("evaluate", TINY, "cell=grammar_tiny/elman-1")
    assert {path: path.read_bytes() for path in cell.rglob("*.*")} == before and len(before) == 6
    assert len(read_record(cell)["upstream_runs"]) == 1  # the run of the tokens


def test_the_corpus_is_that_of_the_text_wherever_the_cell_lies(graph):
    graph.succeed("pretrain", TINY, "recipe=counted/unigram", "out=elsewhere/mine")
    graph.succeed("evaluate", TINY, "cell=elsewhere/mine")
    for stage in ("pretrain", "evaluate"):
        assert graph.read(f"{stage}/elsewhere/mine/run.json")["corpus"] == "grammar_tiny"


def test_scores_cover_the_same_text(cells):
    metrics = [cells.read(f"evaluate/grammar_tiny/{name}-1/metrics.json") for name in ("both", "gpt", "elman", "elmo")]
    text = cells.read("prepare/grammar_tiny/metrics.json")
    assert all(each[f"test/{unit}"] == text[f"test/{unit}"] for each in metrics for unit in ("words", "bytes"))


def test_no_system_beats_the_oracle(cells):
    oracle = cells.read("prepare/grammar_tiny/metrics.json")["test/nats"]
    for cell in ("both", "elman", "gpt"):
        assert cells.read(f"evaluate/grammar_tiny/{cell}-1/metrics.json")["test/nats"] > oracle


@pytest.fixture
def measured(graph, monkeypatch):
    """Evaluate a cell. Return the benchmarks that were measured, after a check that the model was read once."""
    shutil.rmtree(graph.folder / "work/measured")
    load, found_before = evaluate.load_system, evaluate.measured_before
    loads, names = [], []

    def measured_before(kept, folder):
        if (before := found_before(kept, folder)) is None:
            names.append(folder.name)
        return before

    monkeypatch.setattr(evaluate, "load_system", lambda cell: loads.append(cell) or load(cell))
    monkeypatch.setattr(evaluate, "measured_before", measured_before)

    def measured(cell: str, benchmarks: str, *settings: str) -> list[str]:
        loads.clear()
        names.clear()
        cell = f"cell=grammar_tiny/{cell}"
        graph.succeed("evaluate", TINY, cell, f"benchmark=[{benchmarks}]", *settings)
        assert len(loads) == 1
        return [*names]

    return measured


def test_several_benchmarks_read_the_model_once_and_are_as_one_at_a_time(graph, measured):
    """Also the gradients of a model that other benchmarks have read without gradients."""
    names, few = ["perplexity", "gradients", "phenomena"], "benchmark.gradients.windows=8"
    assert measured("elman-1", ",".join(names), few, "out=apart/together") == names
    evaluated, metrics = graph.folder / "outputs/evaluate/apart", {}
    together = evaluated / "together"
    for name in names:
        shutil.rmtree(graph.folder / "work/measured", ignore_errors=True)
        assert measured("elman-1", name, *[few] * (name == "gradients"), f"out=apart/{name}") == [name]
        alone = evaluated / name
        files = {path.name: path.read_bytes() for path in (alone / name).iterdir()}
        assert len(files) > 1 and files == {path.name: path.read_bytes() for path in (together / name).iterdir()}
        metrics |= json.loads((alone / "metrics.json").read_text())
    assert json.loads((together / "metrics.json").read_text()) == metrics
    own = {"config.yaml", "metrics.json", "run.json", "digests.json"}
    assert {path.name for path in together.iterdir()} == {*own, *names}


def test_what_was_measured_is_not_measured_again(graph, measured):
    """This holds if a benchmark is added or gets other settings. A damaged result, or a changed system, is measured
    again.
    """
    cell, out = graph.folder / "outputs/evaluate/grown/one", "out=grown/one"
    assert measured("kn3-1", "perplexity", out) == ["perplexity"]
    before = {path.name: path.read_bytes() for path in (cell / "perplexity").iterdir()}
    assert measured("kn3-1", "perplexity,phenomena", out) == ["phenomena"]
    assert {path.name: path.read_bytes() for path in (cell / "perplexity").iterdir()} == before
    metrics = graph.read("evaluate/grown/one/metrics.json")
    assert {"test/nats", "phenomena/total/excess"} <= metrics.keys()
    assert measured("kn3-1", "phenomena,perplexity", out, "benchmark.perplexity.splits=[test]") == ["perplexity"]
    assert measured("kn3-1", "perplexity,phenomena", out) == []
    assert graph.read("evaluate/grown/one/metrics.json") == metrics
    for kept in (graph.folder / "work/measured").glob("*/metrics.json"):
        kept.write_text("{}", encoding="utf-8")
    assert measured("kn3-1", "perplexity,phenomena", out) == ["perplexity", "phenomena"]
    assert graph.read("evaluate/grown/one/metrics.json") == metrics
    for order in ("model.order=5", "model.order=4"):
        graph.succeed("pretrain", TINY, "recipe=counted/kn5", "system=changed", order)
        assert measured("changed-1", "perplexity") == ["perplexity"] and measured("changed-1", "perplexity") == []


def test_a_benchmark_that_can_not_be_answered_is_refused_before_any_runs(graph):
    assert "kn3-1 is not a TrainedSystem, which benchmark gradients needs; write another benchmark" in graph.refuse(
        "evaluate", TINY, "cell=grammar_tiny/kn3-1", "benchmark=[perplexity,gradients]"
    )
    assert not (graph.folder / "work/evaluate/grammar_tiny/kn3-1").exists()
    assert not (graph.folder / "outputs/evaluate/grammar_tiny/kn3-1/gradients").exists()


def test_a_variant_of_a_benchmark_and_both_at_once(graph, tmp_path):
    """The variant inherits other settings and has a separate name; both measure the same number."""
    (tmp_path / "benchmark").mkdir()
    text = "# @package benchmark.again\ndefaults: [perplexity@_here_, _self_]\nsplits: [test]\n"
    (tmp_path / "benchmark/again.yaml").write_text(text, encoding="utf-8")
    kn3 = [f"--config-dir={tmp_path}", TINY, "cell=grammar_tiny/kn3-1"]
    for name in ("perplexity", "again"):
        graph.succeed("evaluate", *kn3, f"benchmark={name}", f"out=apart/{name}_alone")
    first, again = (graph.read(f"evaluate/apart/{name}_alone/metrics.json") for name in ("perplexity", "again"))
    assert again == {name: value for name, value in first.items() if name.startswith("test/")}
    assert "two benchmarks measure test/bits_per_byte; run benchmark again separately" in graph.refuse(
        "evaluate", *kn3, "benchmark=[perplexity,again]"
    )
    assert not (graph.folder / "outputs/evaluate/grammar_tiny/kn3-1/again").exists()


def test_same_seed_same_bytes(graph):
    before = (graph.folder / "outputs/pretrain/grammar_tiny/elman-1/model.safetensors").read_bytes()
    graph.succeed("pretrain", *ELMAN, "system=again")
    assert (graph.folder / "outputs/pretrain/grammar_tiny/again-1/model.safetensors").read_bytes() == before
    graph.succeed("pretrain", *ELMAN, "system=again", "seed=2")
    assert (graph.folder / "outputs/pretrain/grammar_tiny/again-2/model.safetensors").read_bytes() != before


def test_a_frozen_model_keeps_its_weights(graph):
    *random, init = FINE_TUNED
    assert "init=random leaves a frozen GPT with random weights; write a cell" in graph.refuse(*random, "frozen=true")
    graph.succeed(*random, init, "frozen=true", "system=gpt_frozen")
    names = (
        "pretrain/grammar_tiny/gpt-1",
        *(f"finetune/grammar_tiny/acceptability-{gpt}-1" for gpt in ("gpt", "gpt_frozen")),
    )
    trained, tuned, frozen = (load_file(graph.folder / "outputs" / name / "model.safetensors") for name in names)
    assert all(torch.equal(weight, frozen[name]) for name, weight in trained.items())
    assert not any(torch.equal(weight, tuned[name]) for name, weight in trained.items())
    assert set(frozen) == {*trained, "head.weight", "head.bias"}


def test_word_vectors_start_an_input_layer(graph):
    graph.succeed("pretrain", *ELMAN, SKIPGRAM, "freeze_embedding=true", "system=elman_skipgram")
    cell = graph.folder / "outputs/pretrain/grammar_tiny/elman_skipgram-1"
    words, vectors = read_vectors(graph.folder / SKIPGRAM.partition("=")[2])
    vocabulary = Tokenizer.load(cell / "tokenizer.json").words
    rows = load_file(cell / "model.safetensors")["model.embedding.weight"].numpy()
    rows = rows[[vocabulary.index(word) for word in words]]
    np.testing.assert_allclose(rows, vectors * (rows.std() / vectors.std()), rtol=1e-4, atol=1e-6)
    assert "embed/grammar_tiny/skipgram-1" in json.loads((cell / "run.json").read_text())["made_from"]


def test_unseen_words_have_ngrams(graph):
    graph.succeed("embed", *SHORT, "recipe=vectors/fasttext", "model.d_model=16", "model.buckets=1000")
    graph.succeed("evaluate", TINY, "stage=embed", "cell=grammar_tiny/fasttext-1", "benchmark=neighbours",
                  "benchmark.neighbours.words=[smeteling]")  # fmt: skip
    table = pd.read_csv(graph.folder / "outputs/evaluate/grammar_tiny/fasttext-1/neighbours/neighbours.csv")
    assert (table["word"] == "smeteling").sum() == 10


# With AdaGrad, GloVe takes a step of about the same length for each group as for each cell, so it starts more slowly.
@pytest.mark.parametrize(("recipe", "tolerance"), [("skipgram", 0.1), ("glove", 0.3)])
def test_word_vectors_learn_in_groups_as_on_a_gpu(graph, recipe, tolerance, monkeypatch):
    settings = [TINY, f"recipe=vectors/{recipe}", "model.d_model=16", "epochs=2"]
    graph.succeed("embed", *settings, f"system={recipe}_loops")
    monkeypatch.setattr(WordByWord, "_loop", lambda self, batch, lr: self._in_groups(batch, 0, lr))
    graph.succeed("embed", *settings, f"system={recipe}_groups")
    losses = [
        json.loads((graph.folder / f"outputs/embed/grammar_tiny/{recipe}_{way}-1/metrics.json").read_text())
        for way in ("loops", "groups")
    ]
    assert losses[0]["train/loss"] != losses[1]["train/loss"] == pytest.approx(losses[0]["train/loss"], rel=tolerance)


@pytest.mark.long
def test_two_processes_learn_word_vectors_deterministically(graph):
    settings = [TINY, "model.d_model=16", "batch_tokens=500", "epochs=1"]
    made = [graph.folder / f"outputs/embed/grammar_tiny/{system}-1" for system in ("first", "second", "alone")]
    for cell, devices in zip(made, ([*TWO], [*TWO], []), strict=True):
        by = ["trainer=ddp", *devices] if devices else []
        graph.forked.succeed("embed", *settings, *by, f"system={cell.name[:-2]}")
    first, second, _ = ((cell / "vectors.bin").read_bytes() for cell in made)
    assert first == second
    losses = [json.loads((cell / "metrics.json").read_text())["train/loss"] for cell in made]
    assert losses[0] == pytest.approx(losses[2], rel=0.05)
