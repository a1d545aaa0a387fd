from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from retable.core.errors import UsageError
from retable.evaluation.contextual_vectors import (
    ContextualVectors,
    Form,
    Senses,
    UnseenWords,
    by_centroid,
    by_nearest,
    forms_of,
    principal_plane,
    unseen_forms,
)
from retable.models.elmo import ELMo
from retable.tokenizers import byte_bpe, word, wordpiece

SENTENCES = [["the", "cat", "sat"], ["cats"], ["the", "catty", "cat", "sat", "the", "cat"]]


def elmo(words: list[str], spelling: bool) -> ELMo:
    torch.manual_seed(0)
    return ELMo(words, 4, 6, 2, 0.1, [(1, 4), (2, 6)] if spelling else None, 4, 1).eval()


def test_models_of_spelling_and_of_words_read_between_boundaries():
    tokenizer = word.train(["the cat sat"])
    model = elmo(tokenizer.words, spelling=True)
    found = list(ContextualVectors(model, tokenizer, batch_size=2).layers(SENTENCES))
    for vectors, sentence in zip(found, SENTENCES, strict=True):
        expected = torch.stack(model.layers_of_words([["<eos>", *sentence, "<eos>"]]))[:, 0, 1:-1]
        assert vectors.shape == (3, len(sentence), 8) and vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected.detach(), atol=1e-6)
    model = elmo(tokenizer.words, spelling=False)
    found = list(ContextualVectors(model, tokenizer).layers(SENTENCES))
    for vectors, sentence in zip(found, SENTENCES, strict=True):
        ids = torch.tensor([[tokenizer.boundary, *tokenizer.encode(" ".join(sentence)), tokenizer.boundary]])
        expected = torch.stack(model.layers(ids, torch.tensor([ids.shape[1]])))[:, 0, 1:-1]
        np.testing.assert_allclose(vectors, expected.detach(), atol=1e-6)
    np.testing.assert_allclose(found[1][0, 0], found[2][0, 1], atol=1e-6)  # cats and catty are compared without context


class Counting:
    """A model with one layer: the token's id, its position, and 1."""

    max_length = None

    def parameters(self):
        yield torch.zeros(())

    def layers(self, input_ids, lengths):
        position = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        inside = position < lengths[:, None]
        return [torch.stack([input_ids, position, torch.ones_like(input_ids)], dim=2) * inside[:, :, None]]


PIECES = ["the cat sat naïve cats", "cats sat the the the"] * 3


@pytest.mark.parametrize("tokenizer", [byte_bpe.train(PIECES, 275), wordpiece.train(PIECES, 40, lowercase=True)])
def test_a_words_vector_is_the_mean_of_its_tokens(tokenizer):
    sentences = [["the", "naïve", "cats"], ["sat"], ["the", "catcat", "naïve", "the"]]
    for sentence, vectors in zip(sentences, ContextualVectors(Counting(), tokenizer, 2).layers(sentences), strict=True):
        place = 1
        for i, each in enumerate(sentence):
            ids = tokenizer.encode(" " * (i > 0) + each)
            expected = [np.mean(ids), place + (len(ids) - 1) / 2, 1]
            np.testing.assert_allclose(vectors[0, i], expected, rtol=1e-6)
            place += len(ids)
        assert vectors.shape == (1, len(sentence), 3)
    assert place > 1 + len(sentences[-1])  # at least one word has several tokens


class Noun(NamedTuple):
    singular: str
    plural: str
    topic: int = 0
    forms = property(lambda noun: noun[:2])


class Verb(NamedTuple):
    base: str
    past: str
    topic: int = 0
    forms = property(lambda verb: verb[:2])


TINY = SimpleNamespace(
    nouns={
        "thing": [Noun("cup", "cups"), Noun("pot", "pots"), Noun("foot", "feet"), Noun("oh", "ah")],
        "person": [Noun("tzar", "tzer"), Noun("tzarss", "tzarsses")],
    },
    verbs={"do": [Verb("go", "went"), Verb("walk", "walked"), Verb("talk", "talked")]},
    adjectives=[],
)


