"""G6: FUDGE, future discriminators for generation (Yang and Klein 2021, arXiv 2104.05218, section 3)."""

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from retable.core.errors import UsageError, closest
from retable.core.settings import PositiveInt
from retable.generation.next_token import NextToken
from retable.generation.sampling import TokenByToken
from retable.generation.steered import Discriminator, Steered
from retable.generation.strategy import Completion, Strategy, check


class FUDGE:
    """Decodes by p(a | x, v) p(v | x): the probability of the next token v after the text x times that of the label a
    once v stands there, of the `top_k` likeliest tokens, of which others are not asked. By Bayes' rule that is
    p(v | x, a), if the discriminator is right; only the discriminator looks ahead.

    strategy: how texts are found in that distribution: drawn, or searched for by beams.
    """

    def __init__(self, strategy: Strategy, discriminator: Discriminator, label: str, top_k: PositiveInt = 200):
        check(top_k >= 1, "top_k", top_k, "200, or another number of candidates")
        if label not in discriminator.labels:
            raise UsageError(f"label={label} is none of the discriminator's; {closest(label, discriminator.labels)}")
        self.strategy, self.discriminator, self.top_k = strategy, discriminator, top_k
        self.label = discriminator.labels.index(label)

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        found = self.strategy(self._steered(model), prompts, eos)
        whose = [place for place, several in enumerate(found) for _ in several]
        log_probs = iter(self._alone(model, [prompts[place] for place in whose], [each.ids for each in chain(*found)]))
        return [[Completion(each.ids, next(log_probs)) for each in several] for several in found]

    def stream(self, model: NextToken, prompt: Sequence[int], eos: int | None) -> Iterator[int]:
        """The tokens of one completion, each as soon as it is there. UsageError where the strategy has none before the
        end."""
        if not isinstance(self.strategy, TokenByToken):
            raise UsageError(f"{type(self.strategy).__name__} has no text before the end; draw it, or decode greedily")
        return self.strategy.stream(self._steered(model), prompt, eos)

    def _steered(self, model: NextToken) -> Steered:
        return Steered(model, self.discriminator, self.label, self.top_k)

    def _alone(
        self, model: NextToken, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[float]:
        """The log-probability of each prompt's completion by the language model alone."""

        def read(batch: tuple[list[int], Tensor]) -> list[float]:
            places, ids = batch
            written = [completions[place] for place in places]
            longest = max(map(len, written))
            padded = torch.tensor([[*each, *[each[-1]] * (longest - len(each))] for each in written], device=ids.device)
            lengths = torch.tensor([len(each) for each in written], device=ids.device)
            total, state = torch.zeros(len(ids), device=ids.device), model.start(len(ids))
            for n, fed in enumerate(padded.split(1, dim=1)):
                scores, state = model.extend(ids, state)
                total += scores.log_softmax(dim=1).gather(1, fed)[:, 0].where(n < lengths, 0.0)
                ids = fed
            return total.tolist()

        return self.strategy.of_batches(read, prompts, model.device)
