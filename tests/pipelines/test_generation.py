"""Test texts that language models write, complete and rank, as a user runs them."""

import json
import re
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient
from safetensors.numpy import save_file

from pipelines.cli.main import main
from pipelines.generate import generate
from retable.core.artifacts import read_record
from retable.inference.systems import carry_parts
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
    """Return a folder with cells: n-grams of words and of bytes, an untrained LSTM, a mixture of two, a classifier."""
    folder = tmp_path_factory.mktemp("project")
    tokenizers = {"word": word.train(LINES), "bpe": byte_bpe.train(LINES, vocab_size=260)}
    (folder / "outputs/prepare/c").mkdir(parents=True)
    (folder / "outputs/prepare/c/test.txt").write_text("a dog\n\nthe old man sees a dog\na cat sees the dog\n")

    def cell(stage: str, name: str, tokens: str, **config):
        made = folder / "outputs" / stage / "c" / name
        made.mkdir(parents=True)
        (made / "config.yaml").write_text(json.dumps({"tokens": f"c/{tokens}"} | config))
        tokenizers[tokens].save(made / "tokenizer.json")
        run = {"stage": stage, "system": name[:-2], "corpus": "c", "seed": 1, "made_from": [f"tokenize/c/{tokens}"]}
        (made / "run.json").write_text(json.dumps(run))
        (made / "metrics.json").write_text(json.dumps({"validation/loss": 1.25}))
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
    """Run an application as from the command line. Return its output, and its line on standard error."""

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


