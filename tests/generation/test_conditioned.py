"""Test translation with every strategy, against a model that reads everything again for each token."""

from functools import partial

import pytest
import torch

from retable.evaluation.translation import translate
from retable.generation.beam_search import BeamSearch
from retable.generation.conditioned import Conditioned
from retable.generation.exact_search import ExactSearch
from retable.generation.sampling import Greedy
from retable.objectives.translation import Translation
from tests.contracts.model_cases import V, build

END, LONGEST = 3, 6
SOURCES = [[5, 6, 4, END], [7, END], [8, 1, 2, 8, END], [4, END], [6, 6, 1, END], [1, 2, 5, END]]
KINDS = ["rnn, sutskever", "rnn, bilinear", "rnn, additive, fed", "transformer", "convolutional encoder-decoder"]


@pytest.fixture(params=KINDS)
def objective(request) -> Translation:
    torch.manual_seed(0)
    made = Translation(build(request.param), V, 0.0, tie=False, bias=True)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    return made.eval()


@torch.no_grad()
def logits(objective: Translation, source: list[int], target: list[int]) -> torch.Tensor:
    """Return logits (U + 1, V) of the token after each beginning of the target, computed at once without a state."""
    inputs = torch.tensor([[END, *target]])
    return objective.head(objective.model(torch.tensor([source]), torch.tensor([len(source)]), inputs))[0]


def test_beams_find_the_likeliest_translation_of_each_source(objective):
    # So many beams that all beginnings of a short translation are kept, compared with an exact search.
    model = Conditioned(objective, END)
    beam = BeamSearch(V, 2, length_penalty=0.0, early_stopping="never")(model, SOURCES, END)
    exact = ExactSearch(2)(model, SOURCES, END)
    for (ours,), (best,) in zip(beam, exact, strict=True):
        assert ours.ids == best.ids
        assert ours.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    # Translations do not depend on the other sources of a batch.
    model = Conditioned(objective, END)
    together, alone = (BeamSearch(3, LONGEST, batch_size=n)(model, SOURCES, END) for n in (16, 1))
    assert [t.ids for (t,) in together] == [a.ids for (a,) in alone]


def test_translations_come_without_the_end_mark(objective):
    found = translate(objective, SOURCES, Greedy(LONGEST), END)
    assert all(END not in target and len(target) <= LONGEST for target in found)
    with torch.no_grad():
        objective.head.weight.zero_()
        objective.head.bias.zero_()[END] = 5
    assert translate(objective, SOURCES, Greedy(LONGEST), END) == [[]] * len(SOURCES)


FREE, CONSTRAINED = {}, {"repetition_penalty": 3.0, "min_length": 4}
BEAM = partial(BeamSearch, 1, length_penalty=0.0, early_stopping=True)


@pytest.mark.parametrize(("decode", "settings"), [(Greedy, FREE), (Greedy, CONSTRAINED), (BEAM, CONSTRAINED)])
def test_tokens_are_the_likeliest_and_constraints_are_of_the_translation_alone(objective, decode, settings):
    strategy = decode(max_new_tokens=LONGEST, **settings)
    for source, (completion,) in zip(SOURCES, strategy(Conditioned(objective, END), SOURCES, END), strict=True):
        target: list[int] = []
        log_prob = 0.0
        while len(target) < LONGEST and target[-1:] != [END]:
            scores = logits(objective, source, target)[-1]
            own = scores.log_softmax(0)
            scores = own.clone() if decode is BEAM else scores
            for token in {*target} if settings else ():
                scores[token] *= 3.0 if scores[token] < 0 else 1 / 3.0
            if settings and len(target) < 4:
                scores[END] = -torch.inf
            target.append(int(scores.argmax()))
            log_prob += own[target[-1]].item()
        assert completion.ids == target
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-4)
