"""A linear-chain conditional random field over tag sequences (Lafferty, McCallum and Pereira 2001; on a neural network
as in Lample et al. 2016, arXiv 1603.01360, section 2.2).

The score of a sequence is start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_{t−1}, y_t] + end[y_T], and its
probability the softmax of the score over all sequences. What a scheme of tags forbids is no sequence of the model's:
it has probability 0 in training and in decoding alike.

B batch, T time, K tags.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from retable.errors import UsageError

Scheme = Literal["IOB1", "IOB2", "IOBES"]

# Added to what is forbidden: exp() of it is 0, and unlike −∞ it leaves no NaN behind where a tag can't be reached.
FORBIDDEN = -1e4


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
        """(B, T, K) to (B,): the log of Σ exp(score) over all sequences of a row's length; the forward algorithm."""
        start, transition, end = self._scores()
        emissions = emissions.float()
        alpha = start + emissions[:, 0]  # (B, K): the log of Σ exp(score) of the beginnings that end in a tag
        for t in range(1, emissions.shape[1]):
            extended = torch.logsumexp(alpha[:, :, None] + transition, dim=1) + emissions[:, t]
            alpha = torch.where(t < lengths[:, None], extended, alpha)
        return torch.logsumexp(alpha + end, dim=1)

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
