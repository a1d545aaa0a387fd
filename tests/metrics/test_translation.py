import numpy as np
import pytest
import sacrebleu

from retable.metrics.translation import COLUMNS, METRICS, signatures, translation_counts, translation_score

REFERENCES = ["Ein Mann sitzt auf einer Bank.", "Zwei Hunde spielen, im Gras!", "Der Junge läuft nach Hause."]
HYPOTHESES = ["Ein Mann sitzt auf der Bank.", "zwei Hunde spielen im Gras!", "Der Junge läuft schnell nach Hause."]


def translation_scores(hypotheses: list[str], references: list[str]) -> dict[str, float]:
    counts = translation_counts(hypotheses, references)
    assert all(column.shape == (len(references),) for column in counts.values())
    sums = {name: np.array([counts[column].sum() for column in COLUMNS[name]]) for name in METRICS}
    return {name: translation_score(name, sums[name]) for name in METRICS}


def test_bleu_by_hand():
    """Seven words against eight: precisions 7/7, 5/6, 3/5, 1/4; brevity penalty exp(1 − 8/7)."""
    scores = translation_scores(["a b c d e f g"], ["a b c d x e f g"])
    expected = 100 * np.exp(1 - 8 / 7) * (7 / 7 * 5 / 6 * 3 / 5 * 1 / 4) ** 0.25
    assert [scores[name] for name in ("bleu", "bleu_lowercase", "bleu_words")] == pytest.approx([expected] * 3)


def test_scores_are_those_of_sacrebleu_with_its_signatures():
    scores = translation_scores(HYPOTHESES, REFERENCES)
    words = {"tokenize": "none", "smooth_method": "none", "force": True}
    expected = {
        "bleu": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]),
        "bleu_lowercase": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True),
        "bleu_words": sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], **words),
        "chrf": sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]),
    }
    assert scores == {k: v.score for k, v in expected.items()}
    assert scores["bleu_words"] < scores["bleu"] < scores["bleu_lowercase"]  # "Gras!" is one word
    assert {name: text.rpartition("|")[0] for name, text in signatures().items()} == {
        "bleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
        "bleu_lowercase": "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp",
        "bleu_words": "nrefs:1|case:mixed|eff:no|tok:none|smooth:none",
        "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no",
    }
    assert all(text.endswith(f"|version:{sacrebleu.__version__}") for text in signatures().values())
    assert translation_scores(["x y z u v"], ["a b c d e"])["bleu_words"] == 0


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_unequal_or_no_texts_are_refused(hypotheses, references):
    with pytest.raises(ValueError, match="translations but"):
        translation_scores(hypotheses, references)
