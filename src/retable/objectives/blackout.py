"""BlackOut (Ji, Vishwanathan, Satish, Anderson and Dubey 2016, arXiv 1511.06909, section 2).

Shapes: N tokens, K noise words, D d_model.

System C12 of docs/systems.yaml.
"""

import torch
from torch import Tensor

from retable.objectives.noise import NoiseLM


class BlackOut(NoiseLM):
    """The loss −log p̃(label) − Σ log(1 − p̃(word)), with the sum over the noise words.

    p̃ is the softmax over the label and the noise words; the weight of a word is 1 / (the probability that the word is
    drawn as noise). The noise distribution is ∝ count^`power`: the unigram distribution for power 1, and the uniform
    distribution for power 0. A noise word that equals the label is left out of the sum.
    """

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        label, others, noise = self.scores(hidden, labels)
        others = others.masked_fill(labels[:, None] == noise, -torch.inf)
        log_sum = torch.cat([label[:, None], others], dim=1).logsumexp(dim=1, keepdim=True)
        # For the most probable noise word, p̃ may round to 1, so 1 − p̃ is computed as the sum of the other
        # probabilities. For all other noise words, p̃ is at most ½.
        highest = others.topk(min(others.shape[1], 1)).indices
        rest = torch.cat([label[:, None], others.scatter(1, highest, -torch.inf)], dim=1).logsumexp(dim=1)
        p = (others - log_sum).exp().scatter(1, highest, 0.0)
        log_sum = log_sum.squeeze(1)
        return (log_sum - label + log_sum - rest - torch.log1p(-p).sum(dim=1)).mean()
