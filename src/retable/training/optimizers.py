"""Optimizers that treat groups of parameters apart."""

from torch import nn, optim


def adamw(module: nn.Module, lr: float, weight_decay: float, beta1: float = 0.9, beta2: float = 0.999) -> optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) that decays matrices, not biases and norms (GPT, BERT)."""
    matrices = [p for p in module.parameters() if p.requires_grad and p.ndim >= 2]
    vectors = [p for p in module.parameters() if p.requires_grad and p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return optim.AdamW(groups, lr=lr, betas=(beta1, beta2), fused=True)


def sgd(module: nn.Module, lr: float, weight_decay: float = 0.0, momentum: float = 0.0) -> optim.SGD:
    """Stochastic gradient descent, plain or with Nesterov's momentum, all weights decayed alike."""
    parameters = (p for p in module.parameters() if p.requires_grad)
    nesterov = momentum > 0
    return optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, fused=True)


def adagrad(module: nn.Module, lr: float, initial: float = 1.0) -> optim.Adagrad:
    """AdaGrad (Duchi et al. 2011); the sums of squares begin at `initial`, as in GloVe's code."""
    return optim.Adagrad(
        (p for p in module.parameters() if p.requires_grad), lr=lr, initial_accumulator_value=initial, eps=0.0
    )


def adafactor(module: nn.Module, lr: float) -> optim.Adafactor:
    """Adafactor (Shazeer and Stern 2018): steps relative to a weight's size, of min(lr, 1 / √step); 1e-2 is T5's."""
    return optim.Adafactor((p for p in module.parameters() if p.requires_grad), lr=lr)
