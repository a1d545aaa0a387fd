from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from retable.core.errors import UsageError
from retable.evaluation.attention_maps import (
    SHARES,
    AttentionMaps,
    attending,
    attention_weights,
    of_words,
    shares,
    summed,
)
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.t5 import T5
from retable.nn.attention import Attention
from retable.tokenizers import byte_bpe, word

TEXT = ["the dogs often saw the cat", "a cat ran", "dogs ran"]
TOKENIZER = word.train(TEXT)
V = TOKENIZER.vocab_size
MODELS = {
    "bert": (BERT, {}),
    "bert, pre-norm": (BERT, {"norm": "pre"}),
    "bert, rotary": (BERT, {"positions": "rotary"}),
    "gpt": (GPT, {}),
    "gpt, post-norm, sinusoids": (GPT, {"norm": "post", "positions": "sinusoidal"}),
    "gpt, rotary": (GPT, {"positions": "rotary"}),
    "gpt, documents apart": (GPT, {"separate_documents": True, "boundary": 1}),
}
IDS, LENGTHS = torch.tensor([[0, 3, 1, 2, 4, 1], [2, 1, 5, 0, 0, 0], [3, 3, 4, 2, 0, 0]]), torch.tensor([6, 3, 4])


def model_of(name):
    """Return a model with large weights, so that attention is far from uniform."""
    torch.manual_seed(0)
    kind, settings = MODELS[name]
    model = kind(V, 8, 2, 2, max_length=9, dropout=0.1, **settings).eval()
    for block in model.blocks:
        for parameter in block.attention.parameters():
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_the_weights_mix_the_values_to_what_the_attention_returns(name):
    """In GPT, no token attends to later ones; no token attends to padding."""
    model, seen = model_of(name), []
    for block in model.blocks:
        block.attention.register_forward_hook(lambda module, given, output: seen.append((module, given[0], output)))
    found = attention_weights(model, IDS, LENGTHS)
    assert len(found) == len(seen) == 2
    for weights, (attention, hidden, output) in zip(found, seen, strict=True):
        if isinstance(attention, Attention):
            values, mixed = attention.keys_and_values(hidden)[1], output
        else:
            values = attention.query_key_value(hidden).view(3, 6, 3, 2, 4)[:, :, 2].transpose(1, 2)
            mixed = output[0]
        ours = attention.output((weights @ values).transpose(1, 2).flatten(2))
        assert (ours - mixed).abs().max() < 1e-5
        torch.testing.assert_close(weights.sum(dim=3), torch.ones(3, 2, 6))
        assert weights.max() > 0.9 and weights.shape == (3, 2, 6, 6)
        assert not (name.startswith("gpt") and weights.triu(1).any())
        for row, length in zip(weights, LENGTHS.tolist(), strict=True):
            assert not row[:, :length, length:].any() and row[:, :length, :length].any()
        # the first token of row 0 belongs to the document before
        assert name != "gpt, documents apart" or not weights[0, :, 2:, :2].any()


def test_hooks_are_removed_and_what_cannot_be_read_is_refused(tmp_path):
    model, bert = model_of("gpt"), model_of("bert")
    with pytest.raises(UsageError, match="exceeds the GPT's max_length"):
        attention_weights(model, torch.zeros(1, 10, dtype=torch.long), torch.tensor([10]))
    assert not any(block.attention._forward_pre_hooks for block in model.blocks)
    assert [type(each) for each in attending(bert)] == [Attention, Attention]
    with pytest.raises(UsageError, match=r"T5 has no blocks whose attention can be read; .* recipe=bert/bert"):
        attending(T5(V, 8, 2, 2, 16, dropout=0.1))
    TOKENIZER.save(tmp_path / "tokenizer.json")
    system = SimpleNamespace(objective=SimpleNamespace(model=bert))
    with pytest.raises(UsageError, match="every verb of the text directly follows its subject"):
        AttentionMaps(str(tmp_path), Text(far=False))(system, tmp_path)


