"""Test word vectors that are loaded from cells, and from files made elsewhere."""

import json
import zipfile

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from retable.core.errors import UsageError
from retable.inference.build import build_counted, build_model
from retable.inference.systems import load_system, load_vectors
from retable.models import fasttext
from retable.models.fasttext import FastText
from retable.models.skipgram import SkipGram
from retable.models.vector_files import write_word2vec
from retable.tokenizers import word
from retable.training.weights import save_weights

TOKENIZER = word.train(["the cat the dog"], vocabulary=["unshown"])
OBJECTIVE = {"_target_": "retable.objectives.negative_sampling.NegativeSampling"}
SETTINGS = {FastText: {"d_model": 4, "min_n": 3, "max_n": 6, "buckets": 50}, SkipGram: {"d_model": 4}}


@pytest.fixture
def write_cell(tmp_path, monkeypatch):
    """Write an embed cell; the weights are nested in this many owners. Return the cell and its model."""
    monkeypatch.chdir(tmp_path)
    cell = tmp_path / "outputs/embed/c/system-1"
    cell.mkdir(parents=True)
    TOKENIZER.save(cell / "tokenizer.json")

    def write(model_class, owners=1, **changed):
        settings = SETTINGS[model_class] | changed
        torch.manual_seed(0)
        trained = model = model_class(words=TOKENIZER.words, **settings)
        for name in ["model", "objective"][:owners]:
            trained = nn.ModuleDict({name: trained, "output": nn.Linear(2, 2)})
        save_weights(trained, cell / "model.safetensors")
        target = f"{model_class.__module__}.{model_class.__name__}"
        config = {"tokens": "c/word", "objective": OBJECTIVE, "model": {"_target_": target} | settings}
        (cell / "config.yaml").write_text(json.dumps(config))
        shown = [TOKENIZER.words.index(each) for each in ("the", "cat", "dog")]
        write_word2vec(cell / "vectors.bin", ["the", "cat", "dog"], model.vectors().numpy()[shown])
        return cell, model

    return write


def test_words_that_the_text_shows_have_a_vector(write_cell):
    cell, model = write_cell(SkipGram)
    system = load_system(cell)
    assert list(system.words) == ["the", "cat", "dog"]
    vectors, known = system.lookup(["dog", "unshown", "<unk>"])
    assert known.tolist() == [True, False, False]
    assert vectors[0] == pytest.approx(model.vectors()[4].numpy())  # ids: <unk>, <eos>, the, cat come first
    assert system.protocol == "one vector a word"


@pytest.mark.parametrize("owners", [1, 2])  # the objective; and the objective in a trainer that learns word by word
def test_fasttext_makes_vectors_of_ngrams(write_cell, owners):
    cell, model = write_cell(FastText, owners)
    system = load_system(cell)
    vectors, known = system.lookup(["dog", "unshown", "never"])
    assert known.all() and system.protocol == "unseen words from n-grams"
    expected = np.stack([model.vector(each) for each in ("dog", "unshown", "never")])
    assert vectors == pytest.approx(expected, abs=1e-6) and np.abs(expected).min() > 0


def test_fasttext_without_ngrams_makes_none(write_cell):
    cell, _ = write_cell(FastText, min_n=3, max_n=2)
    system = load_system(cell)
    assert system.lookup(["dog", "never"])[1].tolist() == [True, False]
    assert system.protocol == "one vector a word"


def test_a_cell_of_another_model_is_refused(write_cell):
    cell, _ = write_cell(FastText)
    config = json.loads((cell / "config.yaml").read_text())
    config["model"]["buckets"] = 60
    (cell / "config.yaml").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"model.safetensors has weights that do not fit the model FastText"):
        load_system(cell)


class Bare(nn.Module):
    """A model without a name for its kind, and without counts."""


def test_a_model_of_ones_own_that_lacks_something_is_refused(monkeypatch):
    monkeypatch.setattr(Bare, "__module__", fasttext.__name__)
    monkeypatch.setattr(fasttext, "Bare", Bare, raising=False)
    cfg = {"model": {"_target_": f"{fasttext.__name__}.Bare"}}
    with pytest.raises(UsageError, match=r"^Bare is not a retable.models.base.Model, .* derive it from a class"):
        build_model(cfg, TOKENIZER)
    with pytest.raises(UsageError, match=r"^Bare is not a counted model: it lacks one of the attributes protocol,"):
        build_counted(cfg, TOKENIZER)


def test_a_file_from_elsewhere_is_evaluated(project, tmp_path):
    rng = np.random.default_rng(0)
    words = [f"{place}{i}" for i in range(5) for place in ("city", "land")]
    vectors = (rng.standard_normal((5, 1, 30)) + rng.standard_normal((2, 30))).reshape(10, 30)
    write_word2vec(tmp_path / "mine.txt", words, vectors)
    questions = [f"city{i} land{i} city{j} land{j}" for i in range(5) for j in range(5) if i != j]
    (tmp_path / "questions.txt").write_text("\n".join([": capital-world", *questions]))
    assert load_vectors(tmp_path / "mine.txt").vectors == pytest.approx(vectors, abs=1e-6)
    project.succeed("evaluate", f"vectors={tmp_path}/mine.txt", "benchmark=analogies",
                    f"benchmark.analogies.questions={tmp_path}/questions.txt")  # fmt: skip
    cell = project.folder / "outputs/evaluate/vectors/mine"
    assert json.loads((cell / "metrics.json").read_text())["analogies/capital-world/accuracy"] == 1
    run = json.loads((cell / "run.json").read_text())
    assert (run["system"], run["corpus"], run["made_from"]) == ("mine", "vectors", [])
    composed = OmegaConf.load(cell / "config.yaml")  # as written by the stage
    assert composed.out == composed.cell


def test_two_files_of_an_archive_have_separate_scores(project, tmp_path):
    """Scores of the first file must not be reused for the second, although both are in the same archive."""
    words, axes = ["a", "b", "c", "d"], np.eye(4, dtype=np.float32)
    (tmp_path / "questions.txt").write_text(": family\na b c d\n")
    with zipfile.ZipFile(tmp_path / "pair.zip", "w") as archive:
        for name, last in (("right.txt", axes[1] - axes[0] + axes[2]), ("wrong.txt", axes[3])):
            write_word2vec(tmp_path / name, [*words, "e"], np.stack([*axes[:3], last, axes[0] + axes[1] + axes[2]]))
            archive.write(tmp_path / name, name)
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "folder/vectors.zip", "w") as archive:
        archive.write(tmp_path / "right.txt", "vectors.txt")
    files = {"right": "pair.zip/right.txt", "wrong": "pair.zip/wrong.txt", "folder": "folder/vectors.zip/vectors.txt"}
    accuracies = []
    for name, file in files.items():  # a file with the name of all cells' vectors gets the name of its folder
        project.succeed("evaluate", f"vectors={tmp_path}/{file}", "benchmark=analogies",
                        f"benchmark.analogies.questions={tmp_path}/questions.txt")  # fmt: skip
        metrics = project.read(f"evaluate/vectors/{name}/metrics.json")
        accuracies.append(metrics["analogies/family/accuracy"])
    assert accuracies == [1, 0, 1]
