"""Test clusters of mentions on a few documents, with a model trained as by a user."""

import json

import numpy as np
import pandas as pd
import pytest

import retable
from pipelines.app.init_from import load_pretrained
from retable.core.errors import UsageError
from retable.corpora.coreference import Document, read_documents, write_documents
from retable.metrics.coreference import COLUMNS, coreference_counts, coreference_metrics
from retable.models.mention_ranker import MentionRanker
from retable.models.vector_files import write_word2vec

NAMES = {"Ada": "she", "Grace": "she", "Alan": "he", "Kurt": "he"}
SIZES = {"train": 60, "dev": 10, "test": 12}


def document(name: str, generator: np.random.Generator) -> Document:
    """Return a document: a pronoun refers to one of two people, and the "it" of rain refers to nothing."""
    she, he = generator.choice(["Ada", "Grace"]), generator.choice(["Alan", "Kurt"])
    again = (she, he)[generator.integers(2)]
    sentences = [[she, "saw", he, "."], ["then", NAMES[again], "slept", "."], ["it", "rained", "."]]
    return Document(name, 0, sentences, [[(0 if again == she else 2, 1 if again == she else 3), (5, 6)]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for split, n in SIZES.items():
        write_documents(folder / f"{split}.conll", [document(f"{split}/{i}", generator) for i in range(n)])
    write_word2vec(folder / "vectors.bin", ["ada", "saw", "zebras"], np.eye(3, 6, dtype=np.float32))
    return folder


@pytest.fixture(scope="module")
def folder(project, data):
    project.succeed(
        "finetune",
        "task=conll2012",
        "recipe=coreference/mention_ranker",
        *(f"task.documents.{k}={data / v}.conll" for k, v in zip(("train", "validation", "test"), SIZES, strict=True)),
        f"embedding={data / 'vectors.bin'}",
        *("model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]", "model.d_model=12"),
        *(
            "model.d_feature=4", "model.d_hidden=12", "model.max_width=2", "model.spans_per_word=1.5",
            "model.input_dropout=0.0", "dropout=0.0",
        ),
        *("finetuning.batch_size=6", "epochs=6", "optimizer.lr=0.02", "validations=1", "patience=6"),
    )  # fmt: skip
    return project.folder / "outputs/finetune/conll2012/mention_ranker-1"


def test_what_is_written_gives_the_scores(folder, data):
    """The written files are the documents in CoNLL's columns, and the counts per document."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    units = pd.read_csv(folder / "units.csv").groupby("split")
    for split, name in (("validation", "dev"), ("test", "test")):
        key, of_split = read_documents(data / f"{name}.conll"), units.get_group(split)
        response = read_documents(folder / f"{split}.response.conll")
        assert [each.sentences for each in response] == [each.sentences for each in key]
        counts = np.stack([coreference_counts(k.clusters, r.clusters) for k, r in zip(key, response, strict=True)])
        expected = coreference_metrics(counts)
        assert {n: metrics[f"coreference/{split}/{n}"] for n in expected} == pytest.approx(expected)
        assert of_split["document"].tolist() == [each.name for each in key]
        np.testing.assert_allclose(of_split[[*COLUMNS]], counts, rtol=1e-6)
    assert metrics["coreference/test/average_f1"] > 0.8


def test_mentions_are_resolved_as_by_the_stage(folder):
    ranker, n = retable.load(folder), 0
    for each in read_documents(folder / "test.response.conll"):
        words = [word for sentence in each.sentences for word in sentence]
        expected = [[" ".join(words[start:end]) for start, end in cluster] for cluster in each.clusters]
        assert ranker.resolve(each.sentences) == expected
        n += len(expected)
    assert n > 5


def test_weights_go_to_an_elmo_alone(tmp_path):
    ranker = MentionRanker(3, ["a", "b", "c"], 4, 3, [(2, 4)], 4, 3, 4, 2, 1.0, 4, 0.0, 0.0)
    with pytest.raises(UsageError, match=r"no pretrained part; .* or recipe=coreference/mention_ranker_elmo"):
        load_pretrained(ranker, ranker, {}, tmp_path / "model.safetensors")
