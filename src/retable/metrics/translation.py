"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole test set, as sacrebleu has them (Post 2018)."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF


class Score(NamedTuple):
    value: float  # of 100
    signature: str  # sacrebleu's: everything that the number depends on


def translation_scores(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """`bleu` (tokenized as WMT's 13a, with case), `bleu_lowercase`, `bleu_words` of the words as they are parted, and
    `chrf`, of translations and one reference each.

    `bleu_words` is what Moses' multi-bleu.perl gives: for text that is tokenized already.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"{len(hypotheses)} translations of {len(references)} references")
    metrics = {
        "bleu": BLEU(),
        "bleu_lowercase": BLEU(lowercase=True),
        "bleu_words": BLEU(tokenize="none", smooth_method="none", force=True),  # force: no warning of tokenized text
        "chrf": CHRF(),
    }
    scores = {name: metric.corpus_score(hypotheses, [references]).score for name, metric in metrics.items()}
    return {name: Score(scores[name], str(metric.get_signature())) for name, metric in metrics.items()}
