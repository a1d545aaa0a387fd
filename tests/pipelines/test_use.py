"""Test cells that are moved and loaded with `retable.load`: their numbers are those of the stages."""

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import retable
from retable.core.errors import UsageError, UsageWarning
from retable.corpora.text import read_units
from retable.evaluation.scoring import Scorer
from retable.generation.next_token import next_token
from retable.inference import served
from tests.pipelines.conftest import ENVIRONMENT

TINY = "pretrain/grammar_tiny"
CLASSIFIER, TAGGER = "finetune/grammar_tiny/sentiment-bilstm-1", "from_scratch/grammar_pos/bilstm_crf-1"
READER, CHOOSER = "from_scratch/grammar_questions_tiny/bidaf-1", "from_scratch/english_endings_tiny/bilstm-1"
RANKER = "from_scratch/grammar_documents_tiny/mention_ranker-1"
TRANSLATOR = "from_scratch/grammar_pairs_tiny/rnn_translation_grammar-1"
SUMMARIZER = "from_scratch/grammar_summaries_tiny/lead_3-1"


@pytest.fixture(scope="module")
def outputs(cells) -> Path:
    return cells.folder / "outputs"


@pytest.fixture(scope="module")
def moved(outputs, tmp_path_factory) -> Path:
    """Return cells of systems in another folder, without the cells from which they were made."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "cells"
    for stage in ("pretrain", "embed", "mix", "finetune", "from_scratch"):
        shutil.copytree(outputs / stage, elsewhere / stage)
    return elsewhere


@pytest.fixture(autouse=True)
def away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def documents(outputs) -> list[str]:
    return ["\n".join(lines) for lines in read_units(outputs / "prepare/grammar_tiny/test.txt", "document")]


@pytest.mark.parametrize("name", [f"{TINY}/elman-1", f"{TINY}/gpt-1", f"{TINY}/elmo-1", "mix/grammar_tiny/both-1"])
def test_perplexities_are_those_of_the_benchmark(name, moved, cells, documents):
    system = retable.load(moved / name)
    expected = cells.read(f"evaluate/grammar_tiny/{name.rpartition('/')[2]}/metrics.json")
    metrics = system.likelihood(documents)
    assert metrics == pytest.approx({key: expected[f"test/{key}"] for key in metrics}, rel=1e-6)
    assert system.perplexity(documents) == metrics["perplexity_word"]
    assert system.perplexity(documents, per="token") == metrics["perplexity_token"]


def test_a_text_has_the_likelihood_of_its_file_whatever_ends_its_lines(moved):
    text = "the old mice sleep\nthe cat sees a bird"

    def measured(system: Any, text: str) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return system.likelihood(text), [str(each.message) for each in caught]

    for name in ("kn3-1", "gpt-1"):  # one with words, some unknown, and one with bytes
        system = retable.load(moved / TINY / name)
        expected = measured(system, text)
        for same in (text + "\n", text.replace("\n", "\r\n") + "\r\n", text.replace("\n", "\r"), "\ufeff" + text):
            assert measured(system, same) == expected, repr(same)


@pytest.mark.parametrize("name", ["kn3-1", "elman-1", "gpt-1", "elmo-1"])
def test_a_score_is_the_sum_of_its_tokens_and_of_its_words(name, moved, documents):
    system = retable.load(moved / TINY / name)
    lines = [line for text in documents[:4] for line in text.split("\n")]
    scores = system.score(lines)
    expected = [system.system.log_prob(np.array(row)) for row in system.tokenizer.encode_batch(lines)]
    for each, row in zip(scores, expected, strict=True):
        assert each.log_prob == pytest.approx(row.sum(), rel=1e-5)
        assert [value for _, value in each.tokens] == pytest.approx(row, rel=1e-4, abs=1e-5)
        assert sum(value for _, value in each.words) == pytest.approx(each.log_prob)
        assert [word for word, _ in each.words] == each.text.split()
    first, *rest = lines[0].split()
    (after,) = system.score(" " + " ".join(rest), context=first)
    assert [word for word, _ in after.words] == rest
    assert after.log_prob == pytest.approx(sum(value for _, value in scores[0].words[1:]), rel=1e-5)


def test_endings_are_chosen_by_their_probability(moved):
    system = retable.load(moved / TINY / "elman-1")
    scorer, words = Scorer(system.system, system.tokenizer), system.tokenizer.words
    endings = [" a", " the", f" {words[20]}"]
    expected = scorer.log_prob(*scorer.encode([words[30]] * 3, endings))
    assert system.choose(words[30], endings) == expected.argmax()


def test_texts_go_on_and_begin(moved):
    for name in ("kn3-1", "elman-1"):
        system = retable.load(moved / TINY / name)
        word = system.tokenizer.words[25]
        (greedy,) = system.continue_(word, max_new_tokens=5)
        model, ids = next_token(system.system), torch.tensor([[system.tokenizer.boundary, 25]])
        likeliest = int(model.extend(ids, model.start(1))[0].argmax())
        assert greedy.split(" ")[0] == system.tokenizer.decode([likeliest]).strip() or likeliest == ids[0, 0]
        assert system.continue_([word, word], strategy="beam", max_new_tokens=4)[0] is not None
        drawn = system.generate(3, max_new_tokens=6, seed=4)
        assert len(drawn) == 3 and drawn == system.generate(3, max_new_tokens=6, seed=4) != system.generate(3, seed=5)
    with pytest.raises(UsageError, match=r"^strategy=best does not exist; write greedy, beam, sample or contrastive"):
        system.continue_(word, strategy="best")


@pytest.mark.parametrize(("name", "layers"), [("elman-1", 1), ("gpt-1", 1), ("bert-1", 3), ("elmo-1", 3)])
def test_states_are_the_models_own_alone_and_in_a_batch(name, layers, moved, documents):
    system = retable.load(moved / TINY / name)
    lines = [line for text in documents[:3] for line in text.split("\n")]
    encoded = system.encode(lines)
    for line, states in zip(lines, encoded, strict=True):
        assert states.shape[0] == layers and states.dtype == np.float32
        np.testing.assert_allclose(system.encode(line)[0], states, atol=2e-6)
    for kind, expected in as_sentence_transformers([states[-1] for states in encoded]).items():
        assert system.encode(lines, pooling=kind) == pytest.approx(expected, abs=2e-6), kind
    with pytest.raises(UsageError, match=r"^pooling=cls does not exist; write mean, max, first, last"):
        system.encode(lines, pooling="cls")


def as_sentence_transformers(rows: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Compare with module Pooling on a padded batch (B, T, D) with a mask (B, T): modes mean, max, cls and
    lasttoken.
    """
    lengths = torch.tensor([len(row) for row in rows])
    states = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], True, padding_value=9.0)
    mask = (torch.arange(states.shape[1]) < lengths[:, None]).float()[:, :, None]
    pooled = {
        "mean": (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9),
        "max": states.masked_fill(mask == 0, -1e9).max(1)[0],
        "first": states[:, 0],
        "last": states[torch.arange(len(rows)), lengths - 1],
    }
    return {kind: each.numpy() for kind, each in pooled.items()}


