"""Test contrastive search against the paper's equation, with texts that are read again for each candidate."""

import pytest
import torch

from retable.core.errors import UsageError
from retable.generation.conditioned import Conditioned
from retable.generation.contrastive_search import ContrastiveSearch
from retable.generation.next_token import Trained
from retable.generation.sampling import Greedy
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.t5 import OneStackT5
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.prefix_lm import PrefixLM
from retable.objectives.translation import Translation

PROMPTS = [[0], [0, 5, 3], [0, 2], [4, 9, 1], [7], [1, 2, 3, 4]]
K, ALPHA, N = 4, 0.6, 9
V, D, END, START = 9, 8, 3, 0


def contrasted(hidden_of, log_probs_of, text: list[int]) -> tuple[int, float]:
    """Return the next token by equation 5, and its log-probability. `hidden_of` returns the states of a text."""
    log_probs = log_probs_of(text)
    best = None
    for v in log_probs.argsort(descending=True)[:K].tolist():
        *before, last = hidden_of([*text, v])
        alike = max((torch.cosine_similarity(last, other, dim=0).item() for other in before), default=-1.0)
        score = (1 - ALPHA) * log_probs[v].exp().item() - ALPHA * alike
        best = max(best or (score, v), (score, v))
    return best[1], log_probs[best[1]].item()


def written(hidden_of, log_probs_of, prompt: list[int], eos: int | None, n: int) -> tuple[list[int], float]:
    text, total = list(prompt), 0.0
    while len(text) < len(prompt) + n and not (len(text) > len(prompt) and text[-1] == eos):
        token, log_prob = contrasted(hidden_of, log_probs_of, text)
        text.append(token)
        total += log_prob
    return text[len(prompt) :], total


def in_window(length: int, n_prompt: int, window: int | None) -> int:
    """Return the start of the part of a text that is read: if it exceeds the window, its last half is read, and so
    on.
    """
    begun = 0
    for n in range(n_prompt, length + 1):
        if window is not None and n - begun > window:
            begun = n - window // 2
    return begun


@pytest.mark.parametrize(("kind", "ends"), [("lstm", True), ("gru", True), ("gpt", True), ("gpt", False)])
def test_tokens_are_those_of_the_equation(small, kind, ends):
    objective = small.trained(kind).eval()
    eos, n = (small.eos, N) if ends else (None, 2 * small.max_length)
    found = ContrastiveSearch(n, K, ALPHA)(Trained(objective), PROMPTS, eos)
    for prompt, (completion,) in zip(PROMPTS, found, strict=True):

        @torch.no_grad()
        def hidden_of(text: list[int]) -> torch.Tensor:
            begun = in_window(len(text), len(prompt), objective.model.max_length)  # noqa: B023
            return objective.model(torch.tensor([text[begun:]]))[0][0]

        @torch.no_grad()
        def log_probs_of(text: list[int]) -> torch.Tensor:
            return objective.head(hidden_of(text)[-1]).log_softmax(dim=0)

        ids, log_prob = written(hidden_of, log_probs_of, prompt, eos, n)
        assert completion.ids == ids
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-3)
    assert found != Greedy(n)(Trained(objective), PROMPTS, eos)


WRITERS = {
    "bilinear": lambda: RNNEncoderDecoder(V, D, D, 1, 0.1, attention="bilinear", input_feeding=True),
    "transformer": lambda: TransformerEncoderDecoder(V, D, 2, 2, 12, 20, 0.1),
    "prefix": lambda: OneStackT5(V, D, 2, 2, 6, 0.1),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_of_what_reads_first_only_what_is_written_counts(kind):
    torch.manual_seed(0)
    model, begins = WRITERS[kind](), START if kind == "prefix" else END
    objective = PrefixLM(model, V, False) if kind == "prefix" else Translation(model, V, 0.0, tie=False, bias=True)
    for parameter in objective.eval().parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    sources = [[5, 6, 4, END], [7, END], [8, 1, 2, 8, END], [4, END]]
    found = ContrastiveSearch(6, K, ALPHA)(Conditioned(objective, begins), sources, END)
    for source, (completion,) in zip(sources, found, strict=True):
        length = torch.tensor([len(source)])

        @torch.no_grad()
        def hidden_of(text: list[int]) -> torch.Tensor:
            if kind == "prefix":
                return objective.model(torch.tensor([[*source, *text]]), prefix=length)[0][0, len(source) :]  # noqa: B023
            return objective.model(torch.tensor([source]), length, torch.tensor([text]))[0]  # noqa: B023

        ids, log_prob = written(
            hidden_of, lambda text: objective.scores(hidden_of(text)[-1:])[0].log_softmax(0).detach(), [begins], END, 6
        )
        assert completion.ids == ids
        assert completion.log_prob == pytest.approx(log_prob, abs=1e-3)


@pytest.mark.parametrize(("top_k", "penalty_alpha"), [(4, 0.0), (1, 0.6)])
def test_without_a_penalty_or_a_choice_it_is_greedy(small, top_k, penalty_alpha):
    model = Trained(small.trained("lstm"))
    settings = {"min_length": 6, "repetition_penalty": 1.3}
    found = ContrastiveSearch(N, top_k, penalty_alpha, **settings)(model, PROMPTS, small.eos)
    greedy = Greedy(N, **settings)(model, PROMPTS, small.eos)
    assert [c.ids for (c,) in found] == [c.ids for (c,) in greedy]


def test_a_completion_does_not_depend_on_its_neighbours_and_streams_the_same(small):
    model = Trained(small.trained("gpt"))
    together, alone = (ContrastiveSearch(N, K, ALPHA, batch_size=n)(model, PROMPTS, small.eos) for n in (64, 1))
    assert [c.ids for (c,) in together] == [c.ids for (c,) in alone]
    for prompt, (completion,) in zip(PROMPTS, alone, strict=True):
        assert [*ContrastiveSearch(N, K, ALPHA).stream(model, prompt, small.eos)] == completion.ids


def test_the_end_is_held_back_where_every_token_is_a_candidate(small):
    objective = small.trained("lstm")
    found = ContrastiveSearch(5, 13, 0.9, min_new_tokens=5)(Trained(objective), PROMPTS, small.eos)
    assert all(small.eos not in completion.ids and len(completion.ids) == 5 for (completion,) in found)
    with pytest.raises(UsageError, match=r"contrastive search compares hidden states.*use another decoding"):
        ContrastiveSearch(3, K, ALPHA)(small.tree(3, 0), [[1]], 0)
