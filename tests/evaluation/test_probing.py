from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from retable.core.errors import UsageError, UsageWarning
from retable.evaluation import probing
from retable.evaluation.contextual_vectors import ContextualVectors
from retable.evaluation.probing import Probes, SenseLabels, control_labels, fit_probe, probe_hits, readable
from retable.models.bert import BERT
from retable.models.elmo import ELMo
from retable.models.gpt import GPT
from retable.models.recurrent import Recurrent
from retable.models.t5 import T5, OneStackT5
from retable.tokenizers import byte_bpe, word

TEXT = ["the dogs saw the cat", "a cat ran", "dogs ran"]
TOKENIZER = word.train(TEXT)
V = TOKENIZER.vocab_size
MODELS = {
    "gpt": lambda: GPT(V, 8, 2, 2, max_length=9, dropout=0.1),
    "bert": lambda: BERT(V, 8, 2, 2, max_length=9, dropout=0.1),
    "t5": lambda: T5(V, 8, 2, 2, 16, dropout=0.1),
    "one stack": lambda: OneStackT5(V, 8, 2, 2, 16, dropout=0.1),
    "elmo": lambda: ELMo(TOKENIZER.words, 4, 6, 2, 0.1, filters=[(1, 3)], d_character=3, n_highway=1),
}


