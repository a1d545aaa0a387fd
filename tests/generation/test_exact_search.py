from itertools import product

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.generation.exact_search import ExactSearch


def brute_force(model, prompt: list[int], eos: int | None, longest: int, vocab_size: int, length_penalty: float):
    """Return the best of all texts and its log-probability; each text is scored separately."""
    best: tuple[float, list[int], float] = (-np.inf, [], 0.0)
    for length in range(1, longest + 1):
        for text in product(range(vocab_size), repeat=length):
            ended = text[-1] == eos
            if eos in text[:-1] or not (ended or length == longest):
                continue
            log_prob = sum(model.next_log_prob(np.array([*prompt, *text[:t]]))[token] for t, token in enumerate(text))
            best = max(best, (log_prob / length**length_penalty, list(text), log_prob))
    return best[1:]


@pytest.mark.parametrize("eos", [0, 2, None])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 0.5, -0.7])
@pytest.mark.parametrize("seed", range(2))
def test_equals_the_best_of_all_texts(small, seed, length_penalty, eos):
    counted = small.tree(3, seed)
    prompts = [[1], [2, 1]]
    found = ExactSearch(max_new_tokens=4, length_penalty=length_penalty)(counted, prompts, eos)
    for prompt, (completion,) in zip(prompts, found, strict=True):
        ids, log_prob = brute_force(counted.model, prompt, eos, 4, 3, length_penalty)
        assert completion.ids == ids
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-5)


def test_a_search_without_end_is_given_up(small):
    with pytest.raises(UsageError, match=r"visited 10 beginnings without finding .*smaller max_new_tokens"):
        ExactSearch(max_new_tokens=30, max_visits=10)(small.tree(13, 0), [[1]], None)
