"""Answers as text, against the model run on one text and one token at a time."""

import numpy as np
import pytest
import torch

from retable.data.corruption import START
from retable.data.pairs import PairBatch, pad
from retable.objectives.answer_as_text import LONGEST, AnswerAsText
from tests.models.t5_cases import KINDS, V, build

END = 1
GENERATOR = torch.Generator().manual_seed(0)
SOURCES, TARGETS = (
    [[*torch.randint(2, V, (length,), generator=GENERATOR).tolist(), END] for length in lengths]
    for lengths in ((5, 2, 9, 5, 1, 12), (1, 3, 2, 1, 4, 1))
)


@pytest.fixture(scope="module", params=KINDS)
def objective(request) -> AnswerAsText:
    made = AnswerAsText(build(request.param), V, request.param == "v1.0", lambda ids: " ".join(map(str, ids)))
    with torch.no_grad():
        made.model.decoder.norm.weight.mul_(3)  # distributions with a top
    return made.eval()


def batch(*places: int) -> PairBatch:
    return pad(SOURCES, TARGETS, np.array(places or range(len(SOURCES))))


def log_probs(objective: AnswerAsText, source: list[int], before: list[int]) -> torch.Tensor:
    """(V,): of the token after those `before`, of a text without padding."""
    hidden = objective.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[START, *before]]))
    return objective.scores(hidden[:, -1])[0].log_softmax(dim=0)


@torch.no_grad()
def test_the_loss_is_the_mean_over_the_answers_tokens(objective):
    nats = [
        -log_probs(objective, source, target[:i])[token].item()
        for source, target in zip(SOURCES, TARGETS, strict=True)
        for i, token in enumerate(target)
    ]
    loss, metrics, _ = objective.loss(batch(), None, step=0)
    assert loss.item() == pytest.approx(np.mean(nats), abs=1e-4) and metrics["loss"] == loss


@torch.no_grad()
def test_what_is_written_is_the_likeliest_token_each_time_whatever_the_padding(objective):
    found = objective.predict(batch())
    for place, (source, text) in enumerate(zip(SOURCES, found, strict=True)):
        ids = [int(word) for word in text.split()]
        assert len(ids) == LONGEST
        assert ids[:6] == [int(log_probs(objective, source, ids[:i]).argmax()) for i in range(6)]
        assert objective.predict(batch(place)) == [text]
