"""A linear-chain conditional random field over tag sequences.

Lafferty, McCallum and Pereira 2001. The scores come from a neural network, as in Lample et al. 2016, arXiv 1603.01360,
section 2.2. The score of a sequence is start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_{t−1}, y_t] + end[y_T]. The
probability of a sequence is the softmax of the score over all sequences. Sequences that the tag scheme forbids have
probability 0, in training and in decoding.

B batch, T time, K tags.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.nn.bidirectional_lstm import mirrored, taken

Scheme = Literal["IOB1", "IOB2", "IOBES"]

FORBIDDEN = -1e4  # score of a forbidden transition: exp(−1e4) is 0, and unlike −∞ it causes no NaN for unreachable tags
LEAST = -300.0  # lowest score in sums over all sequences; the weight of a forbidden transition is then 1e-130


class CRF(nn.Module):
    """A CRF over tags. Initial transition scores are 0, which means a separate softmax at each position.

    allowed: a mask (K + 1, K + 1) from `allowed_transitions`, which is True where the column's tag may follow the row's
    tag. The last row is True for tags that may begin a sequence, the last column for tags that may end one. If
    `allowed` is None, all transitions are allowed.
    """

    _penalty: Tensor

    def __init__(self, n_tags: int, allowed: Tensor | None = None):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(n_tags))
        self.transition = nn.Parameter(torch.zeros(n_tags, n_tags))
        self.end = nn.Parameter(torch.zeros(n_tags))
        penalty = torch.zeros(n_tags + 1, n_tags + 1)
        self.register_buffer(
            "_penalty", penalty if allowed is None else penalty.masked_fill(~allowed, FORBIDDEN), persistent=False
        )

    def log_likelihood(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute log p(tags) of each row, (B,), in nats.

        emissions (B, T, K) are scores. tags (B, T) after a row's length are ignored.

        Args:
            lengths: number of words per row, (B,).
        """
        return self._score(emissions, tags, lengths) - self.log_partition(emissions, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Compute log Σ exp(score), (B,), over all tag sequences as long as the row, for emissions (B, T, K).

        Args:
            lengths: number of words per row, (B,).
        """
        log_partition: Tensor = _LogPartition.apply(*self._scores(), emissions, lengths)
        return log_partition

    @torch.no_grad()
    def best(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """Find the tag sequences (B, T) with the highest scores, by the Viterbi algorithm. Padding gets the tag 0.

        Args:
            emissions: scores of the K tags at each word, (B, T, K).
            lengths: number of words per row, (B,).
        """
        start, transition, end = self._scores()
        emissions = emissions.float()
        T, stay = emissions.shape[1], torch.arange(len(start), device=emissions.device)
        delta = start + emissions[:, 0]  # (B, K): for each last tag, the highest score of the tags so far
        before = []  # for each t from 1 on: for each tag at t, the best tag at t − 1; on padding, the tag itself
        for t in range(1, T):
            inside = t < lengths[:, None]
            highest, tag = (delta[:, :, None] + transition).max(dim=1)
            delta = torch.where(inside, highest + emissions[:, t], delta)
            before.append(torch.where(inside, tag, stay))
        tag = (delta + end).argmax(dim=1, keepdim=True)  # (B, 1)
        path = [tag]
        for back in reversed(before):
            tag = back.gather(1, tag)
            path.append(tag)
        tags = torch.cat(path[::-1], dim=1)
        return tags.masked_fill(torch.arange(T, device=tags.device) >= lengths[:, None], 0)

    def _score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Compute the scores (B,) of the tag sequences `tags` (B, T)."""
        start, transition, end = self._scores()
        inside = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
        emitted = emissions.float().gather(2, tags[:, :, None])[:, :, 0] * inside
        moved = transition[tags[:, :-1], tags[:, 1:]] * inside[:, 1:]
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]
        return start[tags[:, 0]] + emitted.sum(1) + moved.sum(1) + end[last]

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        penalty = self._penalty
        return self.start + penalty[-1, :-1], self.transition + penalty[:-1, :-1], self.end + penalty[:-1, -1]