def test_what_a_system_can_is_what_it_does(moved):
    n_grams = ("perplexity", "score", "choose", "generate", "continue_", "alternatives", "stream")
    can = {"kn3": n_grams, "gpt": (*n_grams, "encode"), "elman": (*n_grams, "encode"), "bert": ("encode",),
           "elmo": ("perplexity", "score", "choose", "encode")}  # fmt: skip
    assert {name: retable.load(moved / TINY / f"{name}-1").can for name in can} == can
    bert = retable.load(moved / TINY / "bert-1")
    with pytest.raises(UsageError, match=r"bert-1 does not compute probabilities of texts; use the cell of a language"):
        bert.perplexity("a text")
    with pytest.raises(UsageError, match=r"kn3-1 has no hidden states; use an LSTM, a GPT, an ELMo, a BERT or a T5"):
        retable.load(moved / TINY / "kn3-1").encode("a text")
    assert bert.name == "bert-1" and bert.metrics == json.loads((bert.folder / "metrics.json").read_text())
    assert repr(bert).startswith("<Language ") and repr(bert).endswith("bert-1: encode>")


def test_word_vectors(moved):
    system = retable.load(moved / "embed/grammar_tiny/skipgram-1")
    word, other = system.words[0], system.words[5]
    vectors = system.vectors([word, other])
    lengths = np.linalg.norm(vectors, axis=1)
    assert system.similarity(word, other) == pytest.approx(vectors[0] @ vectors[1] / lengths.prod(), abs=1e-6)
    near = dict(system.neighbours(word, k=len(system.words) - 1))
    assert near[other] == pytest.approx(system.similarity(word, other), abs=1e-6) and word not in near
    a, b, c = (vector / np.linalg.norm(vector) for vector in system.vectors(system.words[:3]))
    (best, score), *_ = system.analogy(*system.words[:3])
    between = b - a + c
    assert score == pytest.approx(max(
        between @ each / np.linalg.norm(between) / np.linalg.norm(each) for each in system.vectors(system.words[3:])
    ), abs=1e-6)  # fmt: skip
    assert best not in system.words[:3]
    with pytest.raises(UsageError, match=r"skipgram-1 has no vector of nowhere; choose words of its training text"):
        system.vectors("nowhere")
    of_file = retable.load(moved / "embed/grammar_tiny/skipgram-1/vectors.bin")
    assert of_file.neighbours(word) == system.neighbours(word)
    assert system.config["model"]["_target_"] == "retable.models.skipgram.SkipGram"
    assert repr(system) == f"<Vectors {system.folder}: {', '.join(system.can)}>"


