"""Replacements of methods of Hydra and DVC, where the libraries have no hooks.

`tests/pipelines/test_patches.py` fails when the libraries change.
"""

import re
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType

from retable.core.publishing import atomic_write


def hydra_looks_into_folders() -> None:
    """Make Hydra's help and completion list a group's files in subfolders, such as recipe=recurrent/lstm.

    Files whose names begin with `_` are not listed, since they only serve as bases of other files. A subfolder is not
    listed as a group.
    """
    own = ConfigLoaderImpl.get_group_options

    def get_group_options(
        loader: Any, group_name: str, results_filter: Any = ObjectType.CONFIG, **of: Any
    ) -> list[str]:
        if not group_name or group_name.startswith("hydra"):
            return own(loader, group_name, results_filter, **of)
        if results_filter == ObjectType.GROUP:
            return []
        folders = own(loader, group_name, ObjectType.GROUP, **of)
        inner = [f"{folder}/{name}" for folder in folders for name in own(loader, f"{group_name}/{folder}", **of)]
        return own(loader, group_name, **of) + [name for name in inner if "/_" not in name]

    ConfigLoaderImpl.get_group_options = get_group_options  # type: ignore[assignment, method-assign]


def dvc_writes_whole() -> None:
    """Make DVC write its files atomically.

    Without the patch, DVC takes seconds to write a long `dvc.lock`. A kill meanwhile leaves an incomplete file, which
    DVC cannot read.
    """
    from dvc_objects.fs.local import FsspecLocalFileSystem

    def open_(self: Any, path: str, mode: str = "r", encoding: str | None = None, **_: Any) -> Any:
        return atomic_write(path) if mode in ("w", "w+") else open(path, mode, encoding=encoding)

    FsspecLocalFileSystem.open = open_  # type: ignore[method-assign]


def dvc_writes_only_what_is_new() -> None:
    """Make DVC replace only the entry of the finished stage in `dvc.lock`.

    The resulting file is identical to the file that DVC writes without the patch.
    Without the patch, DVC parses and dumps the whole file for each stage, which takes 7 s with 1,000 cells.
    """
    from dvc.dvcfile import Lockfile
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dumps_yaml

    theirs = Lockfile.dump_stages

    def dump_stages(self: Any, stages: Any, **kwargs: Any) -> None:
        text = Path(self.path).read_text(encoding="utf-8") if self.exists() else ""
        new = text
        for stage in stages:
            head, _, notes = dumps_yaml({"stages": to_lockfile(stage, **kwargs)}).partition("\n")
            new = _in_place(new, f"{head}\n", notes)
        if not new:  # the file is missing or in another format
            theirs(self, stages, **kwargs)
        elif new != text:
            with atomic_write(self.path) as file:
                file.write(new)
            self.repo.scm_context.track_file(self.relpath)

    Lockfile.dump_stages = dump_stages


def _in_place(text: str, head: str, notes: str) -> str:
    """Return `text` with a stage's entry replaced, or appended if the stage is new.

    Returns "" unless `text` ends with the line `head` followed only by indented lines.
    """
    _, separator, stages = text.rpartition(f"\n{head}")
    if not separator or re.search(r"^(?! {2})", stages.removesuffix("\n"), re.MULTILINE):
        return ""
    name = notes[: notes.index("\n") + 1]
    begin = f"\n{stages}".find(f"\n{name}")
    if begin < 0:
        return text + notes
    next_key = re.compile(r"^ {2}(?![ :])", re.MULTILINE).search(stages, begin + len(name))
    end = next_key.start() if next_key else len(stages)
    before = text[: len(text) - len(stages)]
    return before + stages[:begin] + notes + stages[end:]
