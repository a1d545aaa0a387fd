"""Fetch and check data sets: `retable fetch ptb`, `retable fetch --study glue`, `retable fetch --check`.

A file is verified if its sha256 is listed in `conf/data/`, or if it comes from an archive whose sha256 is listed.
Nothing is written outside the data folder, and no fetched file is executed.
"""

import contextlib
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from pipelines.cli.data_sets import Address, DataSet, Known, data_sets, sets_of_study
from pipelines.cli.download import Failure, download, is_on_this_machine, problem_of, unpack
from pipelines.config import environment
from pipelines.config.project import CHECKOUT
from retable.core.errors import UsageError, closest
from retable.core.escaping import in_one_line

PARTIAL = ".fetch"  # folder in the data folder for files that are not complete or not verified, by data set
_AT_ONCE = 8  # addresses that are checked at a time


def fetch(names: list[str], study: str | None, check: bool, details: bool, offline: bool, unverified: bool) -> int:
    """Fetch, check or list data sets.

    Args:
        names: names of data sets; [] for the data sets of `study` or, with `check` or `details`, for all.
        study: a study whose data sets are added to `names`.
        check: check the sha256 of files and, unless `offline`, that addresses answer; fetch nothing.
        details: list the data sets; fetch nothing.
        offline: use no network; files come only from a mirror on this machine.
        unverified: also fetch files without a known sha256.

    Returns: the exit code, 2 if a data set could not be fetched or has a wrong file; each failure is printed as a line.
    Raises: UsageError: a name is unknown, or nothing is named.
    """
    folder, known = data_folder(), data_sets()
    if wrong := next((name for name in names if name not in known), None):
        raise UsageError(f"no data set {wrong!r} in conf/data; {closest(wrong, known)}")
    chosen = dict.fromkeys(names)
    if study is not None:
        sets, others = sets_of_study(study, known)
        chosen |= dict.fromkeys(sets)
        for path in others:
            if not (folder / path.removeprefix("data/")).exists():
                print(f"{path} is in no data set of conf/data; put it there", file=sys.stderr)
        if not chosen:
            print(f"study {study} reads no data sets of conf/data")
            return 0
    if details:
        _list({name: known[name] for name in chosen or known}, folder, bool(chosen))
        return 0
    if not chosen and not check:
        raise UsageError("retable fetch needs a data set or a study; write `retable fetch --list` for all data sets")
    store = Store(folder, environment.mirror(), offline, unverified)
    failures = list[str]()
    for name in chosen or known:
        try:
            print(store.check(name, known[name], bool(chosen)) if check else store.fetch(name, known[name]), flush=True)
        except UsageError as error:
            failures += [f"{name}: {line}" for line in error.args]
        except OSError as error:  # such as a full disk
            failures.append(f"{name}: {error.filename or folder}: {error.strerror or error}")
    if check and not offline:
        failures += _unanswered({name: known[name] for name in chosen or known})
    for failure in failures:
        print(f"error: {in_one_line(failure)}", file=sys.stderr)
    return 2 if failures else 0


def data_folder() -> Path:
    """Return the data folder: `RETABLE_DATA`, or `data` in the checkout or, without a checkout, here."""
    if os.environ.get(environment.DATA):
        return environment.data()
    folder = (CHECKOUT or Path.cwd()) / "data"
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


