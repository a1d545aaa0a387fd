"""Checkpoints of the Hugging Face hub: their names, and their files in the hub's cache on this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

from retable.core.errors import UsageError

CHECKPOINT = "hf:"  # prefix of the value of `init=` if it names a Hugging Face checkpoint and not a cell
# The path of a file in the cache. No name on the hub contains "--".
_CACHED = re.compile(r".*/models--(.+)/snapshots/([0-9a-f]{40})/(.+)")


def locate(name: str, files: Sequence[str]) -> tuple[str, Path]:
    """Return the name of a checkpoint and its folder, after downloading it if it is not a folder.

    The result's name of a checkpoint of the hub is OWNER/NAME@COMMIT, whatever the revision in `name` is. So the name
    always refers to the same files.

    Args:
        name: a folder; or OWNER/NAME or OWNER/NAME@REVISION on the hub. A revision is a commit, a tag or a branch;
            without it, the revision is the branch main.
        files: patterns of the names of files to download. A revision in the cache is not downloaded again.

    Raises: UsageError: the checkpoint does not exist, or cannot be downloaded.
    """
    if Path(name).is_dir():
        return name, Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RevisionNotFoundError

    repository, at, revision = name.partition("@")
    if at and not revision:
        raise UsageError(f"{name} has no revision after @; write {repository}@COMMIT, or {repository}")
    try:
        folder = Path(snapshot_download(repository, revision=revision or None, allow_patterns=[*files]))
    except RevisionNotFoundError:
        raise UsageError(
            f"{repository} has no revision {revision} on the hub; write a commit, tag or branch of "
            f"https://huggingface.co/{repository}/commits"
        ) from None
    except Exception as error:  # the hub, the network and invalid names raise many types of exceptions
        why = str(error).strip().splitlines()[0]
        raise UsageError(
            f"{name} is not a folder and cannot be downloaded from the hub ({why}); write the folder of a checkpoint "
            "or, with internet access, a name such as openai-community/gpt2 or openai-community/gpt2@REVISION"
        ) from None
    return f"{repository}@{folder.name}", folder


def recorded_name(path: Path) -> str:
    """Return the name of a file in records: its path, or `hf:OWNER/NAME@COMMIT/FILE` for a file in the hub's cache.

    The path of the cache differs between machines.
    """
    if (match := _CACHED.fullmatch(path.as_posix())) is None:
        return str(path)
    repository, commit, file = match.groups()
    return f"{CHECKPOINT}{repository.replace('--', '/')}@{commit}/{file}"
