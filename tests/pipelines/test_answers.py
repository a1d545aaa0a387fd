"""Test answers to questions on a few paragraphs, with a reader trained as by a user."""

import json
import re
import string
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import retable
from retable.corpora.squad import read_squad
from retable.models.vector_files import write_word2vec
from retable.training.weights import read_weights

pytestmark = pytest.mark.long

NAMES = ["Ada", "Grace", "Alan", "Emmy", "Kurt", "Alonzo"]
PLACES = ["Rome", "Oslo", "New York", "São Paulo", "Lima"]


def paragraphs(seed: int, n: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return contexts and questions: each context has two people, each in a place."""
    generator = np.random.default_rng(seed)
    made = []
    for k in range(n):
        (one, other), (here, there) = (generator.permutation(part)[:2].tolist() for part in (NAMES, PLACES))
        context = f"{one} lives in {here}. " * (1 + k % 2) + f"In {there}, the {k}th of towns, lives {other}!"
        made.append((context, [(f"Where is {one}?", here), (f"Where is {other}?", there)]))
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a training file of triples, a test file in SQuAD's format, and word vectors."""
    folder = tmp_path_factory.mktemp("data")
    triples = [
        {"context": context, "question": question, "answer": answer}
        for context, asked in paragraphs(1, 20)
        for question, answer in asked
    ]
    (folder / "train.json").write_text(json.dumps(triples), encoding="utf-8")
    written = []
    for p, (context, asked) in enumerate(paragraphs(2, 6)):
        # the answer is half a word, so no reader of words can find it
        asked = [*asked, ("", "own")] if p == 0 else asked
        qas = [
            {"id": f"{p}-{q}", "question": question, "answers": [{"text": text, "answer_start": context.index(text)}]}
            for q, (question, text) in enumerate(asked)
        ]
        written.append({"context": context, "qas": qas})
    test = {"version": "1.1", "data": [{"title": "towns", "paragraphs": written}]}
    (folder / "test.json").write_text(json.dumps(test), encoding="utf-8")
    write_word2vec(folder / "vectors.bin", ["lives", "rome", "towns", "zebras"], np.eye(4, 6, dtype=np.float32))
    return folder


@pytest.fixture(scope="module")
def overrides(data):
    return [
        *("task=squad", "recipe=readers/bidaf"),
        *(f"task.questions.{split}={data / f'{split}.json'}" for split in ("train", "test")),
        "task.questions.held_out=4",
        *("model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]", "model.d_hidden=12"),
        *("epochs=1", "finetuning.batch_size=8", "dropout=0.0", "optimizer.lr=0.03"),
    ]


@pytest.fixture(scope="module")
def folder(project, overrides, data):
    project.succeed("finetune", *overrides, f"embedding={data / 'vectors.bin'}")
    return project.folder / "outputs/finetune/squad/bidaf-1"


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_what_no_reader_finds_is_counted_and_units_give_the_scores(folder):
    run, metrics, units = read(folder, "run.json"), read(folder, "metrics.json"), pd.read_csv(folder / "units.csv")
    assert run["examples"] == {"train": 32, "validation": 8, "test": 13}  # four held-out paragraphs, two questions each
    assert run["cannot_be_answered"] == {"train": 0, "validation": 0, "test": 1} and len(run["digests"]) == 3
    for split, of_split in units.groupby("split"):
        assert of_split["unit"].tolist() == [*range(run["examples"][split])]
        for name in ("exact_match", "f1"):
            assert of_split[name].mean() == pytest.approx(metrics[f"answers/{split}/{name}"])


def evaluated(dataset: list, predictions: dict[str, str]) -> dict[str, float]:
    """Return percentages computed as by evaluate-v1.1.py from a file and predictions, one text per question id."""

    def words(text: str) -> list[str]:
        plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
        return re.sub(r"\b(?:a|an|the)\b", " ", plain).split()

    def f1(one: list[str], other: list[str]) -> float:
        shared = (Counter(one) & Counter(other)).total()
        return 2 * shared / (len(one) + len(other)) if shared else 0.0

    exact, overlap, total = 0.0, 0.0, 0
    for article in dataset:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                guess = words(predictions[question["id"]])
                right = [words(answer["text"]) for answer in question["answers"]]
                exact, overlap, total = exact + (guess in right), overlap + max(f1(guess, r) for r in right), total + 1
    return {"exact_match": 100 * exact / total, "f1": 100 * overlap / total}


def test_the_official_scorer_reads_the_predictions_as_they_are(folder, data):
    """Every question has a prediction, also the one without a word and the one with an unreachable answer."""
    dataset = json.loads((data / "test.json").read_text(encoding="utf-8"))["data"]
    contexts = {qa["id"]: part["context"] for part in dataset[0]["paragraphs"] for qa in part["qas"]}
    predictions, metrics = read(folder, "predictions.json"), read(folder, "metrics.json")
    assert [*predictions] == sorted(contexts)
    assert all(answer and answer in contexts[name] for name, answer in predictions.items())
    for name, value in evaluated(dataset, predictions).items():
        assert value == pytest.approx(100 * metrics[f"answers/test/{name}"])


def test_words_of_their_own_vector(folder):
    """Words with a vector: those that occur twice in training, and those of embedding=; "0th" is read by its
    characters.
    """
    words = {
        ".", ",", "!", "?", "In", "the", "of", "towns", "lives", "in", "Where", "is", "São", "Paulo", "New", "York",
    }  # fmt: skip
    words |= {"<unk>", "<eos>", "Rome", "Oslo", "Lima", *NAMES}
    assert read(folder, "run.json")["vocab_size"] == len(words)
    assert len(read_weights(folder / "model.safetensors")["model.input.embedding.weight"]) == len(words)


@pytest.mark.parametrize("recipe", ["sliding_window", "right_span"])
def test_a_rule_makes_a_cell_that_answers(project, overrides, data, recipe):
    project.succeed("finetune", f"recipe=readers/{recipe}", *overrides[:1], *overrides[2:5])
    cell = project.folder / f"outputs/from_scratch/squad/{recipe}-1"
    predictions, metrics = read(cell, "predictions.json"), read(cell, "metrics.json")
    dataset = json.loads((data / "test.json").read_text(encoding="utf-8"))["data"]
    assert metrics["answers/test/f1"] == pytest.approx(evaluated(dataset, predictions)["f1"] / 100)
    if recipe == "right_span":
        assert metrics["answers/test/exact_match"] == pytest.approx(12 / 13)
        return
    system = retable.load(cell)
    answers = {each.id: system.answer(each.question, each.context) for each in read_squad(data / "test.json")}
    assert answers == predictions and system.can == ("answer",)