def states(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def probe_accuracy(train, labels, test, test_labels) -> float:
    return probe_hits(train, labels, test, test_labels) / len(test_labels)


def test_a_probe_reads_what_the_states_hold_linearly():
    plane = states(3, seed=9)  # with three labels, the prediction is the label with the nearest direction
    train, test = states(600, 1), states(300, 2)
    labels, true = (np.array(["a", "b", "c"])[(each @ plane.T).argmax(1).numpy()] for each in (train, test))
    assert probe_accuracy(train, labels, test, true) > 0.95
    apart, gold = torch.cat([train, test]), np.concatenate([labels, true])
    one_hot = torch.eye(3)[np.unique(gold, return_inverse=True)[1]]  # some dimensions are the label itself
    whole = torch.cat([apart, one_hot], dim=1)
    assert probe_accuracy(whole[:600], labels, whole[600:], true) == 1.0
    train, test = torch.ones(4, 3), torch.ones(2, 3)
    assert probe_accuracy(train, np.array(["a", "a", "a", "b"]), test, np.array(["a", "new"])) == 0.5
    generator = np.random.default_rng(0)
    labels, true = (generator.choice(["x", "y"], n, p=[0.8, 0.2]) for n in (4000, 1000))
    accuracy = probe_accuracy(states(4000, 1), labels, states(1000, 2), true)
    assert accuracy == pytest.approx((true == "x").mean(), abs=0.01)  # the most frequent label


@pytest.mark.parametrize("penalty", [1e-3, 0.3])  # the default penalty, and one that matters next to the loss
def test_the_probe_is_the_minimum_of_its_loss(penalty, monkeypatch):
    monkeypatch.setattr(probing, "PENALTY", penalty)
    inputs, targets = states(60).double(), torch.arange(60) % 3
    inputs[:, :3] += torch.eye(3)[targets]
    probe = fit_probe(inputs.float(), targets, 3)

    def loss(weights):
        weights = torch.from_numpy(weights).view(3, 7)
        logits = inputs @ weights[:, :6].T + weights[:, 6]
        squares = penalty / 2 * weights[:, :6].square().sum()
        return float(torch.nn.functional.cross_entropy(logits, targets) + squares)

    ours = torch.cat([probe.weight, probe.bias[:, None]], dim=1).detach().double().flatten().numpy()
    assert loss(ours) == pytest.approx(minimize(loss, np.zeros(21)).fun, rel=1e-4)
    assert torch.equal(fit_probe(inputs.float(), targets, 3).weight, probe.weight)


def test_the_control_task_gives_each_word_one_label_whatever_the_text():
    words = np.array([f"w{i}" for i in np.random.default_rng(0).integers(0, 3000, 20_000)])
    labels = np.array(["a"] * 70 + ["b"] * 30)
    control = control_labels(words, labels, seed=1)
    by_word = dict(zip(words, control, strict=True))
    assert [by_word[each] for each in words] == control.tolist()
    n = len(by_word)
    assert abs([*by_word.values()].count("a") - 0.7 * n) < 4 * (n * 0.7 * 0.3) ** 0.5
    assert control_labels(words[:5], labels, seed=1).tolist() == control[:5].tolist()
    assert (control_labels(words, labels, seed=2) != control).any()


@pytest.mark.parametrize("name", MODELS)
def test_the_layers_are_the_models_and_padding_changes_none(name):
    """The first layer has no context (in BERT and GPT, only its position), and the last is the output of the model."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    reader = ContextualVectors(readable(model), TOKENIZER)
    rows = [text.split() for text in TEXT]
    for sentence, found in zip(rows, reader.layers(rows), strict=True):
        assert found.shape[:2] == (3, len(sentence))
        np.testing.assert_allclose(found, next(reader.layers([sentence])), atol=1e-5)
    ids, lengths = torch.tensor([[1, 2, 3]]), torch.tensor([3])
    layers = readable(model).layers(ids, lengths)
    other = readable(model).layers(torch.tensor([[2, 2, 3]]), lengths)
    assert torch.equal(layers[0][:, 1:], other[0][:, 1:]) and len(layers) == 3
    assert not torch.equal(layers[1][:, 1:], other[1][:, 1:])
    last = {"t5": lambda: model.memory(ids, lengths), "bert": lambda: model(ids, lengths), "elmo": lambda: layers[-1]}
    assert torch.equal(layers[-1], last.get(name, lambda: model(ids)[0])())


def test_hooks_are_removed_and_models_without_layers_refused():
    model = MODELS["gpt"]().eval()
    with pytest.raises(UsageError, match="exceeds the GPT's max_length"):
        readable(model).layers(torch.zeros(1, 10, dtype=torch.long), torch.tensor([10]))
    assert not any(block._forward_pre_hooks for block in model.blocks)
    model = Recurrent.__new__(Recurrent)
    torch.nn.Module.__init__(model)
    with pytest.raises(UsageError, match="the layers of Recurrent are not accessible; use a cell of recipe=elmo/elmo"):
        readable(model)


@pytest.mark.parametrize("name", ["bert", "gpt"])
def test_a_long_sentence_is_cut_and_counted_and_its_last_words_are_left_out(name, tmp_path):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    room = model.max_length - 2
    rows = [["the", "dogs", "saw", "a", "cat"] * n for n in (1, 4, 1, 5)]
    labelled = [SimpleNamespace(words=row, labels={"own": [word[0] for word in row]}) for row in rows]
    short = [SimpleNamespace(words=row[:room], labels={"own": [word[0] for word in row[:room]]}) for row in rows]
    system = SimpleNamespace(objective=SimpleNamespace(model=model))
    assert len(rows[1]) > room > len(rows[0])
    with pytest.warns(UsageWarning, match=r"^4 of 8 sentences are longer than the model's input and were cut at"):
        found = Probes(str(tmp_path), SimpleNamespace(inputs=[], sentences=lambda split: labelled))(system, tmp_path)
    expected = Probes(str(tmp_path), SimpleNamespace(inputs=[], sentences=lambda split: short))(system, tmp_path)
    assert found == {"probes/shortened": 4.0} | expected and expected["probes/words/own"] == 10 + 2 * room
    reader = ContextualVectors(readable(model), TOKENIZER)
    for row, layers in zip(rows, reader.layers(rows), strict=True):
        np.testing.assert_allclose(layers, next(reader.layers([row[:room]])), atol=1e-5)


def test_a_word_of_which_the_model_reads_a_part_is_kept_by_that_part():
    tokenizer = byte_bpe.train(["ab"], vocab_size=257)
    model = BERT(tokenizer.vocab_size, 8, 1, 2, 7, 0.0).eval()
    reader = ContextualVectors(model, tokenizer)
    (whole,), (part,) = reader.layers([["ab", "cdefg", "h"]]), reader.layers([["ab", "cd"]])
    assert reader.n_cut([["ab", "cdefg", "h"], ["ab", "c"]]) == 1 and whole.shape[1] == 2
    np.testing.assert_allclose(whole, part, atol=1e-5)


def test_a_probe_for_each_word(tmp_path):
    """If the states are only the word, a probe per word learns only which sense is more frequent."""
    TOKENIZER.save(tmp_path / "tokenizer.json")
    shares = {"dogs": 9, "cat": 2}

    def sentences(split):
        rows = [(name, "x" if i < share else "y") for name, share in shares.items() for i in range(12)]
        rows += [("ran", "x")] * (split == "test")
        return [SimpleNamespace(words=["a", name], labels={"sense": ["", sense]}) for name, sense in rows]

    text = SimpleNamespace(inputs=[], sentences=sentences)
    system = SimpleNamespace(objective=SimpleNamespace(model=MODELS["gpt"]().eval()))
    metrics = Probes(str(tmp_path), text, by_word=True)(system, tmp_path)
    right = pytest.approx((9 + 10) / 25)  # "ran" is wrong, because training lacks it
    assert metrics == {
        "probes/words/sense": 25,
        "probes/majority/sense": right,
        **{f"probes/layer_{k}/sense": right for k in range(3)},
    }


@pytest.mark.parametrize(("label", "splits", "said"), [
    ("", ("train", "test"), "no word has a label of kind number in train or in test"),
    ("one", ("test",), r"senses\.tsv has too few sentences for train and test; add sentences"),
])  # fmt: skip
def test_texts_that_have_nothing_to_probe(tmp_path, label, splits, said):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    row = SimpleNamespace(words=["the"], labels={"number": [label]})
    text = SimpleNamespace(inputs=[tmp_path / "senses.tsv"], sentences=lambda split: [row] * (split in splits))
    system = SimpleNamespace(objective=SimpleNamespace(model=MODELS["gpt"]().eval()))
    with pytest.raises(UsageError, match=said):
        Probes(str(tmp_path), text)(system, tmp_path)


def test_senses_are_labels_of_two_halves(tmp_path):
    rows = [(f"w{i % 2}", f"some w{i % 2} is {i}", 1, f"s{i // 2 % 2}") for i in range(40)]
    rows.append(("w1", "some w0 is 0 w1", 4, "s1"))
    rows.append(("w0", "some w0 is 0 w1", 1, "s0"))
    path = tmp_path / "senses.tsv"
    path.write_text("word\tsentence\tposition\tsense\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    text = SenseLabels(str(path))
    halves = {split: [" ".join(each.words) for each in text.sentences(split)] for split in ("train", "test")}
    assert not set(halves["train"]) & set(halves["test"]) and min(map(len, halves.values())) > 10
    assert sorted(halves["train"] + halves["test"]) == sorted({row[1] for row in rows})
    labels = {" ".join(e.words): e.labels["sense"] for split in halves for e in text.sentences(split)}
    assert labels["some w0 is 0 w1"] == ["", "s0", "", "", "s1"] and labels["some w1 is 3"] == ["", "s1", "", ""]
    assert text.inputs == [path]
