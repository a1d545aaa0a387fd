"""Test FUDGE: with an exact discriminator, it gives the model's exact distribution given the label."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.generation.beam_search import BeamSearch
from retable.generation.conditioned import Conditioned
from retable.generation.fudge import FUDGE
from retable.generation.next_token import Trained
from retable.generation.sampling import Greedy, Sampling, seeded
from retable.generation.steered import Discriminator, Steered
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.objectives.prefix_classification import PrefixClassification
from retable.objectives.translation import Translation

V, EOS, LONGEST, PROMPT = 3, 0, 4, [1]
LABELS = ["even", "odd"]
TEXTS = [  # all texts that end, or that have the greatest length
    text
    for n in range(1, LONGEST + 1)
    for text in product(range(V), repeat=n)
    if EOS not in text[:-1] and (text[-1] == EOS or n == LONGEST)
]


def label_of(text: tuple[int, ...]) -> int:
    """Return the label of a text: how often it contains token 2."""
    return text.count(2) % 2


class Told:
    """A discriminator whose state is the text; `probabilities` maps a beginning to the probabilities of the labels."""

    device, labels, boundary = torch.device("cpu"), LABELS, EOS

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def start(self, n_rows):
        return torch.empty((n_rows, 0), dtype=torch.long)

    def extend(self, ids, state):
        state = torch.cat([state, ids], dim=1)
        rows = [self.probabilities(tuple(row[len(PROMPT) :])) for row in state.tolist()]
        return torch.tensor(np.array(rows)).log().float(), state

    def select(self, state, rows, last=None):
        return state[rows]


def probability(model, text: tuple[int, ...]) -> float:
    context = [*PROMPT]
    total = 1.0
    for token in text:
        total *= np.exp(model.model.next_log_prob(np.array(context))[token])
        context.append(token)
    return total


def exact(model) -> Told:
    """Return the model's probabilities of the labels, by enumeration of all texts."""
    joint = np.zeros((len(TEXTS), 2))
    for i, text in enumerate(TEXTS):
        joint[i, label_of(text)] = probability(model, text)

    def probabilities(beginning: tuple[int, ...]) -> np.ndarray:
        goes_on = [text[: len(beginning)] == beginning for text in TEXTS]
        found = joint[goes_on].sum(axis=0)
        return found / found.sum() if found.sum() else np.array([0.5, 0.5])

    return Told(probabilities)


