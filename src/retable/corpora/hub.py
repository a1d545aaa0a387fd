"""Texts from the Hugging Face hub."""

from collections.abc import Sequence

from retable.core.errors import UsageError

HUB = "hub:"  # before the name of a data set, where a file or folder could stand


def hub_texts(name: str, split: str) -> Sequence[str]:
    """The column `text` of a split of the data set `owner/name`, or of its configuration `owner/name/configuration`.

    Raises UsageError where the extra `hub` is not installed, or the hub does not give them.
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
    except Exception as error:  # whatever the hub, the network or another data set's columns raise
        raise UsageError(f"{HUB}{name} can't be read: {error}") from None
