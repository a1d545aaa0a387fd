"""ROUGE (Lin 2004), computed by Google's rouge-score.

The extra `summaries` installs rouge-score: `pip install 'retable[summaries]'`.

For multi-sentence summaries, papers report `rougeLsum` as ROUGE-L: it compares each reference sentence with the
summary's sentences. `rougeL` compares both texts as single sequences.
"""

import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.metadata import version
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from retable.core.errors import UsageError

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge_scores(
    summaries: Sequence[Sequence[str]], references: Sequence[Sequence[str]], stemmer: bool
) -> NDArray[np.float64]:
    """Compute the F1 of the METRICS for each summary and its reference, (n, 4), as shares.

    Each text is a list of sentences. Tokens are runs of a–z and 0–9 in lower case; `stemmer` removes suffixes (Porter
    1980). The metric of a test set is the mean over its summaries.

    Raises: UsageError: rouge-score is not installed.
    """
    if len(summaries) != len(references):
        raise ValueError(f"{len(summaries)} summaries but {len(references)} references")
    library = rouge_library()
    tokenizer = library.tokenizers.DefaultTokenizer(stemmer)  # the default tokenizer; passing it avoids a log message
    scorer = library.rouge_scorer.RougeScorer([*METRICS], tokenizer=tokenizer)
    scores = [
        scorer.score("\n".join(right), "\n".join(summary)) for summary, right in zip(summaries, references, strict=True)
    ]
    return np.array([[score[name].fmeasure for name in METRICS] for score in scores]).reshape(-1, len(METRICS))


def rouge_library() -> ModuleType:
    """Import Google's rouge-score.

    Raises: UsageError: rouge-score is not installed.
    """
    try:
        # rouge-score imports absl, which keeps the current `sys.stderr` and closes it when logging is configured again.
        with redirect_stderr(sys.__stderr__):
            import rouge_score.rouge_scorer
    except ImportError:
        raise UsageError("ROUGE needs the extra summaries: pip install -e '.[summaries]'") from None
    return rouge_score


def signatures(stemmer: bool) -> dict[str, str]:
    """Return, for each metric, the settings and the rouge-score version that affect it."""
    signature = f"F1, {'Porter stemmer' if stemmer else 'no stemmer'}, rouge_score {version('rouge_score')}"
    return dict.fromkeys(METRICS, signature)