@dataclass
class Store:
    """The data folder, and the places from which its files come.

    Attributes:
        folder: the data folder.
        mirror: a folder or address with the same paths as the data folder, which is tried first; None without a mirror.
        offline: use no network.
        unverified: also fetch files without a known sha256.
    """

    folder: Path
    mirror: str | None
    offline: bool
    unverified: bool

    def check(self, name: str, data: DataSet, required: bool) -> str:
        """Compare the files of a data set with their sha256, and return a line with the result.

        Raises: UsageError: a file has another sha256 or, if `required`, is missing.
        """
        missing, unknown, wrong = self._state(data)
        lines = self._lines(name, data, wrong)
        if missing and required:
            lines.append(f"{self.folder / missing[0]} is missing; {self._how(name, data)}")
        if lines:
            raise UsageError(*lines)
        if len(missing) == len(data.files):
            return f"{name}: not here"
        parts = [f"{len(data.files) - len(missing) - len(unknown)} of {len(data.files)} files verified"]
        parts += [f"{len(missing)} missing"] * bool(missing)
        parts += [f"{len(unknown)} without a known sha256"] * bool(unknown)
        return f"{name}: {', '.join(parts)}"

    def _lines(self, name: str, data: DataSet, wrong: Mapping[str, str]) -> list[str]:
        return [f"{self.folder / path} has sha256 {found}, but conf/data/{name}.yaml lists "
                f"{' or '.join(data.files[path].sha256)}; move the file away to fetch it again"
                for path, found in wrong.items()]  # fmt: skip

    def _how(self, name: str, data: DataSet) -> str:
        """Return advice on how to get the files of a data set."""
        if data.terms == "agreement":
            return f"{data.note}; then put the files into {self.folder / data.folder} (see {data.home})"
        return f"fetch it: retable fetch {name}"

    def _state(self, data: DataSet) -> tuple[list[str], list[str], dict[str, str]]:
        """Return the missing files of a data set, those without a known sha256, and the sha256 of wrong files."""
        missing, unknown, wrong = list[str](), list[str](), dict[str, str]()
        for path, file in data.files.items():
            if not _exists(self.folder, path):
                missing.append(path)
            elif not file.sha256:
                unknown.append(path)
            elif (found := _digest(self.folder / path)) not in file.sha256:
                wrong[path] = found
        return missing, unknown, wrong

    def fetch(self, name: str, data: DataSet) -> str:
        """Fetch the missing files of a data set, and return a line with the result.

        Raises: UsageError: a file cannot be fetched, or an existing file has another sha256.
        """
        missing, unknown, wrong = self._state(data)
        if wrong and not data.archives:
            raise UsageError(*self._lines(name, data, wrong))
        for line in self._lines(name, data, wrong):  # files of an archive may be of another edition
            print(line)
        if missing and data.terms == "agreement":
            raise UsageError(f"{self.folder / missing[0]} is missing; {self._how(name, data)}")
        for path in missing:
            self._inside(place := self.folder / path)
            if place.exists():
                raise UsageError(f"{place} is not a file; move it away")
        with self._partial_folder(name) if missing else contextlib.nullcontext(self.folder) as partial:
            while waiting := [path for path in missing if not (self.folder / path).is_file()]:
                self._fetch_file(waiting[0], name, data, waiting, partial)
        parts = [f"{len(data.files)} {'file' if len(data.files) == 1 else 'files'}"]
        parts += [f"{len(missing)} fetched"] * bool(missing)
        parts += [f"{len(unknown)} present, not verified"] * bool(unknown)
        return f"{name}: {', '.join(parts)}"

    @contextlib.contextmanager
    def _partial_folder(self, name: str) -> Iterator[Path]:
        """Yield a folder for downloads, which is removed at the end. After a failure, downloads are kept.

        Raises: UsageError: another process fetches into the data folder.
        """
        partial, at = self.folder / PARTIAL / name, self.folder / PARTIAL / ".lock"
        self._inside(partial)
        self._inside(at)
        partial.mkdir(parents=True, exist_ok=True)
        with at.open("a") as lock:  # never removed, because another process may have opened it
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another `retable fetch` writes in {self.folder}; wait until it ends") from None
            try:
                yield partial
            except BaseException:
                for path in partial.iterdir():
                    if path.suffix != ".part":
                        path.unlink()
                raise
            shutil.rmtree(partial)

    def _sources(self, path: str, data: DataSet) -> Iterator[tuple[str, Address]]:
        """Yield the URLs that may have a file, and for each the address that says whether it is an archive."""
        if "*" in path:
            return
        own = data.addresses_of(path)
        if self.mirror is not None and (not self.offline or is_on_this_machine(self.mirror)):
            archives = [each for each in own if each.kind and each.archive in data.archives]
            paths = {f"{data.folder}/{each.archive}": each for each in archives}
            if data.files[path].sha256 or not archives:
                paths = {path: Address(None, "", "")} | paths
            for each, address in paths.items():
                yield f"{self.mirror}/{quote(each) if re.match('https?://', self.mirror) else each}", address
        for address in own if not self.offline else ():
            yield address.url, address

    def _fetch_file(self, path: str, name: str, data: DataSet, missing: list[str], partial: Path) -> None:
        """Fetch a file from the first place that has it, with all missing files of the same archive."""
        by_hand = "" if data.addresses_of(path) else f"; {data.note}"
        failure = ""
        for url, address in self._sources(path, data):
            if failure:
                print(f"{name}: {in_one_line(failure)}; the next address is tried", file=sys.stderr)
            try:
                self._get(url, address, path, data, missing, partial)
                return
            except Failure as error:
                failure = f"{url}: {error}"
        if failure:
            raise UsageError(f"{path} was not fetched: {failure}{by_hand}")
        allowed = "; --offline allows only a mirror on this machine" if self.offline else ""
        raise UsageError(
            f"{self.folder / path} is missing{allowed}{by_hand}; put the file there, or set {environment.MIRROR} "
            "to a folder with the file"
        )

    def _get(self, url: str, address: Address, path: str, data: DataSet, missing: list[str], partial: Path) -> None:
        """Download a file, or an archive with members that are missing, and keep the files."""
        file = data.files[path]
        whole = data.archives.get(address.archive, Known()) if address.kind else file
        if not (file.sha256 or whole.sha256 or self.unverified):
            raise Failure("no sha256 is known; --unverified fetches the file and prints its sha256")
        place = partial / f"{sha256(url.encode()).hexdigest()[:16]}-{PurePosixPath(url).name[:100]}"
        part = place.with_name(f"{place.name}.part") if whole.sha256 else place  # others cannot resume
        download(url, part, whole.size, resume=bool(whole.sha256))
        if address.kind is None:
            self._keep({path: part}, data, verified=False)
            return
        if whole.sha256 and (found := _digest(part)) not in whole.sha256:
            part.unlink()
            raise Failure(f"the archive has sha256 {found}, but {' or '.join(whole.sha256)} is listed")
        members = {each: same.member for each in missing for same in data.addresses_of(each)
                   if (same.kind, same.url) == (address.kind, address.url)
                   and (each == path or whole.sha256 or self.unverified or data.files[each].sha256)}  # fmt: skip
        places = {each: place.with_name(f"{place.name}-{number}") for number, each in enumerate(members)}
        # A verified archive may have another edition of a member, with another size.
        sizes = {member: None if whole.sha256 else data.files[each].size for each, member in members.items()}
        unpack(part, address.kind, {member: places[each] for each, member in members.items()}, sizes)
        self._keep(places, data, bool(whole.sha256))

    def _inside(self, place: Path) -> None:
        """Raise UsageError if a path is outside the data folder, because it goes through a link."""
        if not place.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(
                f"{place} is {place.resolve()}, outside the data folder; replace the link by a folder, or put the "
                "file there by hand"
            )

    def _keep(self, places: Mapping[str, Path], data: DataSet, verified: bool) -> None:
        """Move fetched files to their paths in the data folder, after all of them have been verified.

        Args:
            places: the fetched file for each path.
            data: the data set.
            verified: whether the files come from a verified archive.

        Raises: Failure: a file has another sha256.
        """
        found = {path: _digest(place) for path, place in places.items()}
        for path, digest in found.items():
            listed = data.files[path].sha256
            if listed and digest not in listed and not verified:
                places[path].unlink()
                raise Failure(f"{PurePosixPath(path).name} has sha256 {digest}, but {' or '.join(listed)} is listed")
        for path, place in places.items():
            (target := self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(place, target)
            if data.files[path].sha256 and found[path] not in data.files[path].sha256:
                made_with = " or ".join(data.files[path].sha256)
                print(f"{path} is another edition: sha256 {found[path]}, results were made with {made_with}")
            elif not data.files[path].sha256 and not verified:
                print(f"{path}: sha256 {found[path]}, not verified")


def _exists(folder: Path, path: str) -> bool:
    """Return whether a file exists or, for a pattern, whether a file matches it."""
    return any(folder.glob(path)) if "*" in path else (folder / path).is_file()


def _digest(place: Path) -> str:
    with place.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _unanswered(chosen: Mapping[str, DataSet]) -> list[str]:
    """Return a line for each URL of files none of whose URLs answers, and print the other URLs that do not answer."""
    files = [(name, [address.url for address in data.addresses_of(path)])
             for name, data in chosen.items() for path in data.files]  # fmt: skip
    names = {url: name for name, urls in files for url in urls}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda url: problem_of(url) and problem_of(url), names)
        problems = {url: problem for url, problem in zip(names, answers, strict=True) if problem}
    lost = {url for _, urls in files if problems.keys() >= {*urls} for url in urls}
    for url in problems.keys() - lost:
        print(in_one_line(f"{names[url]}: {url}: {problems[url]}; another address answers"), file=sys.stderr)
    return [f"{names[url]}: {url}: {problem}" for url, problem in problems.items() if url in lost]


