"""Fetch and check data sets: `retable fetch ptb`, `retable fetch --study glue`, `retable fetch --check`.

A file is verified if its sha256 is listed in `conf/data/`, or if it comes from an archive whose sha256 is listed. Other
sha256 than the listed ones are recorded in `SHA256SUMS` in the data folder, for later checks. Nothing is written
outside the data folder, and no fetched file is executed.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pipelines.cli.data_sets import Address, DataSet, data_sets, sets_of_study
from pipelines.cli.download import Failure, copy_from_mirror, download, is_on_this_machine, problem_of, unpack
from pipelines.config import environment
from pipelines.config.project import CHECKOUT
from retable.core.errors import UsageError, closest
from retable.core.escaping import in_one_line

SUMS = "SHA256SUMS"  # in the data folder, in the format of the command sha256sum
BENCH = ".fetch"  # folder in the data folder for files that are not complete or not verified
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
            failures.append(f"{name}: {error}")
    if check and not offline:
        failures += _unanswered({name: known[name] for name in chosen or known})
    for failure in failures:
        print(f"error: {in_one_line(failure)}", file=sys.stderr)
    return 2 if failures else 0


def data_folder() -> Path:
    """Return the data folder: `RETABLE_DATA`, or `data` in the checkout or, without a checkout, here."""
    if environment.DATA in os.environ:
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
        missing, unknown = self._state(name, data)
        if missing and required:
            raise UsageError(f"{self.folder / missing[0]} is missing; {self._how(name, data)}")
        if len(missing) == len(data.files):
            return f"{name}: not here"
        parts = [f"{len(data.files) - len(missing) - len(unknown)} of {len(data.files)} files verified"]
        parts += [f"{len(missing)} missing"] * bool(missing)
        parts += [f"{len(unknown)} without a known sha256"] * bool(unknown)
        return f"{name}: {', '.join(parts)}"

    def _how(self, name: str, data: DataSet) -> str:
        """Return advice on how to get the files of a data set."""
        if data.terms == "agreement":
            return f"{data.note}; then put the files into {self.folder / data.folder} (see {data.home})"
        return f"fetch it: retable fetch {name}"

    def _state(self, name: str, data: DataSet) -> tuple[list[str], list[str]]:
        """Return the missing files of a data set, and the files without a known sha256.

        Raises: UsageError: a file has another sha256.
        """
        missing, unknown = list[str](), list[str]()
        recorded = self._recorded()
        for path, file in data.files.items():
            expected = [*file.sha256, *([recorded[path]] if path in recorded else [])]
            if not _exists(self.folder, path):
                missing.append(path)
            elif not expected:
                unknown.append(path)
            elif (found := _digest(place := self.folder / path)) not in expected:
                by = f"conf/data/{name}.yaml" if file.sha256 else f"{self.folder / SUMS}"
                raise UsageError(
                    f"{place} has sha256 {found}, but {by} lists {' or '.join(expected)}; move the file away to "
                    "fetch it again"
                )
        return missing, unknown

    def fetch(self, name: str, data: DataSet) -> str:
        """Fetch the missing files of a data set, and return a line with the result.

        Raises: UsageError: a file cannot be fetched, or an existing file has another sha256.
        """
        missing, unknown = self._state(name, data)
        if missing and data.terms == "agreement":
            raise UsageError(f"{self.folder / missing[0]} is missing; {self._how(name, data)}")
        with self._bench() if missing else contextlib.nullcontext(self.folder) as bench:
            for path in missing:
                if not (self.folder / path).exists():  # a member of the same archive may have brought it
                    waiting = [each for each in missing if not (self.folder / each).exists()]
                    self._fetch_file(path, name, data, waiting, bench)
        parts = [f"{len(data.files)} {'file' if len(data.files) == 1 else 'files'}"]
        parts += [f"{len(missing)} fetched"] * bool(missing)
        parts += [f"{len(unknown)} without a known sha256"] * bool(unknown)
        return f"{name}: {', '.join(parts)}"

    @contextlib.contextmanager
    def _bench(self) -> Iterator[Path]:
        """Yield a folder in the data folder. At the end, only downloads that can resume are kept in it.

        Raises: UsageError: another process fetches into the data folder.
        """
        bench = self.folder / BENCH
        self._inside(bench)
        bench.mkdir(parents=True, exist_ok=True)
        lock = os.open(bench, os.O_RDONLY)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another `retable fetch` writes in {self.folder}; wait until it ends") from None
            _clear(bench)  # a process that was killed may have left a file that it had not verified
            try:
                yield bench
            finally:
                _clear(bench)
                if not any(bench.iterdir()):
                    bench.rmdir()
        finally:
            os.close(lock)

    def _fetch_file(self, path: str, name: str, data: DataSet, missing: list[str], bench: Path) -> None:
        """Fetch a file from the first place that has it, with all missing files of the same archive."""
        sources: list[tuple[str, Callable[[], None]]] = []
        if self.mirror is not None and (not self.offline or is_on_this_machine(self.mirror)):
            sources.append((f"{self.mirror}/{path}", partial(self._from_mirror, path, data, bench)))
        for each in data.addresses_of(path) if not self.offline else ():
            sources.append((each.url, partial(self._from_address, each, path, data, missing, bench)))
        by_hand = "" if data.addresses_of(path) else f"; {data.note}"
        if not sources:
            allowed = "; --offline allows only a mirror on this machine" if self.offline else ""
            raise UsageError(
                f"{self.folder / path} is missing{allowed}{by_hand}; put the file there, or set {environment.MIRROR} "
                "to a folder with the file"
            )
        failures = list[str]()
        for address, get in sources:
            if failures:
                print(f"{name}: {in_one_line(failures[-1])}; the next address is tried", file=sys.stderr)
            try:
                get()
                return
            except Failure as failure:
                failures.append(f"{address}: {failure}")
        raise UsageError(f"{path} was not fetched: {failures[-1]}{by_hand}")

    def _from_mirror(self, path: str, data: DataSet, bench: Path) -> None:
        file = data.files[path]
        self._require_known(file.sha256)
        assert self.mirror is not None
        place = self._place(bench, f"{self.mirror}/{path}")
        copy_from_mirror(self.mirror, path, place, file.size)
        self._keep({path: place}, data, verified=False)

    def _from_address(self, address: Address, path: str, data: DataSet, missing: list[str], bench: Path) -> None:
        file, place = data.files[path], self._place(bench, address.url)
        if address.kind is None:
            self._require_known(file.sha256)
            download(address.url, place, file.size)
            self._keep({path: place}, data, verified=False)
            return
        archive = data.archives.get(address.url)
        self._require_known(file.sha256 or (archive.sha256 if archive else []))
        if not place.exists():
            download(address.url, place, archive.size if archive else None)
            if archive and archive.sha256 and (found := _digest(place)) not in archive.sha256:
                place.unlink()
                raise Failure(f"the archive has sha256 {found}, but {archive.sha256[0]} is listed")
        verified = bool(archive and archive.sha256)
        members = {each: same.member for each in missing for same in data.addresses_of(each)
                   if (same.kind, same.url) == (address.kind, address.url)
                   and (each == path or verified or self.unverified or data.files[each].sha256)}  # fmt: skip
        places = {each: self._place(bench, f"{address.url}::{each}") for each in members}
        # A verified archive may have another edition of a member, with another size.
        sizes = {member: None if verified else data.files[each].size for each, member in members.items()}
        try:
            unpack(place, address.kind, {member: places[each] for each, member in members.items()}, sizes)
        except Failure:
            for each in places.values():
                each.unlink(missing_ok=True)
            raise
        self._keep(places, data, verified)

    def _require_known(self, digests: Collection[str]) -> None:
        if not digests and not self.unverified:
            raise Failure("no sha256 is known; --unverified fetches the file and prints its sha256")

    @staticmethod
    def _place(bench: Path, address: str) -> Path:
        """Return the file on the bench for an address."""
        return bench / f"{sha256(address.encode()).hexdigest()[:16]}-{PurePosixPath(address).name[:100]}"

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

        Raises: Failure: a file has another sha256; all fetched files are removed.
        """
        found = {path: _digest(place) for path, place in places.items()}
        for path, digest in found.items():
            expected = data.files[path].sha256
            if expected and digest not in expected and not verified:
                for place in places.values():
                    place.unlink()
                raise Failure(f"{PurePosixPath(path).name} has sha256 {digest}, but {' or '.join(expected)} is listed")
        for path, place in places.items():
            self._inside(target := self.folder / path)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(place, target)
            if found[path] not in data.files[path].sha256:
                if not verified:
                    print(f"{path}: sha256 {found[path]}, not verified")
                self._record(path, found[path])

    def _recorded(self) -> dict[str, str]:
        """Return the sha256 of each file that `SHA256SUMS` lists, by path."""
        if not (sums := self.folder / SUMS).exists():
            return {}
        lines = (line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines())
        return {line[1]: line[0] for line in lines if len(line) == 2}

    def _record(self, path: str, digest: str) -> None:
        self._inside(sums := self.folder / SUMS)
        recorded = self._recorded() | {path: digest}
        new = sums.with_name(f"{SUMS}.new")
        new.write_text("".join(f"{each}  {name}\n" for name, each in sorted(recorded.items())), encoding="utf-8")
        os.replace(new, sums)


def _clear(bench: Path) -> None:
    """Remove all files but downloads that can resume."""
    for path in bench.iterdir():
        if path.suffix != ".part":
            path.unlink()


def _exists(folder: Path, path: str) -> bool:
    """Return whether a file exists or, for a pattern, whether a file matches it."""
    return any(folder.glob(path)) if "*" in path else (folder / path).is_file()


def _digest(place: Path) -> str:
    from pooch import file_hash

    return str(file_hash(place, alg="sha256"))


def _unanswered(chosen: Mapping[str, DataSet]) -> list[str]:
    """Return a line for each URL that does not answer."""
    urls = {address.url: name for name, data in chosen.items() for path in data.files
            for address in data.addresses_of(path)}  # fmt: skip
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = zip(urls.items(), pool.map(problem_of, urls), strict=True)
        return [f"{name}: {url}: {problem}" for (url, name), problem in answers if problem]


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
