"""A linear-chain conditional random field over tag sequences (Lafferty, McCallum and Pereira 2001; on a neural network
as in Lample et al. 2016, arXiv 1603.01360, section 2.2).

The score of a sequence is start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_{t−1}, y_t] + end[y_T], and its
probability the softmax of the score over all sequences. What a scheme of tags forbids is no sequence of the model's:
it has probability 0 in training and in decoding alike.

B batch, T time, K tags.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.nn.bidirectional_lstm import mirrored, taken

Scheme = Literal["IOB1", "IOB2", "IOBES"]

# Added to what is forbidden: exp() of it is 0, and unlike −∞ it leaves no NaN behind where a tag can't be reached.
FORBIDDEN = -1e4
LEAST = -300.0  # what a forbidden step costs the sum over all sequences: 1e-130 of it


class CRF(nn.Module):
    """All scores start at 0, where the CRF is an independent softmax at each position.

    allowed: (K + 1, K + 1), True where a tag may follow another, as `allowed_transitions` makes it: the last row says
        which tags may begin a sequence, the last column which may end one. None allows all.
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
        """(B,): log p(tags) of each row. emissions (B, T, K); tags (B, T), whatever stands behind a row's length."""
        return self._score(emissions, tags, lengths) - self.log_partition(emissions, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, K) to (B,): the log of Σ exp(score) over all sequences of a row's length."""
        log_partition: Tensor = _LogPartition.apply(*self._scores(), emissions, lengths)
        return log_partition

    @torch.no_grad()
    def best(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, K) to the tags (B, T) of the highest score, 0 behind a row's length; the Viterbi algorithm."""
        start, transition, end = self._scores()
        emissions = emissions.float()
        T, stay = emissions.shape[1], torch.arange(len(start), device=emissions.device)
        delta = start + emissions[:, 0]  # (B, K): the highest score of the beginnings that end in a tag
        before = []  # for each t from 1 on the best tag at t − 1 of each tag at t; on padding the tag itself
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
        """(B,): the score of `tags` (B, T)."""
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
    """The forward-backward algorithm (Rabiner 1989, section III), whose probabilities are the gradient.

    Autograd through the forward algorithm alone keeps (B, K, K) numbers a step, and takes 2.3 to 3.8 times as long
    (benchmarks/tagging.md). Here both recursions are one loop of products with exp(transition): the backward one is the
    forward one of the mirrored rows. Their states are scaled at every step to a sum of 1, in fp64, where the square of
    exp(LEAST) is not 0: so no sum is, even where every sequence is forbidden.
    """

    @staticmethod
    def forward(ctx: Any, start: Tensor, transition: Tensor, end: Tensor, emissions: Tensor, lengths: Tensor) -> Tensor:
        first, move, final = (scores.double().clamp(min=LEAST).exp() for scores in (start, transition, end))
        T, last = emissions.shape[1], lengths[:, None] - 1
        inside = torch.arange(T, device=emissions.device) <= last
        mirror = mirrored(lengths, T)
        largest = emissions.double().amax(dim=2, keepdim=True)
        emitted = (emissions - largest).exp()  # (B, T, K)
        state = torch.stack([first, final])[:, None].expand(2, len(emissions), -1)  # of the rows and the mirrored ones
        moves = torch.stack([move, move.T])
        sums, before, after = [], [], []  # of the states, and the states before and after a place's emission
        for emits in torch.stack([emitted, taken(emitted, mirror)]).unbind(2):
            sums.append(state.sum(dim=2, keepdim=True))
            before.append(state / sums[-1])
            after.append(before[-1] * emits)
            state = after[-1] @ moves
        scale = torch.stack(sums, dim=2)[0]  # (B, T, 1)
        (forth, back), (forth_after, back_after) = torch.stack(before, dim=2), torch.stack(after, dim=2)  # (B, T, K)
        back, back_after = taken(back, mirror), taken(back_after, mirror)
        meet = (forth * back_after).sum(dim=2, keepdim=True) / inside[:, :, None]  # infinite on padding
        ctx.save_for_backward(
            forth_after * back / meet,  # the probability of each tag, (B, T, K)
            forth_after[:, :-1] / (scale * meet)[:, 1:],  # of two in a row, (B, T − 1, K, K), it is this,
            back_after[:, 1:],  # this
            move,  # and this
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
    """(K + 1, K + 1) bool: which of `tags` may follow which where chunks are written in `scheme`.

    Beyond a sequence's ends, the last row and column, it is as if O stood there. UsageError for another scheme's tag.
    """
    if scheme not in get_args(Scheme):
        raise UsageError(f"there is no scheme={scheme}; write one of {', '.join(get_args(Scheme))}")
    letters = "OBIES" if scheme == "IOBES" else "OBI"
    for tag in tags:
        if not (tag == "O" or (tag[:1] in tuple(letters[1:]) and tag[1:2] in ("", "-"))):
            raise UsageError(f"{tag!r} is no tag of scheme={scheme}; its tags are O and, with a type, {letters[1:]}")
    ends = [*tags, "O"]
    return torch.tensor([[_may_follow(before, tag, scheme) for tag in ends] for before in ends])


def _may_follow(before: str, tag: str, scheme: Scheme) -> bool:
    last, _, last_kind = before.partition("-")
    letter, _, kind = tag.partition("-")
    same = last_kind == kind
    if scheme == "IOB1":  # B only parts a chunk from one of the same type
        return letter != "B" or (last in ("B", "I") and same)
    if scheme == "IOB2":
        return letter != "I" or (last in ("B", "I") and same)
    is_open = last in ("B", "I")
    return is_open == (letter in ("I", "E")) and (same or not is_open)