def units(cell):
    return pd.read_csv(cell / "units.csv").query("split == 'test'")


def test_sentences_are_classified_as_by_the_stage(moved, outputs):
    cell = moved / CLASSIFIER
    system = retable.load(cell)
    rows = pd.read_csv(outputs / "prepare/grammar_tiny/sentiment/test.tsv", sep="\t")
    texts = rows[system.task.sentences[0]].tolist()
    assert [system.labels.index(label) for label in system.classify(texts)] == units(cell)["prediction"].tolist()
    shares = system.probabilities(texts)
    assert shares.sum(axis=1) == pytest.approx(1) and (shares.argmax(axis=1) == units(cell)["prediction"]).all()
    with pytest.raises(UsageError, match=r"labels a sentence, one text each; \('one', 'two'\) has 2"):
        system.classify([("one", "two")])


def test_words_are_tagged_as_by_the_stage_and_new_ones_by_their_letters(moved):
    cell = moved / TAGGER
    system = retable.load(cell)
    sentences = [
        [line.split() for line in block.split("\n")]
        for block in (cell / "test.tags.txt").read_text().strip().split("\n\n")
    ]
    tagged = system.tag([[word for word, _, _ in sentence] for sentence in sentences])
    assert tagged == [[(word, guessed) for word, _, guessed in sentence] for sentence in sentences]
    ((first, _), (new, tag)) = system.tag(f"{sentences[0][0][0]} unheardofness")[0]
    assert (first, new) == (sentences[0][0][0], "unheardofness") and tag in system.task.tags
    assert system.tag([[word for word, _, _ in sentence] for sentence in sentences]) == tagged


