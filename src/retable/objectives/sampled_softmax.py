"""Sampled softmax (Jean, Cho, Memisevic and Bengio 2015, section 3).

"On Using Very Large Target Vocabulary for Neural Machine Translation". Jozefowicz et al. 2016 use it for language
models.

N tokens, K noise words, D d_model.

System C12 of docs/systems.yaml.
"""

import torch
from torch import Tensor

from retable.objectives.noise import NoiseLM


class SampledSoftmax(NoiseLM):
    """The loss −log softmax over the label and the noise, with logits corrected for a word's chance to be noise.

    Noise words that equal the label (accidental hits) are left out. For any number of samples, the expected gradient is
    0 if the model's probabilities equal those of the data.
    """

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        label, others, noise = self.scores(hidden, labels)
        others = others.masked_fill(labels[:, None] == noise, -torch.inf)
        return (torch.cat([label[:, None], others], dim=1).logsumexp(dim=1) - label).mean()
