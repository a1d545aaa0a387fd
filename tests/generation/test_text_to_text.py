"""Test answers of text-to-text models: equal to those of transformers' `generate`, and to those without a cache."""

import pytest
import torch

from retable.data.corruption import START
from retable.evaluation.held_out import PretrainedObjective
from retable.generation.beam_search import BeamSearch
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import next_token
from retable.generation.sampling import Greedy
from retable.models.t5 import OneStackT5
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.text_to_text import TextToText
from tests.models.t5_cases import KINDS, V, build, transformers_t5

N, EOS = 9, 1
PROMPTS = [
    torch.randint(2, V, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    for length in (5, 3, 5, 8, 1, 4)
]


def objective(kind: str) -> TextToText:
    trained = TextToText(build(kind), V, tie=kind == "v1.0")
    with torch.no_grad():
        trained.model.decoder.norm.weight.mul_(3)  # so that one token is clearly the most likely
    return trained


def ids(completions) -> list[list[list[int]]]:
    return [[completion.ids for completion in several] for several in completions]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_beams", [1, 4])
def test_as_transformers(kind, num_beams):
    pytest.importorskip("transformers")
    trained = objective(kind)
    theirs = transformers_t5(trained.model, kind, trained.head.weight)
    strategy = Greedy(max_new_tokens=N) if num_beams == 1 else BeamSearch(num_beams, N, num_return_sequences=2)
    found = ids(strategy(Conditioned(trained, START), PROMPTS, EOS))
    for prompt, answers in zip(PROMPTS, found, strict=True):
        n_best = len(answers)
        texts = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=N, do_sample=False, num_beams=num_beams, num_return_sequences=n_best
        )[:, 1:].tolist()
        assert answers == [text[: text.index(EOS) + 1] if EOS in text else text for text in texts]
    assert len({tuple(answers[0]) for answers in found}) > 1


def test_a_prefix_lm_goes_on_from_its_prompt():
    torch.manual_seed(0)
    trained = PrefixLM(OneStackT5(V, 8, 2, 2, 6, 0.1), V, tie=False)
    with torch.no_grad():
        for parameter in trained.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    model = next_token(PretrainedObjective(trained, lambda split: None))
    found = Greedy(max_new_tokens=N)(model, PROMPTS, EOS)
    for prompt, (answer,) in zip(PROMPTS, found, strict=True):
        text: list[int] = []
        while len(text) < N and EOS not in text:
            with torch.no_grad():
                hidden, _ = trained.model(torch.tensor([[*prompt, START, *text]]), prefix=torch.tensor([len(prompt)]))
            text.append(int(trained.scores(hidden[:, -1])[0].argmax()))
        assert answer.ids == text
    assert len({tuple(answer.ids) for (answer,) in found}) > 1
