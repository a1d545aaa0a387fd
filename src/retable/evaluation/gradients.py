"""How far back a model's gradient reaches, and how long it is: the figures of vanishing and exploding gradients.

After Bengio, Simard and Frasconi (1994) and Pascanu, Mikolov and Bengio (2013, arXiv 1211.5063): the loss at time t is
differentiated by the embedding of the token k before, and its norm drawn against k; a norm that falls as c · r^k has
vanished long before it reaches what a sentence began with. Section 3.2 clips the gradient's norm where it is too long.

B windows, K distances, D dimensions, T time.
"""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt
from retable.core.systems import TrainedSystem
from retable.data.batches import mapped, once
from retable.data.bucketed import on_device
from retable.data.streams import TokenBatch
from retable.evaluation.adaptation import detached
from retable.evaluation.perplexity import read_split
from retable.metrics.regression import fit_line
from retable.objectives.causal_lm import CausalLM
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

BATCH_SIZE = 32  # windows that are differentiated at a time


class Gradients:
    """Differentiates a trained objective; `inputs` are the files that the scores depend on.

    distances: the farthest k.
    length: tokens before the loss, `distances` + 1 at least; a recurrent state warms up on the first of them.
    windows: losses that are averaged over, at even steps through the split.
    batches: those that the gradient's norm is taken of, tokens → batches as in training.
    n_batches: how many.
    clip_norm: above it a norm is clipped.
    """

    asks_for = TrainedSystem

    def __init__(
        self,
        tokens: str,
        batches: Callable[[np.ndarray], Any],
        split: str = "test",
        distances: PositiveInt = 64,
        length: PositiveInt = 96,
        windows: PositiveInt = 512,
        n_batches: PositiveInt = 100,
        clip_norm: Positive = 1.0,
    ):
        if length <= distances:
            raise UsageError(f"benchmark.gradients.length={length} must be above .distances={distances}")
        self.folder, self.split, self.batches = Path(tokens), split, batches
        self.distances, self.length, self.windows = distances, length, windows
        self.n_batches, self.clip_norm = n_batches, clip_norm
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]
        self.inputs.append(self.folder / "train.bin")

    def __call__(self, system: TrainedSystem, folder: Path) -> dict[str, float]:
        """Write `gradients.csv`, a row a distance k: the norm's mean over windows, and that over the mean at k = 0; and
        `gradient_norms.csv`, a row a batch: the norm of the whole gradient, and what clipping leaves of it.

        Returns `gradients/<metric>`: `factor`, by which the norm changes a step, from a line through its logarithm at
        the distances from 1 that it reaches, with the 95 % interval `factor_low` and `factor_high` and the share `r2`
        that the line explains; `reach`, how many words it reaches, the last one among them, `distances` + 1 at most: of
        convolutions and windows the receptive field; `norm_median`, `norm_90` and `norm_max` of the batches, and the
        share of them that is `clipped`.
        """
        objective, vocab_size = system.objective, Tokenizer.load(self.inputs[0]).vocab_size
        if not isinstance(objective, CausalLM):
            raise UsageError(
                f"{type(objective).__name__} is no left-to-right language model, whose gradients by earlier tokens are "
                "measured here; take the cell of one, such as recipe=recurrent/lstm or transformer/gpt"
            )
        tokens, _ = read_split(self.folder, self.split, vocab_size)
        if len(tokens) <= self.length:
            raise UsageError(
                f"the {self.split} split has {len(tokens)} tokens; lower benchmark.gradients.length={self.length}"
            )
        starts = np.linspace(0, len(tokens) - self.length - 1, self.windows).astype(np.int64)
        windows = torch.from_numpy(tokens[starts[:, None] + np.arange(self.length + 1)].astype(np.int64))
        device = next(objective.parameters()).device
        parts = windows.to(device).split(BATCH_SIZE)
        norms = np.concatenate(mapped(lambda part: by_distance(objective, part, self.distances), parts))
        mean = norms.mean(axis=0)
        reached = np.flatnonzero(mean[1:]) + 1  # a model with a window of its own sees nothing beyond it
        if len(reached) < 3:
            raise UsageError(f"{type(objective.model).__name__} sees {len(reached)} words before the last: no decay")
        line = fit_line(reached, np.log(mean[reached]))
        batches = self.batches(read_tokens(self.folder / "train.bin", vocab_size))
        lengths = once(lambda: total_norms(objective, [batches.batch(step) for step in range(self.n_batches)]))
        rows = ((k, f"{norm:.6g}", f"{norm / mean[0]:.6g}") for k, norm in enumerate(mean))
        _write(folder / "gradients.csv", ("distance", "norm", "relative"), rows)
        clipped = np.minimum(lengths, self.clip_norm)
        rows = ((i, f"{norm:.6g}", f"{left:.6g}") for i, (norm, left) in enumerate(zip(lengths, clipped, strict=True)))
        _write(folder / "gradient_norms.csv", ("batch", "norm", "clipped"), rows)
        median, ninetieth, most = map(float, np.quantile(lengths, [0.5, 0.9, 1]))
        slopes = zip(("", "_low", "_high"), (line.slope, line.low, line.high), strict=True)
        return {
            **{f"gradients/factor{end}": float(np.exp(slope)) for end, slope in slopes},
            "gradients/r2": line.r2,
            "gradients/reach": float(reached[-1] + 1),
            "gradients/norm_median": median,
            "gradients/norm_90": ninetieth,
            "gradients/norm_max": most,
            "gradients/clipped": float((lengths > self.clip_norm).mean()),
        }


def by_distance(objective: CausalLM, windows: Tensor, distances: int) -> np.ndarray:
    """(B, T + 1) tokens to (B, K + 1): ‖∂ loss of the last token / ∂ embedding of the input k before it‖.

    Distance 0 is the input that the last token is predicted from. UsageError for a model without a layer of word
    vectors.
    """
    if (embedding := objective.model.input_embedding) is None:
        raise UsageError(f"{type(objective.model).__name__} has no layer of word vectors to differentiate by")
    leaves: list[Tensor] = []

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    hook = embedding.register_forward_hook(cut)
    try:
        with torch.backends.cudnn.flags(enabled=False):  # whose recurrent layers give no gradient outside of training
            log_probs, _ = objective.next_log_prob(windows[:, :-1], None)
    finally:
        hook.remove()
    nats = -log_probs.gather(1, windows[:, -1:]).sum()  # no window sees another
    (slopes,) = torch.autograd.grad(nats, leaves)
    # squares of what has vanished would be 0 in fp32
    return slopes.double().norm(dim=2).flip(1)[:, : distances + 1].cpu().numpy()


def total_norms(objective: CausalLM, batches: list[TokenBatch]) -> np.ndarray:
    """(batches,): the norm of the loss's gradient by all weights, the state carried as in training; without dropout,
    whose noise is no part of it."""
    weights = [weight for weight in objective.parameters() if weight.requires_grad]
    state, norms = None, []
    for step, batch in enumerate(batches):
        with torch.backends.cudnn.flags(enabled=False):
            loss, _, state = objective.loss(on_device(weights[0].device, batch), state, step)
        slopes = torch.autograd.grad(loss, weights, allow_unused=True)
        norms.append(float(nn.utils.get_total_norm([slope for slope in slopes if slope is not None])))
        state = detached(state)
    return np.array(norms)


def _write(path: Path, names: tuple[str, ...], rows: Iterable[tuple[float | str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
