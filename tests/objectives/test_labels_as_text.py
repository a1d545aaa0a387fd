"""Labels as text: their loss and what is written, against the model run on one text and one token at a time."""

import numpy as np
import pytest
import torch

from retable.data.corruption import START
from retable.data.examples import ExampleBatch, Inputs, encoded, pad
from retable.evaluation.prediction import predict
from retable.generation.conditioned import Conditioned
from retable.generation.sampling import Greedy
from retable.objectives.labels_as_text import LabelsAsText
from tests.models.t5_cases import KINDS, V, build
from tests.objectives.test_answer_as_text import log_probs

END, NONE = 1, 3
ANSWERS = [[7, END], [8, 9, 7, END], [8, END]]
SEQUENCES = [
    [*torch.randint(2, V, (length,), generator=torch.Generator().manual_seed(place)).tolist(), END]
    for place, length in enumerate((5, 2, 9, 5, 1, 12))
]
LABELS = [0, 1, 2, 1, 0, 2]


def read(ids: list[int]) -> int:
    text = ids[: ids.index(END) + 1] if END in ids else ids
    return ANSWERS.index(text) if text in ANSWERS else NONE


def objective(kind: str, answers=ANSWERS, reader=read) -> LabelsAsText:
    trained = LabelsAsText(build(kind), V, kind == "v1.0", answers, reader)
    with torch.no_grad():
        trained.model.decoder.norm.weight.mul_(3)  # distributions with a top
    return trained.eval()


def batch(*places: int) -> ExampleBatch:
    return pad(Inputs(SEQUENCES), LABELS, np.array(places or range(len(SEQUENCES))))


@pytest.fixture(scope="module", params=KINDS)
def trained(request) -> LabelsAsText:
    return objective(request.param)


@torch.no_grad()
def test_the_loss_is_the_mean_over_examples_of_the_answers_nats(trained):
    nats = [
        -sum(log_probs(trained, source, answer[:i])[token].item() for i, token in enumerate(answer))
        for source, answer in zip(SEQUENCES, (ANSWERS[label] for label in LABELS), strict=True)
    ]
    loss, metrics, state = trained.loss(batch(), None, step=0)
    assert loss.item() == pytest.approx(sum(nats) / len(nats), abs=1e-4)
    assert metrics["loss"] == loss and state is None


@torch.no_grad()
def test_what_is_written_is_the_teacher_forced_argmax_whatever_the_padding(trained):
    written = trained.write(batch())
    assert written.shape == (len(SEQUENCES), 4)
    for place, (source, ids) in enumerate(zip(SEQUENCES, written.tolist(), strict=True)):
        assert ids == [int(log_probs(trained, source, ids[:i]).argmax()) for i in range(len(ids))]
        assert ids == trained.write(batch(place))[0].tolist()
    greedy = Greedy(max_new_tokens=4)(Conditioned(trained, START), SEQUENCES, eos=END)
    for ids, (completion,) in zip(written.tolist(), greedy, strict=True):
        assert completion.ids == (ids[: ids.index(END) + 1] if END in ids else ids)


def test_numbers_keep_their_digits():
    numbers = iter([3.2, -1] * 3)
    inputs = encoded(Inputs(SEQUENCES), LABELS)
    found = predict(objective("v1.0", reader=lambda ids: next(numbers)), inputs, batch_size=2)
    assert sorted(found) == [-1, -1, -1, 3.2, 3.2, 3.2]