class _LogPartition(torch.autograd.Function):
    """The forward-backward algorithm (Rabiner 1989, section III) for the log-partition and its gradient.

    The gradient consists of probabilities that the algorithm computes. Automatic differentiation of the forward
    algorithm would store (B, K, K) numbers per step, and take 2.3 to 3.8 times as long (benchmarks/tagging.md). Here
    one loop computes both recursions: the backward recursion is the forward recursion on mirrored rows. States are
    scaled to a sum of 1 at every step, in fp64, where the square of exp(LEAST) is not 0. Therefore no sum is 0, even if
    all tag sequences are forbidden.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, transition: Tensor, end: Tensor, emissions: Tensor, lengths: Tensor) -> Tensor:
        first, move, final = (scores.double().clamp(min=LEAST).exp() for scores in (start, transition, end))
        T, last = emissions.shape[1], lengths[:, None] - 1
        inside = torch.arange(T, device=emissions.device) <= last
        mirror = mirrored(lengths, T)
        largest = emissions.double().amax(dim=2, keepdim=True)
        emitted = (emissions - largest).exp()  # (B, T, K)
        state = torch.stack([first, final])[:, None].expand(2, len(emissions), -1)  # for rows and for mirrored rows
        moves = torch.stack([move, move.T])
        sums, before, after = [], [], []  # per position: sum of the states; states before and after the emission
        for emits in torch.stack([emitted, taken(emitted, mirror)]).unbind(2):
            sums.append(state.sum(dim=2, keepdim=True))
            before.append(state / sums[-1])
            after.append(before[-1] * emits)
            state = after[-1] @ moves
        scale = torch.stack(sums, dim=2)[0]  # (B, T, 1)
        (forth, back), (forth_after, back_after) = torch.stack(before, dim=2), torch.stack(after, dim=2)  # (B, T, K)
        back, back_after = taken(back, mirror), taken(back_after, mirror)
        meet = (forth * back_after).sum(dim=2, keepdim=True) / inside[:, :, None]  # +∞ on padding
        ctx.save_for_backward(
            forth_after * back / meet,  # the probability of each tag, (B, T, K)
            # The next three tensors are factors of the probability of two neighbouring tags, (B, T − 1, K, K).
            forth_after[:, :-1] / (scale * meet)[:, 1:],
            back_after[:, 1:],
            move,
            last,
        )
        ctx.dtypes = start.dtype, emissions.dtype
        nats = ((scale.log() + largest)[:, :, 0] * inside).sum(dim=1) + (taken(forth_after, last)[:, 0] @ final).log()
        return nats.to(torch.promote_types(emissions.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tag, before, after, move, last = ctx.saved_tensors
        weight = gradients[0].double()[:, None, None]
        of_emissions = weight * tag
        of_transition = move * ((weight * before).flatten(0, 1).mT @ after.flatten(0, 1))
        of_end = taken(of_emissions, last)[:, 0].sum(dim=0)
        of_scores = (each.to(ctx.dtypes[0]) for each in (of_emissions[:, 0].sum(dim=0), of_transition, of_end))
        return *of_scores, of_emissions.to(ctx.dtypes[1]), None


def allowed_transitions(tags: Sequence[str], scheme: Scheme) -> Tensor:
    """Return a bool matrix (K + 1, K + 1): whether `scheme` allows the column's tag after the row's tag.

    The last row is the start of a sequence, and the last column is the end of a sequence. The start and the end are
    treated like the tag O.

    Raises: UsageError: the scheme is unknown, or a tag does not belong to it.
    """
    if scheme not in get_args(Scheme):
        raise UsageError(f"unknown scheme={scheme}; write one of {', '.join(get_args(Scheme))}")
    letters = "OBIES" if scheme == "IOBES" else "OBI"
    for tag in tags:
        if not (tag == "O" or (tag[:1] in tuple(letters[1:]) and tag[1:2] in ("", "-"))):
            raise UsageError(
                f"{tag!r} is not a tag of scheme={scheme}; use O, or one of the letters {letters[1:]} with a type"
            )
    ends = [*tags, "O"]
    return torch.tensor([[_may_follow(before, tag, scheme) for tag in ends] for before in ends])


def _may_follow(before: str, tag: str, scheme: Scheme) -> bool:
    last, _, last_kind = before.partition("-")
    letter, _, kind = tag.partition("-")
    same = last_kind == kind
    if scheme == "IOB1":  # the letter B only separates neighbouring chunks of one type
        return letter != "B" or (last in ("B", "I") and same)
    if scheme == "IOB2":
        return letter != "I" or (last in ("B", "I") and same)
    is_open = last in ("B", "I")
    return is_open == (letter in ("I", "E")) and (same or not is_open)