def test_a_words_attention_is_that_of_its_tokens():
    weights = np.array([[[[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.1, 0.3], [0.2, 0.2, 0.2, 0.4], [0.7, 0.1, 0.1, 0.1]]]])
    found = of_words(weights, np.array([0, 1, 1, 2]), 3)
    np.testing.assert_allclose(found[0, 0], [[0.1, 0.5, 0.4], [0.35, 0.3, 0.35], [0.7, 0.2, 0.1]])
    np.testing.assert_allclose(found.sum(axis=3), 1)


def brute_shares(maps, subjects):
    """Return the shares of one head's map (W, W), whose first and last tokens are marks."""
    n = len(maps) - 2
    sums = dict.fromkeys(SHARES, 0.0)
    for i in range(1, n + 1):
        sums["itself"] += maps[i, i]
        sums["previous"] += maps[i, i - 1] if i > 1 else 0
        sums["next"] += maps[i, i + 1] if i < n else 0
        sums["marks"] += maps[i, 0] + maps[i, n + 1]
    for verb, head in subjects.items():
        row = maps[verb + 1]
        is_first = all(row[head + 1] > row[i] for i in range(1, n + 1) if i not in (verb + 1, head + 1))
        for kind in ("", "far_") if verb - head > 1 else ("",):
            sums[kind + "subject"] += row[head + 1]
            sums[kind + "subject_first"] += is_first
    return list(sums.values())


def test_shares_by_brute_force():
    generator = np.random.default_rng(0)
    subjects = [{2: 1, 4: 1}, {1: 0}, {3: 0, 5: 4, 6: 2}, {}]
    maps = [generator.dirichlet(np.ones(n) / 3, (2, 3, n)) for n in (8, 5, 10, 4)]
    parts = [shares(each, own) for each, own in zip(maps, subjects, strict=True)]
    for each, own, (sums, _) in zip(maps, subjects, parts, strict=True):
        for place in np.ndindex(2, 3):
            np.testing.assert_allclose(sums[place], brute_shares(each[place], own))
    heads = summed(parts)
    counts = [6 + 3 + 8 + 2, 5 + 2 + 7 + 1, 5 + 2 + 7 + 1, 6 + 3 + 8 + 2, 6, 6, 3, 3]
    np.testing.assert_allclose(heads.means, sum(sums for sums, _ in parts) / counts)
    for place in np.ndindex(2, 3, len(SHARES)):  # Cochran 1977, 6.13: standard error of a ratio of sums over sentences
        sums, n = np.array([each[place] for each, _ in parts]), np.array([counts[place[2]] for _, counts in parts])
        away = sums - heads.means[place] * n
        assert heads.errors[place] == pytest.approx(np.sqrt(4 / 3 * np.square(away).sum()) / n.sum())


