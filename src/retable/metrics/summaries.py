"""ROUGE (Lin 2004) as Google's rouge-score has it, an extra: `pip install 'retable[summaries]'`.

What papers call ROUGE-L of summaries of several sentences is `rougeLsum`: each sentence of the reference against the
sentences of the summary; `rougeL` takes either side as one sequence.
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
    """(n, 4): the F1 of the METRICS, as shares, of each summary with its one reference, both in sentences.

    A metric of a test set is the mean. What is compared are runs of a–z and 0–9 in lower case, with `stemmer` less
    their suffixes (Porter 1980). UsageError where the library is missing.
    """
    if len(summaries) != len(references):
        raise ValueError(f"{len(summaries)} summaries of {len(references)} references")
    library = rouge_library()
    tokenizer = library.tokenizers.DefaultTokenizer(stemmer)  # as the scorer takes it by itself, with a line in the log
    scorer = library.rouge_scorer.RougeScorer([*METRICS], tokenizer=tokenizer)
    scores = [
        scorer.score("\n".join(right), "\n".join(found)) for found, right in zip(summaries, references, strict=True)
    ]
    return np.array([[score[name].fmeasure for name in METRICS] for score in scores]).reshape(-1, len(METRICS))


def rouge_library() -> ModuleType:
    """Google's rouge-score. UsageError where it is missing."""
    try:
        # Its absl keeps what is sys.stderr when it is imported, and closes it whenever logging is configured anew.
        with redirect_stderr(sys.__stderr__):
            import rouge_score.rouge_scorer
    except ImportError:
        raise UsageError("ROUGE comes with the extra summaries: pip install -e '.[summaries]'") from None
    return rouge_score


def signatures(stemmer: bool) -> dict[str, str]:
    """By metric, what its number depends on."""
    said = f"F1, {'Porter stemmer' if stemmer else 'no stemmer'}, rouge_score {version('rouge_score')}"
    return dict.fromkeys(METRICS, said)
