"""What a training leaves to go on from: the last checkpoint and the one before it, and the best weights so far.

A checkpoint ends with its own sha256: it is a zip archive, as torch writes it, and the digest is the archive's comment.
"""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_only

from retable.core.digests import digest
from retable.core.errors import UsageError

_LENGTH = 64  # of a sha256 in hexadecimal


def keep(written: Path, last: Path) -> None:
    """Give `written` its digest and make it the `last`; what was that is now the one before.

    A kill in between leaves the one before alone, from which training goes on to the same bytes.
    """
    with written.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(_LENGTH.to_bytes(2, "little"))  # that of the comment, which was none
    with written.open("ab") as file:
        file.write(_digest(np.memmap(written, np.uint8, "r")))
    if last.exists():
        os.replace(last, before(last))
    os.replace(written, last)


def latest(last: Path) -> Path | None:
    """The last checkpoint that is whole; None to begin anew. Which ones are damaged is said on standard error, and they
    are removed, lest one becomes the one before."""
    there = [path for path in (last, before(last)) if path.exists()]
    found = next(filter(_is_whole, there), None)
    damaged = there[: there.index(found)] if found else there
    if damaged:
        _give_up(damaged, f"training goes on from {found.name}" if found else "training begins anew")
    return found


@rank_zero_only
def _give_up(damaged: list[Path], then: str) -> None:
    names = " and ".join(map(str, damaged))
    print(f"{names} {'is' if len(damaged) == 1 else 'are'} damaged; {then}", file=sys.stderr)
    for path in damaged:
        path.unlink()


def before(last: Path) -> Path:
    """Where the checkpoint before the last is."""
    return last.with_name("previous.ckpt")


def keep_weights(written: Path, best: Path) -> None:
    """Make `written` the best weights so far, with its digest beside it."""
    beside, digests = best.with_suffix(".sha256"), [digest(written)]
    if beside.exists():  # a kill may leave the weights of before, and the next ones, too
        digests += [each for each in beside.read_text().split() if each != digests[0]]
    begun = beside.with_suffix(".begun")
    begun.write_text("\n".join(digests))
    os.replace(begun, beside)
    os.replace(written, best)


def require_weights(best: Path) -> Path:
    """The best weights, if they are those that were kept. UsageError else."""
    beside = best.with_suffix(".sha256")
    kept = beside.read_bytes().split() if beside.exists() else []
    if not best.exists() or digest(best).encode() not in kept:
        raise UsageError(f"{best} is damaged; remove {best.parent} to train from the start")
    return best


def _is_whole(path: Path) -> bool:
    try:
        content = np.memmap(path, np.uint8, "r")
    except (ValueError, OSError):  # empty, or just removed by the first process, which found it damaged
        return False
    return content[-_LENGTH:].tobytes() == _digest(content[:-_LENGTH])


def _digest(content: np.ndarray) -> bytes:
    return hashlib.sha256(content.data).hexdigest().encode()