class Text:
    inputs = (Path("some.txt"),)

    def __init__(self, far=True):
        self.far = far

    def sentences(self):
        rows = [("the dogs often saw the cat", {3: 1} if self.far else {}), ("a cat ran", {2: 1}), ("dogs ran", {1: 0})]
        return [SimpleNamespace(words=text.split(), subjects=subjects) for text, subjects in rows]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return the folder that the benchmark of a GPT writes, and its metrics."""
    folder = tmp_path_factory.mktemp("attention")
    TOKENIZER.save(folder / "tokenizer.json")
    benchmark = AttentionMaps(str(folder), Text(), shown=2, longest=6, batch_size=2)
    assert benchmark.inputs == [folder / "tokenizer.json", Path("some.txt")]
    system = SimpleNamespace(objective=SimpleNamespace(model=model_of("gpt")))
    return folder, benchmark(system, folder)


def test_maps_of_a_sentence_are_the_models(measured):
    maps = pd.read_csv(measured[0] / "attention.csv", keep_default_na=False)
    mark = TOKENIZER.words[TOKENIZER.boundary]
    labels = [mark, *TEXT[0].split(), mark]
    assert set(maps["sentence"]) == {1} and len(maps) == 2 * 2 * 8 * 8  # otherwise subject and verb are neighbours
    assert maps.drop_duplicates("target_place")["target"].tolist() == labels
    assert maps.drop_duplicates("source_place")["source"].tolist() == labels
    framed = maps[maps["subject"] == 1][["target", "source"]].drop_duplicates()
    assert framed.to_numpy().tolist() == [["saw", "dogs"]]
    ids = torch.tensor([[TOKENIZER.boundary, *TOKENIZER.encode(TEXT[0]), TOKENIZER.boundary]])
    with torch.inference_mode():
        weights = torch.stack(attention_weights(model_of("gpt"), ids, torch.tensor([8])), dim=1)[0]
    np.testing.assert_allclose(maps["weight"].to_numpy().reshape(2, 2, 8, 8), weights, atol=6e-5)


def test_heads_and_what_no_head_is_needed_for(measured):
    folder, metrics = measured
    heads = pd.read_csv(folder / "heads.csv")
    assert heads[["layer", "head", "share"]].drop_duplicates().shape == (2 * 2 * len(SHARES), 3)
    best = heads.groupby("share")["mean"].max()
    assert {f"attention/best/{name}": pytest.approx(best[name], abs=1e-6) for name in SHARES}.items() <= metrics.items()
    # each word attends to itself and to all tokens before it, including the mark: n words have 2 to n + 1 tokens
    places = [*range(2, 8), *range(2, 5), *range(2, 4)]
    itself = sum(1 / n for n in places) / 11
    assert metrics["attention/equal/itself"] == pytest.approx(itself) == metrics["attention/equal/marks"]
    assert metrics["attention/equal/next"] == 0
    assert metrics["attention/equal/previous"] == pytest.approx(sum(1 / n for n in places if n > 2) / 8)
    assert metrics["attention/equal/subject"] == pytest.approx((1 / 5 + 1 / 4 + 1 / 3) / 3)
    assert metrics["attention/equal/far_subject"] == pytest.approx(1 / 5)
    assert metrics["attention/offset/subject_first"] == pytest.approx(2 / 3)
    assert metrics["attention/offset/far_subject_first"] == 1
    assert [metrics[f"attention/{name}"] for name in ("words", "verbs", "far_verbs")] == [11, 3, 1]
    assert len(metrics) == 6 + 1 + len(SHARES) + 2 + 3 - 1


def test_heads_are_called_by_their_own_layer_and_number_and_tokens_are_of_their_words(tmp_path):
    rows = [("naïve dogs often saw the cat", {3: 1}), ("a café ran", {2: 1})]
    tokenizer = byte_bpe.train(["saw the cat"], 262)
    tokenizer.save(tmp_path / "tokenizer.json")
    text = SimpleNamespace(inputs=[], sentences=lambda: [SimpleNamespace(words=r.split(), subjects=s) for r, s in rows])
    torch.manual_seed(0)
    model = BERT(tokenizer.vocab_size, 8, 2, 2, max_length=40, dropout=0.0).eval()
    for block in model.blocks:
        torch.nn.init.normal_(block.attention.query.weight)
    AttentionMaps(str(tmp_path), text)(SimpleNamespace(objective=SimpleNamespace(model=model)), tmp_path)
    parts = []
    for words, subjects in ((row.split(), subjects) for row, subjects in rows):
        owners, ids = [0], [tokenizer.boundary]
        for place, each in enumerate(words, 1):
            own = tokenizer.encode(" " * (place > 1) + each)
            ids, owners = ids + own, owners + [place] * len(own)
        assert len(ids) > len(words) + 2
        ids, owners = [*ids, tokenizer.boundary], [*owners, len(words) + 1]
        with torch.inference_mode():
            weights = torch.stack(attention_weights(model, torch.tensor([ids]), torch.tensor([len(ids)])), dim=1)[0]
        parts.append(shares(of_words(weights.numpy(), np.array(owners), len(words) + 2), subjects))
    heads = pd.read_csv(tmp_path / "heads.csv").set_index(["layer", "head", "share"])["mean"]
    for (layer, head, i), mean in np.ndenumerate(summed(parts).means):
        assert heads[layer + 1, head + 1, SHARES[i]] == pytest.approx(mean, abs=1e-5)
