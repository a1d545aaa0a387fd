"""Decoding of one token at a time: the most probable token, or a random token.

Dimensions: R rows (unfinished texts), T tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from retable.core.settings import NonNegativeInt, Positive, PositiveInt, Seed, Share
from retable.generation.next_token import NextToken
from retable.generation.strategy import Completion, Strategy, check

# A function that returns the chosen tokens, (R,). The arguments of this function are the scores, (R, V), the index of
# each row's text, (R,), and the number of new tokens so far.
Choice = Callable[[Tensor, Tensor, int], Tensor]


class TokenByToken(Strategy):
    """A strategy that chooses one token at a time and does not revise it."""

    num_return_sequences = 1

    def choice(self, n_texts: int, device: torch.device) -> Choice:
        """Return the function that chooses tokens for `n_texts` texts.

        Returns: see `Choice`.
        """
        raise NotImplementedError

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        texts = [prompt for prompt in prompts for _ in range(self.num_return_sequences)]
        choose, n = self.choice(len(texts), model.device), self.num_return_sequences

        def complete(batch: tuple[list[int], Tensor]) -> list[Completion]:
            places, ids = batch
            tokens: dict[int, list[int]] = {place: [] for place in places}
            log_probs = dict.fromkeys(places, 0.0)
            for step in self._steps(model, ids, torch.tensor(places, device=model.device), choose, eos):
                for text, token, log_prob in zip(*(column.tolist() for column in step), strict=True):
                    tokens[text].append(token)
                    log_probs[text] += log_prob
            return list(map(Completion, tokens.values(), log_probs.values()))

        completions = self.of_batches(complete, texts, model.device)
        return [completions[first : first + n] for first in range(0, len(texts), n)]

    def stream(self, model: NextToken, prompt: Sequence[int], eos: int | None) -> Iterator[int]:
        """Yield the tokens of one completion, each token as soon as it is chosen.

        Args:
            prompt: token ids, which include the token that begins a stream.
            eos: the token that ends a text; None if there is no such token.
        """
        ids, text = (torch.tensor(value, device=model.device) for value in ([list(prompt)], [0]))
        for _, token, _ in self._steps(model, ids, text, self.choice(1, model.device), eos):
            yield int(token)

    def _steps(
        self, model: NextToken, ids: Tensor, texts: Tensor, choose: Choice, eos: int | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the texts' indices, their next tokens, and the tokens' log-probabilities under the model, (R,) each.

        Texts begin with `ids`, (R, T). A text that has ended is removed from the batch.
        """
        state, fed = model.start(len(ids)), ids
        for n_new in range(self.max_new_tokens):
            scores, state = model.extend(fed, state)
            tokens = choose(self.constrain(model, scores, ids, n_new, eos), texts, n_new)
            fed = tokens[:, None]
            yield texts, tokens, scores.log_softmax(dim=1).gather(1, fed)[:, 0]
            ids = torch.cat([ids, fed], dim=1)
            (going,) = torch.where(tokens != eos) if eos is not None else (texts,)
            if not len(going):
                return
            if len(going) < len(texts):
                ids, fed, texts, state = ids[going], fed[going], texts[going], model.select(state, going)


class Greedy(TokenByToken):
    """Greedy decoding: always choose the most probable token."""

    def choice(self, n_texts: int, device: torch.device) -> Choice:
        return lambda scores, texts, n_new: scores.argmax(dim=1)