def test_a_file_is_tagged_as_by_the_stage(moved, tmp_path, command):
    cell = moved / TAGGER
    lines = [line.split() for line in (cell / "test.tags.txt").read_text().splitlines()]
    for columns in (1, 2):
        (file := tmp_path / "new.txt").write_text("".join(" ".join(line[:columns]) + "\n" for line in lines))
        printed = [line.split("\t") for line in command("predict", cell, file)[1].splitlines()]
        assert printed == [[line[0], line[2]] if line else [""] for line in lines]
    table = retable.load(cell).predict(file)
    assert table["predicted"].tolist() == [line[2] for line in lines if line]


def test_answers_are_those_of_the_stage(moved):
    cell = moved / READER
    system, predictions = retable.load(cell), json.loads((cell / "predictions.json").read_text())
    questions = {each.source.id: each.source for each in system.task.examples("test")}
    assert questions.keys() == predictions.keys()
    for name, question in questions.items():
        assert system.answer(question.question, question.context) == predictions[name]
    with pytest.raises(UsageError, match=r"^the paragraph has no words"):
        system.answer("what?", " ")


def test_endings_are_chosen_as_by_the_stage(moved, outputs):
    cell = moved / CHOOSER
    system = retable.load(cell)
    rows = [json.loads(line) for line in (outputs / "prepare/english_endings_tiny/test.jsonl").open()]
    source = system.config["task"]["choices"]
    chosen = [system.choose(row[source["context"]], row[source["endings"]]) for row in rows]
    assert chosen == units(cell)["prediction"].tolist()


def test_translations_are_written_as_by_the_stage(moved, outputs):
    lines = (outputs / "prepare/grammar_pairs_tiny/test.source.txt").read_text().splitlines()
    expected = (moved / TRANSLATOR / "translations.test.txt").read_text().splitlines()
    assert retable.load(moved / TRANSLATOR).translate(lines) == expected


def test_summaries_are_written_as_by_the_stage(moved):
    """The rule's summary is the first three sentences."""
    cell = moved / SUMMARIZER
    system = retable.load(cell)
    texts = ["\n".join(each.text) for each in system.task.examples("test")]
    written = system.summarize(texts)
    assert written == ["\n".join(text.split("\n")[:3]) for text in texts] != texts
    assert [" ".join(each.split()) for each in written] == (cell / "summaries.test.txt").read_text().splitlines()
    with pytest.raises(UsageError, match=r"^a document has no words; remove it"):
        system.summarize(["A cat .", " "])


