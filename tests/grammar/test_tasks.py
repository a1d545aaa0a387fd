"""Test the tasks, analogies and files of the built-in corpus."""

import csv
import hashlib
import tracemalloc
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from retable.grammar import Grammar, write_corpus
from retable.grammar.analogies import analogies
from retable.grammar.corpus import SPLITS
from retable.grammar.discourse import Discourse
from retable.grammar.language import Words, uniforms
from retable.grammar.tables import CONSISTENT_SHARE, LINE_END
from retable.grammar.tasks import acceptability, judge_acceptability, sentiment, sentiment_posterior, violations


@pytest.fixture(scope="module")
def grammar(whole) -> Grammar:
    return whole


def test_acceptability_labels_are_what_the_language_says(grammar: Grammar):
    examples = list(islice(acceptability(grammar, seed=1, split="train"), 400))
    assert 150 < sum(label == "acceptable" for _, label in examples) < 250
    for sentence, label in examples:
        possible = np.isfinite(grammar.score_tokens([*sentence.split(), LINE_END])).all()
        assert label == judge_acceptability(grammar, sentence) == ("acceptable" if possible else "unacceptable")


def test_all_kinds_of_violation_occur(grammar: Grammar):
    """Each negative differs at one place from the sentence drawn for it, which is sampled again here."""
    kinds, seen = violations(grammar.lexicon), dict.fromkeys([*violations(grammar.lexicon), "order"], 0)
    for index, (sentence, label) in enumerate(islice(acceptability(grammar, seed=1, split="x"), 1500)):
        if label == "acceptable":
            continue
        uniform = uniforms(1, "acceptability/x", index)
        latent, _ = int(uniform() * 16), uniform()
        original = grammar.sample(uniform, latent, Discourse.sentence)[:-1]
        changed = sentence.split()
        places = [i for i in range(len(original)) if original[i] != changed[i]]
        if len(places) == 2:
            assert places[1] == places[0] + 1
            seen["order"] += 1
        else:
            (i,) = places
            seen[next(kind for kind, words in kinds.items() if changed[i] in words.get(original[i], ()))] += 1
    assert min(seen.values()) >= 3, seen


def test_sentiment_posterior_by_brute_force(grammar: Grammar):
    """Each evaluative word is a vote with equal weight, reversed after "not"; no other word matters."""
    polarity = {a.word: a.polarity for a in grammar.lexicon.adjectives if a.polarity}
    log_odds = np.log(CONSISTENT_SHARE / (1 - CONSISTENT_SHARE))
    for sentence, _ in islice(sentiment(grammar, seed=1, split="test"), 100):
        words = sentence.split()
        votes = sum(
            polarity[word] * (-1 if words[i - 1] == "not" else 1) for i, word in enumerate(words) if word in polarity
        )
        negative, positive = sentiment_posterior(grammar, sentence)
        assert np.exp(negative) + np.exp(positive) == pytest.approx(1)
        assert positive - negative == pytest.approx(votes * log_odds, abs=1e-9)


def test_analogies_are_well_formed(grammar: Grammar):
    vocabulary = set(grammar.vocabulary)
    sections = analogies(grammar.lexicon)
    assert len(sections) == 8
    for questions in sections.values():
        assert 100 <= len(questions) == len(set(questions)) <= 500
        assert all(len(set(question)) == 4 and vocabulary.issuperset(question) for question in questions)
    nations = {nation.capital: nation.country for nation in grammar.lexicon.nations}
    assert all(nations[a] == b and nations[c] == d for a, b, c, d in sections["capital-world"])
    assert sum(b == a + "s" for a, b, _, _ in sections["gram8-plural"]) > 250  # most plurals are regular


def test_write_corpus(tmp_path: Path, lexicon_name: Words):
    words = {"train": 4000, "validation": 1500, "test": 1500}
    metrics = write_corpus(tmp_path, 1, words, {"train": 30, "validation": 10, "test": 40}, 0.2, lexicon_name)
    grammar = Grammar(0.2, lexicon_name)
    assert (tmp_path / "vocabulary.txt").read_text().split() == grammar.vocabulary
    for split, budget in words.items():
        text = (tmp_path / f"{split}.txt").read_text()
        assert budget <= len(text.split()) + text.count("\n") < budget + 500
        documents = [document.split("\n") for document in text.removesuffix("\n\n").split("\n\n")]
        assert documents == list(islice(grammar.documents(1, split), len(documents)))
    with (tmp_path / "units.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "test"]  # `documents` are those of split test
    assert [int(row["unit"]) for row in rows] == list(range(len(documents)))
    for row, document in zip(rows, documents, strict=True):
        assert -float(row["nats"]) == pytest.approx(grammar.score(document).sum())
        assert int(row["tokens"]) == int(row["words"]) == len(grammar.score(document))
        assert int(row["bytes"]) == len("\n".join([*document, "", ""]))
    for column in ("nats", "tokens", "words", "bytes"):
        assert metrics[f"test/{column}"] == pytest.approx(sum(float(row[column]) for row in rows))
    alone = sum(float(row["nats_alone"]) for row in rows)
    assert metrics["test/perplexity_word_alone"] == pytest.approx(np.exp(alone / metrics["test/words"]))
    assert metrics["test/perplexity_word"] < metrics["test/perplexity_word_alone"]
    assert metrics["acceptability/test/matthews"] == metrics["acceptability/test/accuracy"] == 1
    assert 0.7 < metrics["sentiment/test/accuracy"] <= 1
    for task in ("acceptability", "sentiment"):
        header, *examples = (tmp_path / task / "train.tsv").read_text().splitlines()
        assert header == "sentence\tlabel" and len(examples) == 30
        assert all(example.count("\t") == 1 for example in examples)
    assert (tmp_path / "analogies.txt").read_text().startswith(": capital-world\n")


TEXT = {
    "invented": "e57f5e41c4e9c2ec0b1a62dc7ba7836174f70b76fe8c34824b3cf796cfefc1e8",
    "english": "9b6c85e3b0ca21f6e2d32c0c30db2a94dd8be01f460057790f61ba6e1b68f9ed",
}


def test_the_text_stays_as_it_is(tmp_path: Path, lexicon_name: Words):
    """Committed results depend on every byte; a change here makes them all stale."""
    sizes = {"train": 3000, "validation": 500, "test": 1000}
    write_corpus(tmp_path, 1, sizes, {s: 8 for s in SPLITS}, 0.1, lexicon_name)
    texts = [path for path in sorted(tmp_path.rglob("*.t*")) if path.is_file()]  # scores may differ in the last digit
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in texts)).hexdigest()
    assert len(texts) == 11 and digest == TEXT[lexicon_name]


def test_memory_does_not_grow_with_the_corpus(grammar: Grammar):
    def peak(n: int) -> int:
        tracemalloc.start()
        for document in islice(grammar.documents(1, "train"), n):
            grammar.log_probability(document)
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return high

    peak(5)
    assert peak(150) < peak(20) + 500_000
