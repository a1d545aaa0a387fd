from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retable.generation.beam_search import BeamSearch
from retable.generation.sampling import Greedy, Sampling, draw, keep_top_k, keep_top_p, seeded
from retable.generation.strategy import penalise_repetition

PROMPTS = [[0], [0, 5, 3], [0, 2], [4, 9, 1], [7], [0, 5, 3], [1, 2, 3, 4]]
PROBABILITIES = np.array([0.05, 0.4, 0.02, 0.25, 0.08, 0.2])


def test_greedy_takes_the_likeliest_of_a_text_read_anew_each_time(model, from_scratch, small):
    found = Greedy(max_new_tokens=8)(model, PROMPTS, None)
    for prompt, (completion,) in zip(PROMPTS, found, strict=True):
        text, log_prob = list(prompt), 0.0
        for _ in range(8):
            expected = from_scratch(text)
            text.append(int(expected.argmax()))
            log_prob += expected.max()
        assert completion.ids == text[len(prompt) :]
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-3)


def test_a_text_ends_with_the_end_mark(model):
    free = [completion.ids for (completion,) in Greedy(max_new_tokens=8)(model, PROMPTS, None)]
    (eos, n_ended), = Counter(token for ids in free for token in set(ids[:-1])).most_common(1)  # fmt: skip
    ended = [completion.ids for (completion,) in Greedy(max_new_tokens=8)(model, PROMPTS, eos)]
    assert ended == [ids[: ids.index(eos) + 1] if eos in ids else ids for ids in free]
    assert n_ended and min(map(len, ended)) < 8


@pytest.mark.parametrize("name", ["greedy", "sampling", "beam"])
def test_a_completion_does_not_depend_on_its_neighbours(model, small, name):
    def decode(batch_size):
        more = {"max_new_tokens": 9, "repetition_penalty": 1.2, "batch_size": batch_size}
        strategies = {
            "greedy": lambda: Greedy(**more),
            "sampling": lambda: Sampling(seeded(3), num_return_sequences=3, temperature=1.5, **more),
            "beam": lambda: BeamSearch(num_beams=3, num_return_sequences=3, **more),
        }
        return strategies[name]()(model, PROMPTS, small.eos)

    together, alone = decode(64), decode(1)
    assert [[c.ids for c in several] for several in together] == [[c.ids for c in several] for several in alone]
    flat = [
        (c, d) for several, others in zip(together, alone, strict=True) for c, d in zip(several, others, strict=True)
    ]
    assert all(c.log_prob == pytest.approx(d.log_prob, abs=1e-4) for c, d in flat)
    assert [len(several) for several in together] == [1 if name == "greedy" else 3] * len(PROMPTS)


def test_generators_decide_texts_and_streams(model, small):
    def decode(seed):
        return Sampling(seeded(seed), max_new_tokens=8, num_return_sequences=4)(model, PROMPTS, small.eos)

    torch.manual_seed(0)
    first = decode(1)
    torch.manual_seed(5)  # the global generator must have no influence
    assert decode(1) == first != decode(2)
    greedy = Greedy(max_new_tokens=9)
    assert list(greedy.stream(model, [0, 5], small.eos)) == greedy(model, [[0, 5]], small.eos)[0][0].ids
    drawn = Sampling(seeded(1), max_new_tokens=9)(model, [[0, 5]], None)[0][0].ids
    assert list(Sampling(seeded(1), max_new_tokens=9).stream(model, [0, 5], None)) == drawn


@pytest.mark.parametrize(("limit", "shortest"), [({"min_new_tokens": 4}, 4), ({"min_length": 7}, 5)])
def test_the_end_is_held_back(small, limit, shortest):
    always = small.given({}, [0.9, 0.06, 0.04])
    for strategy in (
        Greedy(max_new_tokens=9, **limit),
        BeamSearch(num_beams=2, max_new_tokens=9, **limit),
        Sampling(seeded(0), max_new_tokens=9, top_k=1, **limit),
    ):
        ((completion,),) = strategy(always, [[1, 1]], 0)
        assert completion.ids == [1] * shortest + [0]
        # Compared with the model itself, whose softmax has no limits.
        assert completion.log_prob == pytest.approx(shortest * np.log(0.06) + np.log(0.9), abs=1e-5)


def test_the_ends_of_what_is_drawn_kept_and_penalised():
    scores = torch.tensor([[2.0, -1.0, 0.5, 3.0], [2.0, -1.0, 0.5, 3.0]])
    penalised = penalise_repetition(scores, torch.tensor([[0, 1, 0], [3, 3, 3]]), 2.0)
    assert penalised.tolist() == [[1.0, -2.0, 0.5, 3.0], [2.0, -1.0, 0.5, 1.5]]
    scores = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    assert draw(scores, torch.tensor([0.0], dtype=torch.float64)).tolist() == [1]
    assert draw(scores, torch.tensor([1 - 2**-53], dtype=torch.float64)).tolist() == [2]
    scores = torch.tensor([[1.0, 2.0, 2.0, 0.0]])
    assert keep_top_k(scores, 1).tolist() == [[-torch.inf, 2.0, 2.0, -torch.inf]]
    assert keep_top_p(torch.tensor([[0.0, 9.0, 1.0]]), 1e-6).tolist() == [[-torch.inf, 9.0, -torch.inf]]


def expected_top(k: int | None = None, p: float | None = None, temperature: float = 1.0) -> np.ndarray:
    """Return the probabilities that top-k or top-p leaves of PROBABILITIES."""
    probabilities = PROBABILITIES ** (1 / temperature)
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities)
    kept = order[:k] if p is None else order[: 1 + np.searchsorted(probabilities[order].cumsum(), p)]
    top = np.zeros_like(probabilities)
    top[kept] = probabilities[kept]
    return top / top.sum()


@pytest.mark.parametrize(("settings", "expected"), [
    ({}, PROBABILITIES),
    ({"temperature": 0.5}, expected_top(k=6, temperature=0.5)),
    ({"temperature": 2.0}, expected_top(k=6, temperature=2.0)),
    ({"top_k": 3}, expected_top(k=3)),
    ({"top_p": 0.66}, expected_top(p=0.66)),
    ({"top_p": 0.64}, expected_top(p=0.64)),
    ({"top_k": 4, "top_p": 0.85, "temperature": 1.5}, None),
], ids=str)  # fmt: skip
def test_draws_follow_the_distribution_that_is_left(small, settings, expected):
    if expected is None:  # both limits: of what top-k leaves, three tokens reach 0.85; of all tokens, four
        expected = np.where(np.isin(np.arange(6), [1, 3, 5]), PROBABILITIES ** (1 / 1.5), 0)
        expected /= expected.sum()
    n = 10_000
    sampling = Sampling(seeded(0), max_new_tokens=1, num_return_sequences=n, batch_size=n, **settings)
    (completions,) = sampling(small.given({}, PROBABILITIES.tolist()), [[0]], None)
    counts = np.bincount([completion.ids[0] for completion in completions], minlength=6)
    assert (counts[expected == 0] == 0).all()
    assert chisquare(counts[expected > 0], n * expected[expected > 0]).pvalue > 1e-3


def test_draws_of_later_tokens_are_independent(small):
    sampling = Sampling(seeded(0), max_new_tokens=2, num_return_sequences=10_000, batch_size=10_000)
    (completions,) = sampling(small.given({}, [0.5, 0.3, 0.2]), [[0]], None)
    pairs = np.bincount([3 * c.ids[0] + c.ids[1] for c in completions], minlength=9)
    assert chisquare(pairs, 10_000 * np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]).ravel()).pvalue > 1e-3
