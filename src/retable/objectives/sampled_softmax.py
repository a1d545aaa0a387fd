"""Sampled softmax (Jean, Cho, Memisevic and Bengio 2015, section 3).

"On Using Very Large Target Vocabulary for Neural Machine Translation". Jozefowicz et al. 2016 use sampled softmax for
language models.

Shapes: N tokens, K noise words, D d_model.

System C12 of docs/systems.yaml.
"""

import torch
from torch import Tensor

from retable.objectives.noise import NoiseLM


class SampledSoftmax(NoiseLM):
    """The label's −log softmax over label and noise words; logits are corrected for each word's noise probability.

    Noise words that equal the label (accidental hits) are left out. If the model's probabilities are the probabilities
    of the data, the expected gradient is 0 for any number of samples.
    """

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        label, others, noise = self.scores(hidden, labels)
        others = others.masked_fill(labels[:, None] == noise, -torch.inf)
        return (torch.cat([label[:, None], others], dim=1).logsumexp(dim=1) - label).mean()