@pytest.fixture
def command(run, capsys):
    """Run the command and check that it ends with `code`. Return its output and its lines on standard error."""

    def command(*arguments: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stopped:
            run(main, *arguments)
        printed = capsys.readouterr()
        assert stopped.value.code == code, printed.err
        return tuple(printed)

    return command


@pytest.mark.parametrize(
    ("cell", "begun"),
    [("pretrain/c/words-1", "the old café"), ("bytes-1", "the old caf"), ("mix/c/both-1", "the old café")],
)
def test_a_beginning_is_completed(command, cell, begun):
    printed, _ = command("generate", cell, begun)
    assert printed.startswith("the old café sells a tea\n")


def test_unknown_words_are_named_and_nothing_will_do_too(command):
    printed, stderr = command("generate", "words-1", "the zebra <unk> yak")
    assert printed == "the zebra <unk> yak\n"
    assert stderr.splitlines() == [
        "unknown to the tokenizer, read as <unk>: zebra, yak",
        "note: the model ended the text at once; write another or a longer prompt",
    ]
    printed, stderr = command("generate", "words-1")
    assert printed.startswith("the old man sees a") and not stderr


def test_special_tokens_in_a_prompt_are_read_as_such_only_if_asked_for(command, run, refuse, project):
    prompt = "the old man <eos> a"
    refused = "contains <eos>, which this tokenizer reserves"
    for call in (["generate", "words-1", prompt], ["score", "words-1", prompt]):
        assert refused in command(*call, code=2)[1]
    ids = project.tokenizers["word"].encode("the old man\na")
    model, calls = project.models["words-1"], ["--special-tokens", "--strategy", "beam", "--num-beams", "9", "--n", "1"]
    printed, stderr = command("generate", "words-1", prompt, *calls, "--max-new-tokens", "1")
    best = max(model.log_prob(np.array([*ids, word]))[-1] for word in range(project.tokenizers["word"].vocab_size))
    assert float(printed.split()[0]) == pytest.approx(best, abs=1e-3) and not stderr
    given = ["cell=c/words-1", "decoding=greedy", f'prompts=["{prompt}"]', "out=c/words-marks"]
    assert refused in refuse(generate, *given)
    run(generate, *given, "special_tokens=true")


def test_alternatives_come_with_their_log_probabilities(command, project):
    printed, _ = command("generate", "words-1", "the old man", "--strategy", "beam", "--n", "3")
    rows = [line.split(maxsplit=1) for line in printed.splitlines()]
    assert {"the old man sees a dog", "the old man sees a cat"} <= {text for _, text in rows}
    model, tokenizer = project.models["words-1"], project.tokenizers["word"]
    for log_prob, text in rows:
        expected = model.log_prob(np.array(tokenizer.encode(f"{text}\n")))[3:].sum()
        assert float(log_prob) == pytest.approx(expected, abs=1e-3)
    drawing = ["generate", "words-1", "the old", "--strategy", "sample", "--seed", "3", "--max-new-tokens", "5"]
    drawn, _ = command(*drawing)
    assert drawn.startswith("the old ") and (drawn, "") == command(*drawing)


@pytest.mark.parametrize("end", [True, False])
def test_ranking_is_by_the_models_own_probability(command, project, end):
    texts = ["dog the sees a", "a dog sees the man", "the old ape"]
    printed, stderr = command("score", "words-1", *texts, "--end" if end else "--no-end")
    assert stderr == "unknown to the tokenizer, read as <unk>: ape\n"
    model, tokenizer = project.models["words-1"], project.tokenizers["word"]
    rows = [line.split(maxsplit=3) for line in printed.splitlines()[1:]]
    assert rows[0][3] == "a dog sees the man" and len(rows) == 3
    for log_prob, each, n, text in rows:
        ids = tokenizer.encode(text + "\n" * end)
        expected = model.log_prob(np.array(ids)).sum()
        assert (float(log_prob), int(n)) == (pytest.approx(expected, abs=1e-3), len(ids))
        assert float(each) == pytest.approx(expected / len(ids), abs=1e-3)
    assert [float(row[0]) for row in rows] == sorted((float(row[0]) for row in rows), reverse=True)


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


@pytest.mark.parametrize(("application", "overrides", "message"), [
    (generate, ["cell=c/words-1", "decoding=top_p", "decoding.temperature=0"], "temperature=0 should be greater"),
    (generate, ["cell=c/words-1", "decoding=nucleus"], "decoding/nucleus"),
    (generate, ["cell=c/words-1", "prompt_words=9"], "test.txt has no line of more than 9 words"),
    (generate, ["stage=embed", "cell=c/lstm-1"], "stage=embed should be 'pretrain', 'mix', 'from_scratch' or '"),
], ids=lambda part: part if isinstance(part, str) else "")  # fmt: skip
def test_mistakes_of_use(refuse, project, application, overrides, message):
    assert message in refuse(application, *overrides)
    assert not list(project.folder.glob("work/generate/**/payload"))


@pytest.mark.parametrize(("arguments", "message"), [
    (["score", "words-1", "a", " "], "one of the texts is empty"),
    (["generate", "words-1", "--strategy", "sample", "--seed", str(2**64)], "Invalid value for '--seed'"),
    (["generate", "words-1", "--n", "2"],
     "--n 2: --strategy greedy generates one text; write --strategy beam or sample"),
    (["generate", "words-1", "--strategy", "sample", "--temperature", "0"], "temperature=0.0 is out of range"),
    (["export", "lstm-1", "x.arpa"], "lstm-1 is not an n-gram model, and an ARPA file can contain"),
], ids=lambda part: part if isinstance(part, str) else "")  # fmt: skip
def test_mistakes_of_the_command(command, arguments, message):
    stderr = command(*arguments, code=2)[1].splitlines()[-1]
    assert stderr.startswith("error: ") and message in stderr


def test_what_there_is(command):
    studies, _ = command("studies")
    assert "\nhistory           Do language models improve in the order of history, and does" in studies
    assert all(question[-1] == "?" for question in re.split(r"\n(?! )", studies.rstrip()))  # whole questions
    assert max(map(len, studies.splitlines())) <= 80
    shown, _ = command("show", "outputs/pretrain/c/words-1")
    first, can, origin, metric = shown.splitlines()
    assert first == "outputs/pretrain/c/words-1: words on c, seed 1" and origin == "made from  tokenize/c/word"
    assert can.startswith("can        perplexity, score, choose, generate")
    assert metric.split() == ["validation/loss", "1.25"]
