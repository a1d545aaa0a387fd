"""Test the answer of a study: numbers are inserted into its sentences."""

import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.reporting.answers import answered

FRAME = pd.DataFrame(
    [
        ("kn5", "ptb", "", "test", "perplexity_word", 141.186, 138.2, 144.25, 1),
        ("gpt", "ptb", "sst2", "test", "accuracy", 0.8154, 0.79, 0.84, 3),
        ("kn5", "brown", "", "test", "perplexity_word", 297.0, float("nan"), float("nan"), 1),
        ("kn3", "ptb", "", "test", "perplexity_word", float("nan"), float("nan"), float("nan"), 0),  # not run
    ],
    columns=["system", "corpus", "task", "split", "metric", "mean", "ci_low", "ci_high", "n"],
)


@pytest.mark.parametrize(("template", "text"), [
    ("{kn5: ptb/test/perplexity_word|.1f} or {kn5: brown/test/perplexity_word|.0f}", "141.2 or 297"),
    ("{gpt: sst2/test/accuracy|.1%}, {gpt: sst2/test/accuracy|interval .2f}", "81.5 %, 0.79 to 0.84"),
    ("Nothing.", "Nothing."),
])  # fmt: skip
def test_numbers_are_means_or_the_bounds_of_intervals(template, text):
    assert answered(template, FRAME) == text


@pytest.mark.parametrize(("template", "message"), [
    ("{kn4: test/perplexity_word|.1f}", "no system 'kn4' in this study; write kn5"),
    ("{kn3: ptb/test/perplexity_word|.1f}", "no system 'kn3'"),
    ("{kn5: test/perplexity_word|.1f}",
     "kn5 has test/perplexity_word on several corpora; write one of ptb/test/perplexity_word, brown"),
    ("{gpt: sst2/test/acuracy|.1f}", "no 'sst2/test/acuracy' of gpt in this study; write sst2/test/accuracy"),
    ("{gpt: sst2/test/accuracy|.1q}", "'.1q' is not a number format; write .2f"),
])  # fmt: skip
def test_a_mistake_has_one_line(template, message):
    with pytest.raises(UsageError, match=message):
        answered(template, FRAME)
