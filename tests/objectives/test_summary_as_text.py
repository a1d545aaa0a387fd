"""Summaries as text, against the model run on one text and one token at a time; and those of a rule."""

import numpy as np
import torch

from retable.data.pairs import pad
from retable.data.summaries import InSentences
from retable.models.sentence_rules import Lead
from retable.objectives.summary_as_text import SummaryAsText, SummaryByRule
from tests.models.t5_cases import V, build
from tests.objectives.test_answer_as_text import SOURCES, TARGETS, log_probs

LONGEST = 5


@torch.no_grad()
def test_the_likeliest_tokens_as_many_as_a_summary_may_have():
    torch.manual_seed(0)
    objective = SummaryAsText(build("v1.0"), V, True, lambda ids: " ".join(map(str, ids)), LONGEST).eval()
    found = objective.predict(pad(SOURCES, TARGETS, np.arange(len(SOURCES))))
    for source, text in zip(SOURCES, found, strict=True):
        ids = [int(word) for word in text.split()]
        assert ids == [int(log_probs(objective, source, ids[:i]).argmax()) for i in range(LONGEST)]


def test_a_rules_summary_has_a_sentence_a_line():
    documents = [InSentences(["a .", "b .", "c ."], ["c ."]), InSentences(["d ."], ["d ."])]
    assert SummaryByRule(Lead(2)).predict(documents) == ["a .\nb .", "d ."]