def test_unseen_forms_are_those_that_the_text_lacks_and_those_that_a_child_would_make():
    forms = forms_of(TINY)
    assert forms["feet"] == Form("foot", "noun plural") and forms["walk"] == Form("walk", "verb base")
    seen = set(forms) - {"talked", "oh", "ah"}
    assert unseen_forms(forms, seen) == {
        "foots": Form("foot", "noun plural"),
        "goed": Form("go", "verb past"),
        "tzars": Form("tzar", "noun plural"),
        "talked": Form("talk", "verb past"),  # the text has neither this word nor, for oh, its stem
    }


class Spelling:
    """A model with one layer: how often each letter occurs in a word."""

    def layers(self, sentences):
        for sentence in sentences:
            yield np.array([[[each.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for each in sentence]])


@pytest.fixture
def text(tmp_path):
    words = "foot feet go went walk walked talk oh ah tzar tzer tzarss tzarsses"
    (tmp_path / "train.txt").write_text(f"cup cups cup\npot pots\n\n{words}\n")
    return tmp_path


def test_unseen_words_benchmark(text):
    metrics = UnseenWords(str(text), lexicon=TINY, neighbours=2)(Spelling(), text)
    rows = pd.read_csv(text / "unseen_words.csv")
    nearest = rows[rows["place"] == 1].set_index("word")
    assert nearest[["neighbour", "neighbour_stem", "neighbour_form"]].T.to_dict("list") == {
        "foots": ["foot", "foot", "noun singular"],
        "goed": ["go", "go", "verb base"],
        "ohs": ["oh", "oh", "noun singular"],
        "talked": ["walked", "walk", "verb past"],
        "tzars": ["tzarss", "tzarss", "noun singular"],  # its stem is computed from that of tzar
    }
    expected = {"words": 5, "stem": 0.8, "form": 0.2, "stem_or_form": 1.0}
    assert metrics == {f"unseen_words/{name}": value for name, value in expected.items()}
    assert rows["place"].tolist() == [1, 2] * 5
    # t, a, l, k, e, d: five of six letters are also in walked
    assert nearest["cosine"]["talked"] == pytest.approx(5 / 6, abs=1e-4)


def test_unseen_words_of_the_users_need_no_lexicon(text):
    benchmark = UnseenWords(str(text), words=["cupcup", "xyz"])
    assert benchmark(Spelling(), text) == {}
    rows = pd.read_csv(text / "unseen_words.csv", keep_default_na=False)
    assert rows.loc[0, ["neighbour", "cosine", "stem"]].tolist() == ["cup", 1, ""]
    assert {*rows["word"]} == {"cupcup", "xyz"}
    UnseenWords(str(text), words=["cupcup"], restrict_vocab=1)(Spelling(), text)
    assert pd.read_csv(text / "unseen_words.csv")["neighbour"].tolist() == ["cup"]
    with pytest.raises(UsageError, match=r"contains the words cups; choose unseen words"):
        UnseenWords(str(text), words=["cups", "new"])(Spelling(), text)
    with pytest.raises(UsageError, match=r"write benchmark.unseen_words.words=\[new\]"):
        UnseenWords(str(text), words="new")
    with pytest.raises(UsageError, match="there is no lexicon"):
        UnseenWords(str(text))
    (text / "train.txt").write_text("nothing of it")
    with pytest.raises(UsageError, match="contains all forms of the lexicon"):
        UnseenWords(str(text), lexicon=TINY)(Spelling(), text)


def brute_force(vectors: np.ndarray, senses: list[str]) -> tuple[list[bool], list[bool]]:
    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    nearest, centroid = [], []
    for i, (v, sense) in enumerate(zip(vectors, senses, strict=True)):
        others = [j for j in range(len(senses)) if j != i]
        nearest.append(senses[max(others, key=lambda j: cosine(v, vectors[j]))] == sense)
        means = {s: np.mean([vectors[j] for j in others if senses[j] == s], axis=0) for s in set(senses)}
        centroid.append(max(means, key=lambda s: cosine(v, means[s])) == sense)
    return nearest, centroid


def test_both_accuracies_equal_brute_force_and_the_plane_is_the_widest():
    generator = np.random.default_rng(0)
    senses = ["a", "b", "c"] * 10 + ["a"] * 5
    vectors = generator.standard_normal((35, 4)) + np.array([ord(s) - 98 for s in senses])[:, None]
    nearest, centroid = brute_force(vectors, senses)
    assert by_nearest(vectors, np.array(senses)).tolist() == nearest and 0 < np.mean(nearest) < 1
    assert by_centroid(vectors, np.array(senses)).tolist() == centroid and 0 < np.mean(centroid) < 1
    senses = np.array(["a", "a", "a", "b", "b"])
    vectors = np.full((5, 3), 0.1)
    assert by_nearest(vectors, senses) == pytest.approx([0.5, 0.5, 0.5, 0.25, 0.25])
    assert by_centroid(vectors, senses) == pytest.approx([0.5] * 5)
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.standard_normal((6, 6)))[0]
    places = generator.standard_normal((40, 2)) * [5, 2]
    points = principal_plane(places @ axes[:2] + 3 + 0.001 * generator.standard_normal((40, 6)))
    centred = places - places.mean(axis=0)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), np.linalg.norm(centred, axis=1), atol=0.02)
    assert points[:, 0].var() > points[:, 1].var()
    assert points[np.abs(points).argmax(axis=0), [0, 1]].min() > 0


