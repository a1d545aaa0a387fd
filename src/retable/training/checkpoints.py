"""Checkpoints of a training: the last checkpoint, the checkpoint before it, and the best weights so far.

A checkpoint is a zip archive, written by torch. The archive's comment, at its end, is the sha256 digest of the rest.
"""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_only

from retable.core.digests import digest
from retable.core.errors import UsageError

_LENGTH = 64  # number of hexadecimal digits of a sha256 digest


def keep(written: Path, last: Path) -> None:
    """Append a digest to the file `written`, rename `last` to `before(last)`, and then `written` to `last`.

    If the process is killed between the two renames, only `before(last)` exists. A training that resumes from this
    older checkpoint ends with the same weights, byte for byte.
    """
    with written.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(_LENGTH.to_bytes(2, "little"))  # write the length of the archive's comment, which was 0 before
    with written.open("ab") as file:
        file.write(_digest(np.memmap(written, np.uint8, "r")))
    if last.exists():
        os.replace(last, before(last))
    os.replace(written, last)


def latest(last: Path) -> Path | None:
    """Return the last undamaged checkpoint, or None, which means to start training again.

    Damaged checkpoints are reported on stderr and removed.
    """
    existing = [path for path in (last, before(last)) if path.exists()]
    whole = next(filter(_is_whole, existing), None)
    damaged = existing[: existing.index(whole)] if whole else existing
    if damaged:
        _give_up(damaged, f"training resumes from {whole.name}" if whole else "training starts again")
    return whole


@rank_zero_only
def _give_up(damaged: list[Path], then: str) -> None:
    names = " and ".join(map(str, damaged))
    print(f"{names} {'is' if len(damaged) == 1 else 'are'} damaged; {then}", file=sys.stderr)
    for path in damaged:
        path.unlink()


def before(last: Path) -> Path:
    """Return the path of the last checkpoint but one."""
    return last.with_name("previous.ckpt")


def keep_weights(written: Path, best: Path) -> None:
    """Rename the file `written` to `best`, the best weights so far, and store the digest in a file next to `best`."""
    digest_file, digests = best.with_suffix(".sha256"), [digest(written)]
    if digest_file.exists():  # keep old digests: the old weights remain if the process is killed too early
        digests += [each for each in digest_file.read_text().split() if each != digests[0]]
    begun = digest_file.with_suffix(".begun")
    begun.write_text("\n".join(digests))
    os.replace(begun, digest_file)
    os.replace(written, best)


def require_weights(best: Path) -> Path:
    """Return `best` if its digest is correct, otherwise raise UsageError."""
    digest_file = best.with_suffix(".sha256")
    kept = digest_file.read_bytes().split() if digest_file.exists() else []
    if not best.exists() or digest(best).encode() not in kept:
        raise UsageError(f"{best} is damaged; remove {best.parent} to train from the start")
    return best


def _is_whole(path: Path) -> bool:
    try:
        content = np.memmap(path, np.uint8, "r")
    except (ValueError, OSError):  # the file is empty, or damaged and already removed by the first process
        return False
    return content[-_LENGTH:].tobytes() == _digest(content[:-_LENGTH])


def _digest(content: np.ndarray) -> bytes:
    return hashlib.sha256(content.data).hexdigest().encode()
