"""Load texts from the Hugging Face hub."""

from collections.abc import Sequence

from retable.core.errors import UsageError

HUB = "hub:"  # prefix of a data set's name, in settings that also accept a file or folder


def hub_texts(name: str, split: str) -> Sequence[str]:
    """Load the column `text` from one split of the data set `owner/name` or `owner/name/configuration`.

    Raises: UsageError: the extra `hub` is not installed, or loading fails.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise UsageError(f"{HUB}{name} needs the extra hub: pip install -e '.[hub]'") from None
    if "/" not in name:
        raise UsageError(f"{HUB}{name} has no owner; write {HUB}OWNER/{name}")
    owner, data_set, *configuration = name.split("/")
    try:
        return load_dataset(f"{owner}/{data_set}", *configuration, split=split)["text"]
    except Exception as error:  # the hub, the network and missing columns raise many types of exceptions
        raise UsageError(f"cannot read {HUB}{name}: {error}") from None