def _list(chosen: Mapping[str, DataSet], folder: Path, whole: bool) -> None:
    """Print a line for each data set; with `whole`, print also files, licences and addresses."""
    for name, data in chosen.items():
        here = sum(_exists(folder, path) for path in data.files)
        print(f"{name:20} {size_of(data):>8} {here:>4} of {len(data.files):<4} {how_to_get(data):10} {data.title}")
        if not whole:
            continue
        for label, text in (("licence", data.licence), ("citation", data.citation), ("home", data.home),
                            ("note", data.note)):  # fmt: skip
            print(f"  {label:9} {text}" if text else "", end="\n" if text else "")
        for path, file in data.files.items():
            print(f"  {' or '.join(file.sha256) or 'no sha256'}  {path}")
            for address in data.addresses_of(path):
                print(f"    {address.url}{f' ({address.kind}, {address.member})' if address.kind else ''}")


def size_of(data: DataSet) -> str:
    """Return the size of a data set's files or, if it is not known, of its archives; "" if neither is known."""
    copies = {tuple(each.sha256): each for each in data.archives.values()}  # an archive may have several addresses
    for known in (data.files.values(), copies.values()):
        sizes = [each.size for each in known if each.size is not None]
        if sizes and len(sizes) == len(known):
            return f"{sum(sizes) / 1e6:,.1f} MB" if sum(sizes) >= 1e6 else f"{sum(sizes) / 1e3:,.0f} kB"
    return ""


def how_to_get(data: DataSet) -> str:
    """Return how users get the files of a data set: fetch, agreement, or by hand."""
    if data.terms == "agreement":
        return "agreement"
    return "fetch" if any(data.addresses_of(path) for path in data.files) else "by hand"
