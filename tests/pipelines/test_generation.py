"""Texts that language models write, complete and rank, as a user asks for them."""

import json
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient
from safetensors.numpy import save_file

from pipelines.complete import complete
from pipelines.generate import generate
from pipelines.rank import rank
from retable.artifacts import read_record
from retable.cells.systems import carry_parts
from retable.models.ngram import KneserNey
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.tokenizers import byte_bpe, word
from retable.training.weights import save_weights

LINES = ["the old man sees a dog", "the old man sees a cat", "the old café sells a tea", "a dog sees the man"] * 5
NGRAMS = {"_target_": "retable.models.ngram.KneserNey", "order": 8}
LSTM_OF_6 = {"d_model": 6, "n_layers": 1, "dropout": 0.0, "init_range": 1.0}
OBJECTIVE = {"_target_": "retable.objectives.causal_lm.CausalLM", "tie": False, "bias": True, "reduction": "mean"}
SCORER = {"_target_": "retable.evaluation.likelihood.Carried", "rows": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with cells: n-grams of words and of bytes, an LSTM of no training, the mixture of two, a classifier."""
    folder = tmp_path_factory.mktemp("project")
    tokenizers = {"word": word.train(LINES), "bpe": byte_bpe.train(LINES, vocab_size=260)}
    (folder / "outputs/prepare/c").mkdir(parents=True)
    (folder / "outputs/prepare/c/test.txt").write_text("a dog\n\nthe old man sees a dog\na cat sees the dog\n")

    def cell(stage: str, name: str, tokens: str, **config):
        made = folder / "outputs" / stage / "c" / name
        made.mkdir(parents=True)
        (made / "config.yaml").write_text(json.dumps({"tokens": f"c/{tokens}"} | config))
        tokenizers[tokens].save(made / "tokenizer.json")
        run = {"system": name[:-2], "corpus": "c", "seed": 1}
        (made / "run.json").write_text(json.dumps(run))
        return made

    models = {}
    for name, tokens in (("words-1", "word"), ("bytes-1", "bpe")):
        tokenizer, made = tokenizers[tokens], cell("pretrain", name, tokens, objective=None, model=NGRAMS)
        models[name] = KneserNey(tokenizer.vocab_size, order=8, boundary=tokenizer.boundary)
        units = tokenizer.encode_units([[line] for line in LINES], documents=tokens == "bpe")
        models[name].estimate(np.array([i for ids, _, _ in units for i in ids]))
        models[name].save(made / "model.safetensors")
    torch.manual_seed(0)
    V = tokenizers["word"].vocab_size
    settings = {"_target_": "retable.models.recurrent.LSTM"} | LSTM_OF_6
    made = cell("pretrain", "lstm-1", "word", objective=OBJECTIVE, model=settings, scorer=SCORER)
    save_weights(CausalLM(LSTM(V, **LSTM_OF_6), V, tie=False, bias=True, reduction="mean"), made / "model.safetensors")
    cells = ["pretrain/c/words-1", "pretrain/c/lstm-1"]
    made = cell("mix", "both-1", "word", cells=cells)
    save_file({"weights": np.array([0.9, 0.1])}, made / "model.safetensors")
    carry_parts([folder / "outputs" / each for each in cells], made)
    cell("train", "sentiment-lstm-1", "word", task={})
    return SimpleNamespace(folder=folder, models=models, tokenizers=tokenizers)


@pytest.fixture
def run(project, monkeypatch, capsys):
    """Run an application as from the command line: what it prints, and its line on standard error."""

    def run(application, *overrides: str) -> tuple[str, str]:
        monkeypatch.chdir(project.folder)
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        monkeypatch.setattr(sys, "argv", [application.__name__, *overrides])
        application()
        return tuple(capsys.readouterr())

    return run


@pytest.fixture
def refuse(run, capsys):
    def refuse(application, *overrides: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            run(application, *overrides)
        assert stopped.value.code == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        return line.removeprefix("error: ")

    return refuse


@pytest.mark.parametrize(
    ("cell", "begun"),
    [("pretrain words-1", "the old café"), ("pretrain bytes-1", "the old caf"), ("mix both-1", "the old café")],
)
def test_a_beginning_is_completed(run, cell, begun):
    stage, name = cell.split()
    printed, _ = run(complete, f"stage={stage}", f"cell=c/{name}", f'prompt="{begun}"')
    assert printed.startswith("the old café sells a tea\n")


def test_unknown_words_are_named_and_nothing_will_do_too(run):
    printed, said = run(complete, "cell=c/words-1", 'prompt="the zebra <unk> yak"')
    assert printed == "the zebra <unk> yak\n"
    assert said.splitlines() == [
        "unknown to the tokenizer, read as <unk>: zebra, yak",
        "The model takes this for the end of its text; write more, or another prompt.",
    ]
    printed, said = run(complete, "cell=c/words-1", "prompt=")
    assert printed.startswith("the old man sees a") and not said


def test_alternatives_come_with_their_log_probabilities(run, project):
    settings = ["decoding=beam", "decoding.num_return_sequences=3", "decoding.length_penalty=0"]
    printed, _ = run(complete, "cell=c/words-1", "prompt=the old man", *settings)
    rows = [line.split(maxsplit=1) for line in printed.splitlines()]
    assert {"the old man sees a dog", "the old man sees a cat"} == {text for _, text in rows[:2]}
    model, tokenizer = project.models["words-1"], project.tokenizers["word"]
    for log_prob, text in rows:
        expected = model.log_prob(np.array(tokenizer.encode(f"{text}\n")))[3:].sum()
        assert float(log_prob) == pytest.approx(expected, abs=1e-3)
    assert [float(log_prob) for log_prob, _ in rows] == sorted((float(row[0]) for row in rows), reverse=True)


@pytest.mark.parametrize("end", [True, False])
def test_ranking_is_by_the_models_own_probability(run, project, end):
    texts = ["dog the sees a", "a dog sees the man", "the old ape"]
    sentences = f"sentences=[{','.join(texts)}]"
    printed, said = run(rank, "cell=c/words-1", sentences, f"end={end}")
    assert said == "unknown to the tokenizer, read as <unk>: ape\n"
    model, tokenizer = project.models["words-1"], project.tokenizers["word"]
    found = [line.split(maxsplit=3) for line in printed.splitlines()[1:]]
    assert found[0][3] == "a dog sees the man" and len(found) == 3
    for log_prob, each, n, text in found:
        ids = tokenizer.encode(text + "\n" * end)
        expected = model.log_prob(np.array(ids)).sum()
        assert (float(log_prob), int(n)) == (pytest.approx(expected, abs=1e-3), len(ids))
        assert float(each) == pytest.approx(expected / len(ids), abs=1e-3)
    assert [float(row[0]) for row in found] == sorted((float(row[0]) for row in found), reverse=True)


def test_samples_stand_in_the_cell_and_in_mlflow(run, project):
    settings = ["decoding=top_p", "decoding.num_return_sequences=2", "decoding.max_new_tokens=6"]
    run(generate, "cell=c/lstm-1", *settings)
    cell = project.folder / "outputs/generate/c/lstm-1-top_p"
    rows = [json.loads(line) for line in (cell / "samples.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["the old man"] * 2 + ["a cat sees"] * 2
    assert {row["strategy"] for row in rows} == {"top_p"}
    for row in rows:
        ended = row["tokens"] - len(row["text"].split())
        assert ended in (0, 1) and row["tokens"] <= 6 and (ended or row["tokens"] == 6)
        assert row["log_prob"] < 0
    readable = (cell / "samples.txt").read_text()
    assert readable == "".join(f"{row['prompt']} | {row['text']}\n\n" for row in rows)
    metrics, made = (json.loads((cell / f"{name}.json").read_text()) for name in ("metrics", "run"))
    assert metrics["samples"] == 4 and metrics["mean_length"] == np.mean([row["tokens"] for row in rows])
    total = sum(row["log_prob"] for row in rows) / sum(row["tokens"] for row in rows)
    assert metrics["log_prob_token"] == pytest.approx(total, abs=1e-4)
    words = [row["text"].split() for row in rows]
    pairs = [pair for text in words for pair in pairwise(text)]
    assert metrics["distinct_2"] == pytest.approx(len(set(pairs)) / len(pairs))
    assert (made["system"], made["seed"], made["strategy"], made["corpus"]) == ("lstm", 1, "top_p", "c")
    assert made["made_from"] == ["pretrain/c/lstm-1"] and "outputs/prepare/c/test.txt" in made["digests"]
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    artifacts = {file.path for file in client.list_artifacts(read_record(cell)["mlflow_run_id"])}
    assert {"samples.jsonl", "samples.txt", "config.yaml", "lstm-1-top_p.record.json"} <= artifacts

    run(generate, "cell=c/words-1", "decoding=greedy", 'prompts=["the old café",""]', "stop=false")
    rows = (project.folder / "outputs/generate/c/words-1-greedy/samples.jsonl").read_text().splitlines()
    first, second = map(json.loads, rows)
    assert first["text"].startswith("sells a tea <eos>") and (second["prompt"], second["tokens"]) == ("", 40)


@pytest.mark.parametrize(
    ("application", "overrides", "message"),
    [
        (complete, ["cell=c/lstm-9"], "outputs/pretrain/c/lstm-9/config.yaml is missing"),
        (complete, ["stage=train", "cell=c/sentiment-lstm-1"], "holds no language model; take a cell of stage=pre"),
        (complete, ["cell=c/words-1", "decoding=top_p", "decoding.temperature=0"], "temperature=0 can't be"),
        (complete, ["cell=c/words-1", "decoding=nucleus"], "decoding/nucleus"),
        (rank, ["cell=c/words-1"], "there is nothing to rank"),
        (rank, ["cell=c/words-1", 'sentences=[a,""]', "end=false"], "one of the sentences is empty"),
        (generate, ["cell=c/words-1", "prompt_words=9"], "test.txt has no line of more than 9 words"),
        (generate, ["stage=train", "cell=c/sentiment-lstm-1"], "holds no language model"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_mistakes_of_use(refuse, project, application, overrides, message):
    assert message in refuse(application, *overrides)
    assert not list(project.folder.glob("work/generate/**/payload"))
