"""Gradient norms by distance and by batch: vanishing and exploding gradients.

The measurements follow Bengio, Simard and Frasconi (1994) and Pascanu, Mikolov and Bengio (2013, arXiv 1211.5063). The
loss at time t is differentiated with respect to the embedding of the token k positions earlier. The norm of this
gradient is plotted against k. A gradient whose norm falls as c · r^k, with r < 1, vanishes before it reaches the
beginning of a sentence. Section 3.2 of the 2013 paper clips gradients whose norm is too large.

Dimensions: B windows, K distances, D embedding size, T time.
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

BATCH_SIZE = 32  # number of windows per backward pass


class Gradients:
    """A benchmark of the gradient norms of a trained language model.

    Args:
        tokens: the folder of a tokenized corpus.
        batches: a function that returns the training batches of a token stream, (N,).
        distances: the largest distance k.
        length: number of tokens that the model reads before the token whose loss is differentiated, at least
            `distances` + 1. If the model is recurrent, the first tokens warm up its state.
        windows: number of tokens, evenly spaced in the split, whose losses are differentiated; the norms are averaged.
        n_batches: number of training batches whose gradient norm is measured.
        clip_norm: maximum gradient norm in training; larger gradients are scaled down to this norm.

    `inputs` lists the files that the scores depend on.
    """

    requires = TrainedSystem

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
        """Write `gradients.csv` and `gradient_norms.csv`, and return the metrics.

        `gradients.csv` has one row per distance k: the mean norm over windows, and the ratio of this norm to the mean
        norm at k = 0. `gradient_norms.csv` has one row per batch: the norm of the whole gradient, before and after
        clipping.

        Returns:
            - `gradients/factor`: the factor by which the norm changes per token of distance. A line is fitted to the
              log norm as a function of k, for k ≥ 1 with a non-zero norm; the factor is exp(slope).
              `gradients/factor_low` and `gradients/factor_high` are the ends of the factor's 95 % interval, and
              `gradients/r2` is the fit's R².
            - `gradients/reach`: number of input words, including the last input word, that the gradient reaches, at
              most `distances` + 1. For convolutions and models with a window, the reach is the receptive field.
            - `gradients/norm_median`, `gradients/norm_90`, `gradients/norm_max`: median, 90 % quantile and maximum of
              the norm over batches; `gradients/clipped`: share of batches whose gradient is clipped.
        Raises: UsageError: the system is not a left-to-right language model, the split is shorter than `length`, or the
            gradient reaches fewer than three words before the last input word.
        """
        objective, vocab_size = system.objective, Tokenizer.load(self.inputs[0]).vocab_size
        if not isinstance(objective, CausalLM):
            raise UsageError(
                f"{type(objective).__name__} is not a left-to-right language model; use a cell of a language "
                "model, such as recipe=recurrent/lstm or transformer/gpt"
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
        reached = np.flatnonzero(mean[1:]) + 1  # the gradient norm is 0 outside the model's window
        if len(reached) < 3:
            raise UsageError(
                f"{type(objective.model).__name__} sees {len(reached)} words before the last input word; "
                "use a model that sees at least 3 earlier words"
            )
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
    """Compute ‖∂ loss of the last token / ∂ embedding of the input at distance k‖ per window.

    Distance 0 is the input from which the last token is predicted.

    Args:
        windows: token ids, (B, T + 1).
        distances: the largest distance, K.
    Returns: norms, float64 (B, K + 1).
    Raises: UsageError: the model has no layer of word vectors.
    """
    if (embedding := objective.model.input_embedding) is None:
        raise UsageError(
            f"{type(objective.model).__name__} has no layer of word vectors; use a cell of recipe=recurrent/lstm"
        )
    leaves: list[Tensor] = []

    def cut(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    hook = embedding.register_forward_hook(cut)
    try:
        with torch.backends.cudnn.flags(enabled=False):  # cuDNN's recurrent layers have no backward pass in eval mode
            log_probs, _ = objective.next_log_prob(windows[:, :-1], None)
    finally:
        hook.remove()
    nats = -log_probs.gather(1, windows[:, -1:]).sum()  # the losses may be summed, because the windows are independent
    (slopes,) = torch.autograd.grad(nats, leaves)
    # The norm needs float64, because squares of vanished gradients would underflow in float32.
    return slopes.double().norm(dim=2).flip(1)[:, : distances + 1].cpu().numpy()


def total_norms(objective: CausalLM, batches: list[TokenBatch]) -> np.ndarray:
    """Compute each batch's gradient norm with respect to all weights, (batches,).

    Recurrent state is carried from batch to batch, as in training. Dropout is off, so that its noise does not affect
    the norms.

    Args:
        batches: batches in the order of the stream.
    """
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
