"""FUDGE: future discriminators for generation (Yang and Klein 2021, arXiv 2104.05218, section 3).

System G6 of docs/systems.yaml.
"""

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
    """Decoding by p(a | x, v) p(v | x), where v is the next token, x the text and a the label.

    FUDGE multiplies the language model's probability of v by the discriminator's probability that the text after v has
    label a. Only the `top_k` most probable tokens are considered. The product is proportional to p(v | x, a) by Bayes'
    rule, if the discriminator is correct.

    Args:
        strategy: the decoding strategy that uses the product as the probability of v, such as sampling or beam search.
        discriminator: predicts the label of a text from the first tokens of the text.
        label: name of the label that texts should have.
        top_k: number of tokens that the discriminator rates at each step.

    Raises: UsageError: the discriminator does not have the label, or `top_k` is below 1.
    """

    def __init__(self, strategy: Strategy, discriminator: Discriminator, label: str, top_k: PositiveInt = 200):
        check(top_k >= 1, "top_k", top_k, "200 or another number of candidates")
        if label not in discriminator.labels:
            raise UsageError(f"the discriminator has no label={label}; {closest(label, discriminator.labels)}")
        self.strategy, self.discriminator, self.top_k = strategy, discriminator, top_k
        self.label = discriminator.labels.index(label)

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        results = self.strategy(self._steered(model), prompts, eos)
        own_prompts = [prompts[place] for place, several in enumerate(results) for _ in several]
        log_probs = iter(self._unsteered(model, own_prompts, [each.ids for each in chain(*results)]))
        return [[Completion(each.ids, next(log_probs)) for each in several] for several in results]

    def stream(self, model: NextToken, prompt: Sequence[int], eos: int | None) -> Iterator[int]:
        """Yield the tokens of one completion, each token as soon as it is chosen.

        Raises: UsageError: the strategy does not choose tokens one at a time.
        """
        if not isinstance(self.strategy, TokenByToken):
            raise UsageError(
                f"{type(self.strategy).__name__} chooses no tokens before the end of a text; use sampling or greedy"
            )
        return self.strategy.stream(self._steered(model), prompt, eos)

    def _steered(self, model: NextToken) -> Steered:
        return Steered(model, self.discriminator, self.label, self.top_k)

    def _unsteered(
        self, model: NextToken, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[float]:
        """Compute the log-probability of each completion under the language model without the discriminator."""

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
