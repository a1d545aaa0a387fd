"""C12: sampled softmax (Jean, Cho, Memisevic and Bengio 2015, "On Using Very Large Target Vocabulary for Neural Machine
Translation", section 3; as Jozefowicz et al. 2016 train their language models).

N tokens, K words of noise, D d_model.
"""

import torch
from torch import Tensor

from retable.objectives.noise import NoiseLM


class SampledSoftmax(NoiseLM):
    """−log softmax over the label and the noise, every logit corrected by the word's expected number in the noise.

    Noise that is the label itself, an accidental hit, is left out. The expected gradient vanishes where the model's
    probabilities are the data's, whatever the number of samples.
    """

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        label, others, noise = self.scores(hidden, labels)
        others = others.masked_fill(labels[:, None] == noise, -torch.inf)
        return (torch.cat([label[:, None], others], dim=1).logsumexp(dim=1) - label).mean()
