"""Data sets that corpora, tasks and benchmarks read: the files of `conf/data/`.

`retable fetch` fetches and checks these data sets, and docs/howto/data.md lists them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from annotated_types import MinLen
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pipelines.config.project import STUDIES, STUDY, folder_of, study_names
from pipelines.study.compose import composing, conf, study_here
from pipelines.study.dvc_project import DATA, data_of
from retable.core.errors import UsageError
from retable.planning.conf import strings

READERS = ("corpus", "task", "benchmark")  # config groups whose choices read data sets
_ADDRESS = re.compile(
    r"((?P<kind>zip|tar|gzip)://(?P<member>.*)::)?"
    r"(?P<url>https?://\S+|hf://(datasets/)?[\w.-]+/[\w.-]+@[0-9a-f]{40}/\S+)"
)
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class Address(NamedTuple):
    """An address of a file.

    kind: the format of the archive that contains the file: zip, tar or gzip; None without an archive.
    member: the file's path in the archive; "" for gzip.
    url: the address of the archive or, without an archive, of the file.
    """

    kind: str | None
    member: str
    url: str

    @property
    def archive(self) -> str:
        """The name of the archive, which is a key of `DataSet.archives`."""
        return PurePosixPath(self.url).name


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError(
            f"{text!r} is not an address; write https://…, hf://datasets/OWNER/NAME@COMMIT/FILE with 40 digits of the "
            "commit, or zip://MEMBER::https://… (tar and gzip likewise)"
        )
    return text


def _path(text: str) -> str:
    if text != str(PurePosixPath(text)) or text.startswith("/") or {"..", "."} & {*text.split("/")} or "\\" in text:
        raise ValueError(f"{text!r} is not a path in the data folder; write plain names, as in ptb/ptb.train.txt")
    return text


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Sha256 = Annotated[list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]], BeforeValidator(_listed)]
Addresses = list[Annotated[str, AfterValidator(_address)]]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(_Entry):
    """The sha256 and the size in bytes of a file or an archive, as far as they are known.

    `sha256` is a list if several editions of a file are in use.
    """

    sha256: Sha256 = []
    size: int | None = None


class File(Known):
    """A file of a data set; `addresses` replaces the addresses of the data set."""

    addresses: Addresses | None = None


class DataSet(_Entry):
    """A file of `conf/data/`.

    Attributes:
        home: the page of the data set.
        terms: `agreement` if users must accept terms before they get the files. Such files are checked, never fetched.
        note: how to make the files, if no address has them.
        folder: the folder of the files, in the data folder.
        addresses: addresses of each file. {name} is replaced by the file's name, {path} by its path in `folder`.
        archives: sha256 and size of archives, by the last part of their URLs.
        listed: the files, by their paths in `folder`; {1..3} in a path stands for the numbers 1 to 3. A path with `*`
            is a pattern that at least one file must match; such files are not fetched.
    """

    title: str
    home: str
    licence: str
    citation: str
    terms: Literal["open", "agreement"] = "open"
    note: str = ""
    folder: Annotated[str, AfterValidator(_path)]
    addresses: Addresses = []
    archives: dict[str, Known] = {}
    listed: Annotated[dict[Annotated[str, AfterValidator(_path)], File], MinLen(1)] = Field(alias="files")

    @model_validator(mode="after")
    def _fetchable_or_explained(self) -> "DataSet":
        fetchable = self.addresses or any(file.addresses for file in self.listed.values())
        if self.terms == "agreement" and fetchable:
            raise ValueError("addresses: files with terms: agreement are never fetched; remove the addresses")
        if not fetchable and not self.note:
            raise ValueError("note: without addresses, write how to make the files")
        if "*" in "".join(path for path, file in self.listed.items() if file != File()):
            raise ValueError("files: a pattern with * has no sha256, size or addresses; list its files")
        inside = [each for path in self.files for each in self.addresses_of(path) if each.kind]
        if twice := next((each for each, count in Counter(inside).items() if count > 1), None):
            raise ValueError(f"addresses: two files are the same member of {twice.url}; write {{name}} in the member")
        if unused := self.archives.keys() - {each.archive for each in inside}:
            raise ValueError(f"archives: no address has {min(unused)}; write the last part of a URL of the addresses")
        return self

    @cached_property
    def files(self) -> Mapping[str, File]:
        """Return the files by their paths in the data folder."""
        return {f"{self.folder}/{path}": file for each, file in self.listed.items() for path in _numbered(each)}

    def addresses_of(self, path: str) -> list[Address]:
        """Return the addresses of a file, whose path is a key of `files`."""
        own = self.files[path].addresses
        values = {"{path}": path.removeprefix(f"{self.folder}/"), "{name}": PurePosixPath(path).name}
        addresses = []
        for text in self.addresses if own is None else own:
            match = _ADDRESS.fullmatch(text)
            assert match is not None
            member, url = match["member"] or "", match["url"]
            for name, value in values.items():
                member = member.replace(name, value)
                url = url.replace(name, quote(value) if url.startswith("http") else value)
            addresses.append(Address(match["kind"], "" if match["kind"] == "gzip" else member, url))
        return addresses


def _numbered(path: str) -> Iterator[str]:
    """Yield the paths that a path with {first..last} stands for; numbers have as many digits as `first`."""
    if not (match := _RANGE.search(path)):
        yield path
        return
    for number in range(int(match[1]), int(match[2]) + 1):
        yield path.replace(match[0], str(number).zfill(len(match[1])))


def data_set(name: str) -> DataSet:
    """Read a data set from `conf/data/`; raise UsageError for a mistake in its file."""
    content = {key: value for key, value in conf().read("data", name).items() if key != "choices"}
    try:
        return DataSet.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"] if step != "[key]")
        message = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"conf/data/{name}.yaml{place and f', {place}'}: {message}") from None


def data_sets() -> dict[str, DataSet]:
    """Read all data sets, by name."""
    return {name: data_set(name) for name in conf().names("data")}


def sets_at(paths: Iterable[str], readers: Iterable[str], known: Mapping[str, DataSet]) -> list[str]:
    """Return the names of the data sets with files at `paths`, sorted.

    If several data sets have files in the same folder, a data set that is called like a reader is preferred, such as
    `babylm_10m` for corpus `babylm_10m`.

    Args:
        paths: files and folders of the data folder, as in data/ptb/ptb.train.txt.
        readers: names of the corpora, tasks and benchmarks that read the paths.
        known: all data sets.
    """
    found, named = set[str](), {*readers}
    for path in paths:
        place = path.removeprefix("data/")
        here = {name for name, each in known.items()
                if any(file == place or file.startswith(f"{place}/") for file in each.files)}  # fmt: skip
        found |= here & named or here
    return sorted(found)


def paths_of(group: str, name: str) -> list[str]:
    """Return the files and folders of the data folder that a corpus, task or benchmark reads, as in data/ptb."""
    own = conf().read(group, name)
    parts = [own, *(conf().read("task", task) for task in own.get("tasks", ()) if group == "corpus")]
    # Interpolations are replaced in the text: composing the configurations of all corpora would take seconds.
    values = {f"${{corpus.{key}}}": str(value) for key, value in own.items() if isinstance(value, str)}
    texts = [text for part in parts for text in strings(part)]
    for key, value in values.items():
        texts = [text.replace(key, value) for text in texts]
    paths = [text.replace(DATA, "data") for text in dict.fromkeys(texts) if text.startswith(f"{DATA}/")]
    parents = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return [path for path in paths if path not in parents]


def sets_of_study(study: str, known: Mapping[str, DataSet]) -> tuple[list[str], list[str]]:
    """Return the names of the data sets that a study reads, and paths of the data folder that no data set has.

    Raises: UsageError: the study does not exist.
    """
    folder = STUDIES / study if study in study_names() else folder_of(study)
    sets, others = set[str](), set[str]()
    with chdir(folder if (folder / STUDY).exists() else folder.parent):
        cells = study_here().cells.values()
        with composing():
            for cell in cells:
                paths = [path for path in data_of(cell) if path.startswith("data/")]
                readers = [cell.corpus, *(name for group in READERS[1:] for name in cell.choices(group))]
                sets.update(sets_at(paths, readers, known))
                others.update(path for path in paths if not sets_at([path], (), known))
    return sorted(sets), sorted(others)