class ByNeighbour:
    """A model whose layer 0 depends only on the word, and layer 1 on the word before it."""

    def layers(self, sentences):
        for sentence in sentences:
            codes = [sum(map(ord, each)) for each in sentence]
            own = np.array([[np.cos(code), np.sin(code)] for code in codes])
            yield np.stack([own, np.roll(own, 1, axis=0)])


HEADER = "word\tsentence\tposition\tsense"


def write_senses(path, rows, header=HEADER):
    lines = [header, *("\t".join(map(str, row)) for row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")


ROWS = [
    ("bank", "the river bank", 2, "shore"),
    ("bank", "a cash bank fell", 2, "cash"),
    ("bank", "river bank", 1, "shore"),
    ("bank", "cash bank", 1, "cash"),
    ("bank", "no river bank", 2, "shore"),
    ("bank", 'a " bank', 2, "verb"),  # occurs only once
    ("cup", "a cup", 1, "thing"),  # has only one sense
    ("cup", "the cup", 1, "thing"),
]


def test_senses_are_told_apart_where_a_layer_knows_the_context(tmp_path):
    write_senses(tmp_path / "senses.tsv", ROWS)
    benchmark = Senses(str(tmp_path / "senses.tsv"))
    metrics = benchmark(ByNeighbour(), tmp_path)
    assert metrics == pytest.approx(
        {
            "senses/occurrences": 5,
            "senses/majority": 0.6,
            "senses/layer_0/nearest": (3 * 0.5 + 2 * 0.25) / 5,
            "senses/layer_0/centroid": 0.5,
            "senses/layer_1/nearest": 1,
            "senses/layer_1/centroid": 1,
        }
    )
    rows = pd.read_csv(tmp_path / "senses.csv")
    facts = rows[["word", "layer", "occurrences", "senses"]]
    assert facts.to_numpy().tolist() == [["bank", 0, 5, 2], ["bank", 1, 5, 2]]
    assert rows["nearest"][1] == 1 and rows["majority"][0] == 0.6
    points = pd.read_csv(tmp_path / "sense_plane.csv").query("layer == 1")
    x = {sense: {*points["x"][points["sense"] == sense]} for sense in ("shore", "cash")}
    assert len(points) == 5 and len(x["shore"]) == len(x["cash"]) == 1 and x["shore"] != x["cash"]


@pytest.mark.parametrize(("rows", "header", "message"), [
    (ROWS, "word\tsense", "has the columns"),
    ([*ROWS, ("bank", "a bank", 0, "shore")], HEADER, "line 10: 'bank' is not at position '0'"),
    ([("bank", "a bank", "1")], HEADER, "line 2: '' is not at position ''"),
    (ROWS[-2:], HEADER, "no word with two senses"),
    ([("caf\udce9", "a caf\udce9", 1, "x")], HEADER, r"senses\.tsv cannot be read"),  # é in Latin-1 is not valid UTF-8
])  # fmt: skip
def test_files_of_another_form_are_refused(tmp_path, rows, header, message):
    write_senses(tmp_path / "senses.tsv", rows, header)
    with pytest.raises(UsageError, match=message):
        Senses(str(tmp_path / "senses.tsv"))(ByNeighbour(), tmp_path)
