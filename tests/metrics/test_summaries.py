"""Test ROUGE of summaries: by hand, against rouge-score on the whole summary, and without the library."""

import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.metrics.summaries import METRICS, rouge_library, rouge_scores, signatures

pytest.importorskip("rouge_score")
library = rouge_library().rouge_scorer
WORDS = ["cat", "cats", "sits", "sitting", "mat", "the", "a", "."]


def scores(written: list[str], right: list[str], stemmer: bool = False) -> dict[str, float]:
    (row,) = rouge_scores([written], [right], stemmer)
    return dict(zip(METRICS, row.tolist(), strict=True))


def test_two_documents_by_hand():
    # Five words and four words; both have "the cat" and "mat": three words, one pair, and a sequence of three.
    by_hand = {"rouge1": 2 * 3 / (5 + 4), "rouge2": 2 * 1 / (4 + 3), "rougeL": 2 * 3 / (5 + 4)}
    scored = scores(["The cat lay on mat."], ["the cat , a mat ."])
    assert {name: scored[name] for name in by_hand} == pytest.approx(by_hand)
    # As one sequence, "a b c d" and "c d a b" have two words in common; sentence by sentence all four.
    scored = scores(["a b", "c d"], ["c d", "a b"])
    assert (scored["rougeL"], scored["rougeLsum"]) == (0.5, 1.0)
    assert scores(["dogs running"], ["dog runs"])["rouge1"] == 0
    assert scores(["dogs running"], ["dog runs"], stemmer=True)["rouge1"] == 1


@pytest.mark.parametrize("stemmer", [False, True])
def test_the_mean_over_documents_is_the_librarys_of_the_whole(stemmer):
    generator = np.random.default_rng(0)

    def text() -> list[str]:
        return [" ".join(generator.choice(WORDS, 6)) for _ in range(generator.integers(1, 4))]

    written, right = [*(text() for _ in range(20)), []], [text() for _ in range(21)]
    scorer = library.RougeScorer([*METRICS], use_stemmer=stemmer)
    whole = [scorer.score("\n".join(text), "\n".join(summary)) for summary, text in zip(written, right, strict=True)]
    expected = [np.mean([each[name].fmeasure for each in whole]) for name in METRICS]
    assert rouge_scores(written, right, stemmer).mean(axis=0) == pytest.approx(expected)
    assert rouge_scores(written, right, stemmer)[-1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("stemmer", "words"), [(False, "no stemmer"), (True, "Porter stemmer")])
def test_a_signature_names_the_stemmer_and_the_version(stemmer, words):
    assert signatures(stemmer) == dict.fromkeys(METRICS, f"F1, {words}, rouge_score {version('rouge_score')}")


def test_without_the_library_a_line_says_what_to_install(monkeypatch):
    for name in ("rouge_score", "rouge_score.rouge_scorer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"^ROUGE needs the extra summaries: pip install -e '\.\[summaries\]'$"):
        rouge_scores([["a"]], [["a"]], stemmer=False)
    with pytest.raises(ValueError, match="1 summaries but 0 references"):
        rouge_scores([["a"]], [], stemmer=False)


def test_a_stream_that_was_stderr_at_the_librarys_import_stays_open():
    """The library's absl would close the stream when logging is configured, as by Hydra and MLflow: a captured
    stream.
    """
    code = """
import io, logging.config, sys
from retable.metrics.summaries import rouge_library
sys.stderr = captured = io.StringIO()
rouge_library()
sys.stderr = sys.__stderr__
logging.config.dictConfig({"version": 1})
captured.write("open")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