def constant() -> Told:
    return Told(lambda beginning: np.array([0.3, 0.7]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("label", [0, 1])
def test_with_a_right_discriminator_it_is_the_distribution_given_the_label(small, seed, label):
    model = small.tree(V, seed)
    steered = Steered(model, exact(model), label, top_k=V)
    given = np.array([probability(model, text) * (label_of(text) == label) for text in TEXTS])
    given /= given.sum()
    for text, expected in zip(TEXTS, given, strict=True):
        state, fed, total = steered.start(1), [*PROMPT], 1.0
        for token in text:
            scores, state = steered.extend(torch.tensor([fed]), state)
            total *= scores[0].softmax(dim=0)[token].item()
            fed = [token]
            if total == 0:
                break
        assert total == pytest.approx(expected, abs=1e-5)


def test_draws_are_of_that_distribution_and_the_best_of_beams_is_its_best(small):
    model, n = small.tree(V, 1), 2_000
    fudge = FUDGE(Sampling(seeded(0), LONGEST, num_return_sequences=n, batch_size=n), exact(model), "odd", top_k=V)
    (drawn,) = fudge(model, [PROMPT], EOS)
    given = np.array([probability(model, text) * label_of(text) for text in TEXTS])
    given /= given.sum()
    counts = np.bincount([TEXTS.index(tuple(each.ids)) for each in drawn], minlength=len(TEXTS))
    assert (counts[given == 0] == 0).all()
    often = given * n > 5
    observed, expected = (np.append(each[often], each[~often].sum()) for each in (counts, n * given))
    assert chisquare(observed, expected).pvalue > 1e-3
    beams = BeamSearch(V**LONGEST, LONGEST, length_penalty=0.0, early_stopping="never")
    ((best,),) = FUDGE(beams, exact(model), "odd", top_k=V)(model, [PROMPT], EOS)
    assert tuple(best.ids) == TEXTS[given.argmax()]


@pytest.mark.parametrize("strategy", ["greedy", "sampling", "beam"])
def test_a_discriminator_that_knows_nothing_changes_nothing(model, small, strategy):

    def made(batch_size):
        settings = {"max_new_tokens": 9, "min_length": 6, "batch_size": batch_size}
        return {
            "greedy": lambda: Greedy(**settings),
            "sampling": lambda: Sampling(seeded(3), num_return_sequences=3, top_p=0.9, **settings),
            "beam": lambda: BeamSearch(num_beams=3, num_return_sequences=3, **settings),
        }[strategy]()

    prompts = [[0], [0, 5, 3], [0, 2], [4, 9, 1]]
    alone = made(64)(model, prompts, small.eos)
    for batch_size in (64, 1):
        steered = FUDGE(made(batch_size), constant(), "odd")(model, prompts, small.eos)
        assert [[c.ids for c in several] for several in steered] == [[c.ids for c in several] for several in alone]
        for several, others in zip(steered, alone, strict=True):
            assert [c.log_prob for c in several] == pytest.approx([c.log_prob for c in others], abs=1e-3)


def test_only_the_likeliest_are_asked_about(small):
    model, asked = small.given({}, [0.1, 0.2, 0.3, 0.4]), []

    def probabilities(beginning):
        asked.append(beginning)
        return np.array([0.9, 0.1]) if beginning[-1:] == (2,) else np.array([0.5, 0.5])

    steered = Steered(model, Told(probabilities), 0, top_k=2)
    scores, _ = steered.extend(torch.tensor([PROMPT]), steered.start(1))
    np.testing.assert_allclose(scores[0].softmax(dim=0), [0, 0, 0.27 / 0.47, 0.2 / 0.47], atol=1e-6)
    assert {*asked} == {(), (2,), (3,)}


def discriminator(kind: str, vocab_size: int) -> Discriminator:
    torch.manual_seed(1)
    model = LSTM(vocab_size, 8, 1, 0.1, init_range=1.0) if kind == "lstm" else GPT(vocab_size, 8, 2, 2, 12, dropout=0.1)
    objective = PrefixClassification(model, 3, dropout=0.1)
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return Discriminator(objective, ["a", "b", "c"], 0, "digest", [Path("outputs/from_scratch/c/d-1/config.yaml")])


@torch.no_grad()
def told(found: Discriminator, text: list[int]) -> torch.Tensor:
    """Return log-probabilities (L,) of the labels, with the text read at once."""
    return found.objective.head(found.objective.model(torch.tensor([text]))[0][0, -1]).log_softmax(dim=0)


@pytest.mark.parametrize("kind", ["lstm", "gpt"])
def test_a_trained_discriminator_reads_on_with_each_candidate(small, kind):
    objective, found = small.trained("lstm"), discriminator(kind, small.vocab_size)
    steered = Steered(Trained(objective), found, 1, top_k=5)
    texts, state, fed = [[0, 5], [0, 9]], steered.start(2), [[0, 5], [0, 9]]
    for token in (3, 7, 1, 1):
        scores, state = steered.extend(torch.tensor(fed), state)
        for text, row in zip(texts, scores, strict=True):
            with torch.no_grad():
                logits = objective.head(objective.model(torch.tensor([text]))[0][0, -1])
            for v in range(small.vocab_size):
                is_asked = v in logits.topk(5).indices
                expected = (logits[v] + told(found, [*text, v])[1]).item() if is_asked else -torch.inf
                assert row[v].item() == pytest.approx(expected, abs=1e-3)
        fed, texts = [[token], [token + 1]], [[*text, token + i] for i, text in enumerate(texts)]
    rows = torch.tensor([1, 0, 1])
    (one, _), (three, _) = (
        steered.extend(torch.tensor([[2]] * len(of)), steered.select(state, of)) for of in (torch.tensor([1]), rows)
    )
    torch.testing.assert_close(three[2], one[0])
    torch.testing.assert_close(three[0], one[0])


def test_of_a_translator_it_reads_what_is_written():
    torch.manual_seed(0)
    end, found = 0, discriminator("lstm", 9)
    objective = Translation(RNNEncoderDecoder(9, 8, 8, 1, 0.1, attention="bilinear"), 9, 0.0, tie=False, bias=True)
    for parameter in objective.eval().parameters():
        torch.nn.init.normal_(parameter, std=0.8)
    steered = Steered(Conditioned(objective, end), found, 2, top_k=9)
    scores, state = steered.extend(torch.tensor([[5, 6, 4, end]]), steered.start(1))
    again, _ = steered.extend(torch.tensor([[7]]), state)
    for row, target in ((scores, []), (again, [7])):
        with torch.no_grad():
            hidden = objective.model(torch.tensor([[5, 6, 4, end]]), torch.tensor([4]), torch.tensor([[end, *target]]))
            logits = objective.head(hidden[0, -1])
        expected = [logits[v] + told(found, [end, *target, v])[2] for v in range(9)]
        torch.testing.assert_close(row[0], torch.stack(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n_new", [0, 2])
def test_of_a_translator_only_what_is_written_is_penalised_and_counts_for_its_length(n_new):
    objective = Translation(RNNEncoderDecoder(4, 8, 8, 1, 0.0, attention="bilinear"), 4, 0.0, tie=False, bias=True)
    alone = Conditioned(objective, 0)
    strategy = Greedy(9, repetition_penalty=2.0, min_length=2)
    scores, ids = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[3, 3, 3, 0, 1, 2]])[:, : 4 + n_new]
    found = strategy.constrain(Steered(alone, discriminator("lstm", 4), 0, 4), scores, ids, n_new, 0)
    assert found.tolist() == strategy.constrain(alone, scores, ids, n_new, 0).tolist()
    assert found.tolist() == [[-torch.inf, 2.0, 3.0, 4.0] if n_new == 0 else [1.0, 1.0, 1.5, 4.0]]


def test_a_stream_is_the_same_text_and_what_cannot_be_is_refused(small):
    model, found = Trained(small.trained("lstm")), discriminator("lstm", small.vocab_size)
    fudge = FUDGE(Sampling(seeded(1), 9), found, "b")
    drawn = FUDGE(Sampling(seeded(1), 9), found, "b")(model, [[0, 5]], small.eos)[0][0].ids
    assert [*fudge.stream(model, [0, 5], small.eos)] == drawn
    with pytest.raises(UsageError, match="BeamSearch chooses no tokens before the end"):
        FUDGE(BeamSearch(2, 9), found, "b").stream(model, [0, 5], small.eos)
    found = discriminator("lstm", small.vocab_size)
    with pytest.raises(UsageError, match="the discriminator has no label=d; write one of a, b, c"):
        FUDGE(Greedy(3), found, "d")
    with pytest.raises(UsageError, match="top_k=0 is out of range"):
        FUDGE(Greedy(3), found, "a", top_k=0)
    found.require_tokens("digest")
    with pytest.raises(UsageError, match="outputs/from_scratch/c/d-1 has a different tokenizer from the language"):
        found.require_tokens("other")
