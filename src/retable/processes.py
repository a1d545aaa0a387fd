"""Work that the processes of a group share, such as a distributed strategy has started: all of them must come by here
alike. Without a group one process does all."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed

Piece = TypeVar("Piece")
Found = TypeVar("Found")


def place() -> tuple[int, int]:
    """The rank of this process, and the number of all."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def gathered(mine: Found) -> list[Found]:
    """What each process has, by its rank."""
    _, world = place()
    found = [mine] * world
    if world > 1:
        torch.distributed.all_gather_object(found, mine)
    return found


def shared(find: Callable[[Piece], Found], pieces: Sequence[Piece]) -> list[Found]:
    """What `find` gives of each piece, in their order. Each process finds that of every so many-th; all get all."""
    rank, world = place()
    found: list[Any] = [None] * len(pieces)
    for each, of_process in enumerate(gathered([find(piece) for piece in pieces[rank::world]])):
        found[each::world] = of_process
    return found