class Sampling(TokenByToken):
    """Random sampling from the model's distribution, after temperature scaling and truncation.

    Truncations are applied in the order of the arguments. Random numbers for all texts are drawn in advance, so that a
    text does not depend on the division of texts into batches. Two calls with the same state of `generator` give the
    same texts.

    Args:
        temperature: divisor of the scores; a temperature above 1 makes the distribution flatter.
        top_k: keep the `top_k` most probable tokens (Fan et al. 2018); 0 keeps all tokens.
        top_p: keep the fewest tokens whose total probability reaches `top_p` (Holtzman et al. 2020).
        typical_p: keep the typical set with the total probability `typical_p`, see `keep_typical`.
    """

    def __init__(
        self,
        generator: torch.Generator,
        max_new_tokens: PositiveInt,
        temperature: Positive = 1.0,
        top_k: NonNegativeInt = 0,
        top_p: Share = 1.0,
        typical_p: Share = 1.0,
        num_return_sequences: PositiveInt = 1,
        min_new_tokens: NonNegativeInt = 0,
        min_length: NonNegativeInt = 0,
        repetition_penalty: Positive = 1.0,
        batch_size: PositiveInt = 64,
    ):
        super().__init__(max_new_tokens, min_new_tokens, min_length, repetition_penalty, batch_size)
        check(temperature > 0, "temperature", temperature, "1.0, or take decoding=greedy for the limit at 0")
        check(top_k >= 0, "top_k", top_k, "0 for all tokens, or a number of tokens to sample from")
        check(0 < top_p <= 1, "top_p", top_p, "1.0 for all tokens, or a share above 0")
        check(0 < typical_p <= 1, "typical_p", typical_p, "1.0 for all tokens, or a share above 0")
        check(num_return_sequences >= 1, "num_return_sequences", num_return_sequences, "1 or more")
        self.generator, self.num_return_sequences = generator, num_return_sequences
        self.temperature, self.top_k, self.top_p, self.typical_p = temperature, top_k, top_p, typical_p

    def choice(self, n_texts: int, device: torch.device) -> Choice:
        uniform = torch.rand((n_texts, self.max_new_tokens), generator=self.generator, dtype=torch.float64).to(device)
        return lambda scores, texts, n_new: draw(self.warp(scores), uniform[texts, n_new])

    def warp(self, scores: Tensor) -> Tensor:
        """Apply temperature and truncation to the scores, (R, V)."""
        scores = scores / self.temperature
        if 0 < self.top_k < scores.shape[1]:
            scores = keep_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = keep_top_p(scores, self.top_p)
        return keep_typical(scores, self.typical_p) if self.typical_p < 1 else scores


def seeded(seed: Seed) -> torch.Generator:
    """Return a random number generator with the given seed."""
    return torch.Generator().manual_seed(seed)


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Set scores, (R, V), below the k-th best score to −∞; scores equal to the k-th best are kept.

    Args:
        k: from 1 to V.

    Returns: scores, (R, V).
    """
    return scores.masked_fill(scores < scores.topk(k, dim=1).values[:, -1:], -torch.inf)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Set scores, (R, V), outside the nucleus to −∞ (Holtzman et al. 2020, section 3.1).

    A token is outside the nucleus if the more probable tokens together have probability `p` or more.

    Returns: scores, (R, V); at least one token per row is kept.
    """
    probabilities, order = scores.softmax(dim=1).sort(dim=1, descending=True)
    surplus = probabilities.cumsum(dim=1) - probabilities >= p
    return scores.masked_fill(surplus.scatter(1, order, surplus), -torch.inf)


def keep_typical(scores: Tensor, mass: float) -> Tensor:
    """Set the scores, (R, V), of tokens outside the typical set to −∞.

    Tokens are sorted by the distance between their surprisal and the distribution's entropy. The typical set contains
    the fewest first tokens of this order whose total probability is at least `mass` (Meister, Pimentel, Wiher and
    Cotterell 2022, arXiv 2202.00666, section 4). Tokens that tie with the last token of the set are kept, too.

    Returns: scores, (R, V); at least one token per row is kept.
    """
    log_probs = scores.log_softmax(dim=1)
    probabilities = log_probs.exp()
    entropy = torch.special.entr(probabilities).sum(dim=1, keepdim=True)
    distance = (entropy + log_probs).abs()  # distance between the entropy and the surprisal −log p
    nearest, order = distance.sort(dim=1)
    short = probabilities.gather(1, order).cumsum(dim=1) < mass
    last = short.sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)  # rounding may keep the total below `mass`
    return scores.masked_fill(distance > nearest.gather(1, last), -torch.inf)


def draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """Sample one token for each row of scores by inverting the row's cumulative distribution.

    In float64, `uniform` times the total probability is always below the total, so a token of probability 0 is never
    drawn.

    Args:
        scores: (R, V).
        uniform: random numbers in [0, 1), (R,).

    Returns: ids, (R,), int64.
    """
    cumulative = scores.double().softmax(dim=1).cumsum(dim=1)
    return torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
