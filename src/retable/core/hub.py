"""Find and download checkpoints of the Hugging Face hub."""

from collections.abc import Sequence
from pathlib import Path

from retable.core.errors import UsageError

CHECKPOINT = "hf:"  # prefix of the value of `init=` if it names a Hugging Face checkpoint and not a cell


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
            f"{repository} has no revision {revision or 'main'} on the hub; write a commit, tag or branch of "
            f"https://huggingface.co/{repository}/commits"
        ) from None
    except Exception as error:  # the hub, the network and invalid names raise many types of exceptions
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"{name} is not a folder and cannot be downloaded from the hub ({why}); write the folder of a checkpoint "
            "or, with internet access, a name such as openai-community/gpt2 or openai-community/gpt2@REVISION"
        ) from None
    return f"{repository}@{folder.name}", folder
