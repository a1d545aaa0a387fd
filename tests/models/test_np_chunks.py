"""Compute all rows of chapter 7 of NLTK's book again in plain Python: files, rules, counts, features and chunks.

The maximum-entropy rows use numpy and an L-BFGS of ours. Nothing is imported from the package or from SciPy.
"""

import json
import os
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.models.lbfgs import lbfgs

RECORDS = Path(__file__).parents[2] / "studies/np_chunks/records/from_scratch"
COUNTS = ["words", "right", "spans_right", "spans_predicted", "spans_labelled"]


def read(split, only=""):
    """Return sentences of (word, part of speech, chunk tag). With `only`, tags of all other chunk types become O."""
    text = (Path(os.environ["RETABLE_DATA"]) / "conll2000" / f"{split}.txt").read_text()
    sentences = [[line.split() for line in block.splitlines()] for block in text.strip().split("\n\n")]
    return [[(word, part, tag if tag.endswith(only) else "O") for word, part, tag in each] for each in sentences]


def spans(tags):
    """Return the chunks (first, end, type) of tags; an I after O or after another type begins a chunk."""
    chunks, first, kind = set(), 0, ""
    for i, tag in enumerate([*tags, "O"]):
        if kind and tag != f"I-{kind}":
            chunks.add((first, i, kind))
            kind = ""
        if not kind and tag != "O":
            first, kind = i, tag[2:]
    return chunks


def counted(sentences, tagged):
    """Return the counts of each sentence, in the order of COUNTS. Tags are made from chunks, as in the library."""
    rows = []
    for sentence, tags in zip(sentences, tagged, strict=True):
        gold = [tag for *_, tag in sentence]
        right, predicted = spans(gold), spans(tags)
        again = ["O"] * len(gold)
        for first, end, kind in predicted:
            again[first:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - first - 1)
        right_tags = sum(map(str.__eq__, gold, again))
        rows.append([len(gold), right_tags, len(right & predicted), len(predicted), len(right)])
    return np.array(rows)


def by_rule(train, test, letters):
    tagged = []
    for sentence in test:
        inside = [part[0] in letters for _, part, _ in sentence]
        pairs = zip([False, *inside], inside, strict=False)
        tagged.append(["O" if not here else "I-NP" if before else "B-NP" for before, here in pairs])
    return tagged


def by_counts(train, test, order):
    """Tag with the most frequent tag after this part of speech and the order − 1 tags before; ties go to the first
    seen.
    """
    seen = defaultdict(Counter)
    for sentence in train:
        before = []
        for _, part, tag in sentence:
            seen[part, *before[len(before) - order + 1 :]][tag] += 1
            before.append(tag)
    tagged = []
    for sentence in test:
        tags = []
        for _, part, _ in sentence:
            counts = seen.get((part, *tags[len(tags) - order + 1 :]))
            tags.append(counts.most_common(1)[0][0] if counts else None)
        tagged.append([tag or "O" for tag in tags])
    return tagged


def features(sentence, number):
    """Yield the first `number` features of the book's last classifier for each word, in the order of its four rows."""
    since = set()
    padded = ["<START>", *(part for _, part, _ in sentence), "<END>"]
    for (word, part, _), before, after in zip(sentence, padded, padded[2:], strict=False):
        values = (part, before, word, after, (before, part), (part, after), frozenset(since))
        yield list(enumerate(values))[:number]
        since = set() if part == "DT" else since | {part}


def by_maximum_entropy(train, test, number):
    """Tag with weights of the (feature, tag) pairs that occur in training, after 100 steps from 0."""
    ids, places, tags = {}, [], sorted({tag for each in train for *_, tag in each})
    for sentence in train:
        places += [[ids.setdefault(each, len(ids)) for each in word] for word in features(sentence, number)]
    places = np.array(places)
    gold = np.array([tags.index(tag) for each in train for *_, tag in each])
    n = np.arange(len(gold))
    columns = (places[..., None] * len(tags) + np.arange(len(tags))).ravel()
    seen = np.zeros((len(ids), len(tags)))
    np.add.at(seen, (places, gold[:, None]), 1)

    def loss(flat):
        weights = np.where(seen > 0, flat.reshape(seen.shape), 0)
        sizes = np.exp(weights[places].sum(1))
        sizes /= sizes.sum(1, keepdims=True)
        expected = np.bincount(columns, np.repeat(sizes[:, None], number, 1).ravel(), seen.size)
        gradient = np.where(seen > 0, expected.reshape(seen.shape) - seen, 0)
        return -np.log(sizes[n, gold]).mean(), gradient.ravel() / len(gold)

    weights = lbfgs(loss, np.zeros(seen.size), 100).reshape(seen.shape)
    tagged = []
    for sentence in test:
        totals = [sum(weights[ids[each]] for each in word if each in ids) for word in features(sentence, number)]
        tagged.append([tags[np.argmax(each)] for each in totals])
    return tagged


ROWS = {
    "no_chunks": (by_rule, ""),
    "pattern_chunks": (by_rule, "CDJNP"),
    "unigram_tagger": (by_counts, 1),
    "bigram_tagger": (by_counts, 2),
    "maxent_pos": (by_maximum_entropy, 1),
    "maxent_previous": (by_maximum_entropy, 2),
    "maxent_word": (by_maximum_entropy, 3),
    "maxent_all": (by_maximum_entropy, 7),
}


def both(task, system):
    """Return, for each test sentence, the counts computed here and those of the record, and the recorded metrics."""
    kind = "NP" if task == "conll2000_np" else ""
    tagger, setting = ROWS[system]
    test = read("test", kind)
    here = counted(test, tagger(read("train", kind), test, setting))
    path = RECORDS / task / f"{system}-1"
    there = pd.read_csv(path.with_suffix(".zip")).sort_values("unit")[COUNTS].to_numpy()
    return here, there, json.loads(path.with_suffix(".json").read_text())["metrics"][""]


def shares(counts):
    """Return accuracy, precision, recall and F1 of counts."""
    words, right, correct, predicted, labelled = counts.sum(0)
    return [right / words, correct / max(predicted, 1), correct / labelled, 2 * correct / (predicted + labelled)]


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "system"), [*(("conll2000_np", row) for row in ROWS), ("conll2000_pos", "unigram_tagger")]
)
def test_a_row_of_the_book_computed_again(task, system):
    here, there, metrics = both(task, system)
    np.testing.assert_array_equal(here, there)
    recorded = [metrics[f"tagging/test/{name}"] for name in ("accuracy", "precision", "recall", "f1")]
    np.testing.assert_allclose(shares(here), recorded, atol=1e-12)