# Methods of tasks' systems that read tokens; each gets the word "zebra".
WITH_ZEBRA = [
    (CLASSIFIER, lambda its: its.classify("zebra")), (CLASSIFIER, lambda its: its.probabilities(["zebra"])),
    (CHOOSER, lambda its: its.choose("zebra", ["the"])), (CHOOSER, lambda its: its.choose("the", ["the", "zebra"])),
    (TRANSLATOR, lambda its: its.translate("zebra")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ask"), WITH_ZEBRA)
def test_unknown_words_are_named_by_tasks_too(name, ask, moved):
    with pytest.warns(UsageWarning) as warned:
        ask(retable.load(moved / name))
    assert [str(each.message) for each in warned] == ["unknown to the tokenizer, read as <unk>: zebra"]


def test_words_that_are_spelt_are_not_unknown(moved, recwarn):
    retable.load(moved / TAGGER).tag("zebra")
    assert not [each for each in recwarn if each.category is UsageWarning]


def test_of_no_text_nothing_is_said(moved):
    language = retable.load(moved / TINY / "kn3-1")
    assert language.score([]) == []
    for ask in (language.perplexity, language.likelihood):
        with pytest.raises(UsageError, match=r"^the list of texts is empty; pass one or more texts$"):
            ask([])
    chooser = retable.load(moved / CHOOSER)
    for system in (language, chooser):
        with pytest.raises(UsageError, match=r"^the list of endings is empty; pass one or more endings$"):
            system.choose("a", [])
    classifier = retable.load(moved / CLASSIFIER)
    assert classifier.classify([]) == [] and classifier.probabilities([]).shape == (0, len(classifier.labels))
    ranker = retable.load(moved / RANKER)
    assert ranker.resolve([]) == ranker.resolve(["", " "]) == []
    text = " ".join(ranker.task.examples("test")[0].sentences[0])
    assert ranker.resolve(text) == ranker.resolve([text])
    assert retable.load(moved / TAGGER).tag([]) == []
    assert retable.load(moved / TRANSLATOR).translate([]) == []


# What a system's methods return for the rows of its example.
SAID = {
    "pretrain/grammar_tiny/kn3-1": lambda its, row: {
        "log_prob": its.score(row.text)[0].log_prob, "perplexity_word": its.perplexity(row.text)},
    "pretrain/grammar_tiny/bert-1": lambda its, row: {"vector": its.encode(row.text, pooling="mean")[0]},
    "embed/grammar_tiny/skipgram-1": lambda its, row: {
        "neighbours": [word for word, _ in its.neighbours(row.word)],
        "cosines": [cosine for _, cosine in its.neighbours(row.word)]},
    CLASSIFIER: lambda its, row: {"label": its.classify(row.text)[0]},
    TAGGER: lambda its, row: {"tags": [tag for _, tag in its.tag(row.text)[0]]},
    READER: lambda its, row: {"answer": its.answer(row.question, row.context)},
    CHOOSER: lambda its, row: {"choice": its.choose(row.context, row.endings)},
    RANKER: lambda its, row: {"clusters": its.resolve(row.sentences)},
    TRANSLATOR: lambda its, row: {"translation": its.translate(row.text)[0]},
    SUMMARIZER: lambda its, row: {"summary": its.summarize(row.text)[0]},
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_a_table_is_answered_row_by_row_as_by_the_systems_own_methods(name, outputs, monkeypatch):
    monkeypatch.chdir(outputs.parent)
    system = retable.load(name)
    rows = served.examples(system)
    answers = served.Served(system).predict(rows)
    assert 2 <= len(answers) == len(rows) <= 3
    for (_, row), (_, answer) in zip(rows.iterrows(), answers.iterrows(), strict=True):
        for column, expected in SAID[name](system, row).items():
            numbers = column in ("log_prob", "perplexity_word", "vector", "cosines")
            assert answer[column] == (pytest.approx(expected, rel=1e-5, abs=1e-6) if numbers else expected)


REGISTER = """
import sys
from pipelines.cli.main import main
for cell in sys.argv[1:]:
    sys.argv = ["retable", "register", cell]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
"""
LOADED = """
import json, sys, mlflow
model = mlflow.pyfunc.load_model(f"models:/{sys.argv[1]}/1")
import retable
rows = model.input_example
print(json.dumps([retable.__file__, rows.to_dict("list"), model.predict(rows).to_dict("list"),
                  model.metadata.run_id, str(model.metadata.signature)]))
"""


def alone(folder: Path, *command: str, **environment: str) -> str:
    """Return what a separate process prints."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | ENVIRONMENT | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_registered_cell_is_a_model_that_mlflow_loads_and_asks(outputs, tmp_path):
    project = outputs.parent
    printed = alone(project, sys.executable, "-c", REGISTER, "elman-1", "sentiment-bilstm-1")
    model = "models:/grammar_tiny-elman-1/1"
    assert f"{model} is outputs/pretrain/grammar_tiny/elman-1; mlflow models predict -m {model} " in printed

    record = json.loads((outputs / "pretrain/grammar_tiny/elman-1.record.json").read_text())
    lstm = retable.load(outputs / "pretrain/grammar_tiny/elman-1")
    code, rows, answers, run, signature = json.loads(
        alone(project, sys.executable, "-c", LOADED, "grammar_tiny-elman-1", PYTHONPATH="")
    )
    assert "mlartifacts" in code  # the model contains the package
    assert run == record["mlflow_run_id"] and "'text': string" in signature and "'log_prob': double" in signature
    lines = (outputs / "prepare/grammar_tiny/validation.txt").read_text().split("\n")
    assert rows["text"] == [line for line in lines if line][:3]
    assert answers["log_prob"] == pytest.approx([each.log_prob for each in lstm.score(rows["text"])])
    assert answers["perplexity_word"] == pytest.approx([lstm.perplexity(text) for text in rows["text"]])

    classifier = retable.load(outputs / CLASSIFIER)
    asked = tmp_path / "input.json"
    asked.write_text(json.dumps({"dataframe_records": [{"text": text} for text in rows["text"]]}))
    mlflow = [sys.executable, "-m", "mlflow", "models", "predict", "--env-manager", "local", "--input-path", str(asked)]
    printed = alone(project, *mlflow, "--model-uri", "models:/grammar_tiny-sentiment-bilstm-1/1")
    assert json.loads(printed)["predictions"] == [{"label": label} for label in classifier.classify(rows["text"])]


@pytest.mark.long
def test_what_a_model_requires_is_what_its_systems_import(moved):
    code = """
import sys, retable
from importlib.metadata import packages_distributions
for cell in sys.argv[1:]:
    retable.load(cell)
found = packages_distributions()
print(*{name.lower() for module in list(sys.modules) for name in found.get(module, ())})
"""
    printed = alone(moved, sys.executable, "-c", code, *(str(moved / name) for name in SAID))
    own = {re.match(r"[\w-]+", each)[0] for each in requires("retable") if "extra ==" not in each}
    assert own & set(printed.split()) == set(served.REQUIREMENTS)


def test_a_name_that_mlflow_does_not_take_and_a_missing_text_are_said(moved, outputs, monkeypatch):
    monkeypatch.chdir(outputs.parent)
    with pytest.raises(UsageError, match=r"^--name a/b: a model's name in MLflow cannot contain / or :"):
        served.register(retable.load("kn3-1"), "a/b")
    monkeypatch.chdir(moved)
    with pytest.raises(UsageError, match=r"^outputs/prepare/grammar_tiny/validation.txt is missing; stage prepare "):
        served.register(retable.load(moved / TINY / "kn3-1"), "kn")


def test_a_cell_is_found_by_its_name_and_what_is_none_is_said(outputs, monkeypatch):
    monkeypatch.chdir(outputs.parent)
    assert retable.load("pretrain/grammar_tiny/kn3-1").folder == Path("outputs/pretrain/grammar_tiny/kn3-1")
    assert retable.load("kn3-1").folder == Path("outputs/pretrain/grammar_tiny/kn3-1")
    run = json.loads(Path("outputs/pretrain/grammar_tiny/kn3-1.record.json").read_text())["mlflow_run_id"]
    assert retable.load(f"runs:/{run}").folder.samefile("outputs/pretrain/grammar_tiny/kn3-1")
    with pytest.raises(UsageError, match=r"^no cell 'grammar_tiny/kn3-2', .*; write .*grammar_tiny/kn3-1"):
        retable.load("grammar_tiny/kn3-2")
    with pytest.raises(UsageError, match=r"^runs:/0123 does not exist in this MLflow"):
        retable.load("runs:/0123")


def test_a_name_of_several_cells_is_refused(tmp_path):
    for stage in ("pretrain/ptb", "from_scratch/sst2"):
        (tmp_path / "outputs" / stage / "gpt-1").mkdir(parents=True)
        (tmp_path / "outputs" / stage / "gpt-1" / "model.safetensors").touch()
    with pytest.raises(UsageError, match=r"^gpt-1 is ambiguous; write from_scratch/sst2/gpt-1 or pretrain/ptb/gpt-1"):
        retable.load("gpt-1")


def test_the_import_alone_loads_nothing_heavy():
    code = "import sys, retable; print(sorted({'torch', 'numpy', 'hydra', 'pandas', 'mlflow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]" and retable.__version__
