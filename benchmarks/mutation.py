"""Measure whether tests fail if the code is changed: python -m benchmarks.mutation [DIGITS] [--folder FOLDER]

mutmut (pip install '.[mutation]') copies the repository and makes mutants: it changes one place at a time in the
packages that [tool.mutmut] in pyproject.toml lists. For each mutant it runs the tests that reach the place. Only
mutants whose number ends in one of DIGITS are run; each digit selects a tenth of all mutants and takes about two hours
on two cores. The page is benchmarks/mutation.md.

Some mutants are run again in a separate process, because mutmut's forked server cannot test them:
- mutants of code that runs at import: the server imports it before the mutant is chosen;
- mutants that no test seems to reach: a process that a test starts may reach them;
- mutants without a result from mutmut, because they loop or because the server failed.

--results FOLDER writes the page from the folder of an earlier run.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks.__main__ import machine
from benchmarks.ratio import at_least_one

ROOT = Path(__file__).parent.parent
PAGE, REASONS = Path(__file__).with_suffix(".md"), Path(__file__).with_name("mutation_reasons.yaml")
STATUS = {1: "killed", 3: "killed", 0: "survived", 5: "unreached", 33: "unreached", -11: "killed", -9: "killed",
          36: "unsure", 255: "unsure", 24: "unsure", -24: "unsure", 152: "unsure"}  # fmt: skip
STARTS, TIMES = 60, 10  # time limit of a separate run: STARTS seconds, plus TIMES times the seconds of its tests
HEAD = "# Do tests fail if the code is changed? (mutation testing)"
BY_HAND = "\n## By hand: "  # starts the part of the page that a new run does not overwrite
OPEN, UNREACHED = "Open", "Reached by no test"


@dataclass(frozen=True)
class Mutant:
    name: str  # mutmut's name: package.module.x_function__mutmut_7 or package.module.xǁClassǁmethod__mutmut_7
    status: str  # killed, timeout, survived, unreached, or unsure
    before: str = ""  # the changed lines; empty if the mutant is killed
    after: str = ""

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def function(self) -> str:
        mangled = self.name.rpartition(".")[2].rpartition("__mutmut_")[0]
        return f"{self.module}.{mangled.removeprefix('x').removeprefix('_').replace('ǁ', '.').lstrip('.')}"

    @property
    def package(self) -> str:
        return self.module.split(".")[1]


def without(pattern: str) -> Callable[[str, str], bool]:
    """Return a function that checks whether two lines are equal after removal of all matches of `pattern`."""

    def alike(before: str, after: str) -> bool:
        first, second = (re.sub(r",? *\)", ")", re.sub(pattern, "", line)) for line in (before, after))
        return first == second

    return alike


def of_words(before: str, after: str) -> bool:
    """Check whether the mutant only changes a string of several words, or removes the message of an error."""
    if re.search(r"(?:Error|warn)\(None\b", after):
        return True
    if after.replace("XX", "") == before.replace("XX", ""):
        return all(" " in text for text in re.findall(r"XX(.*?)XX", after))
    texts = (re.findall(r"""["'](.*?)["']""", line) for line in (before, after))
    changed = [old for old, new in zip(*texts, strict=False) if old != new]
    return before.lower() == after.lower() and bool(changed) and all(" " in text for text in changed)


# Reasons why mutants survive, with a check for each: these mutants change nothing, or only text that people read.
RULES: dict[str, Callable[[str, str], bool]] = {
    "`strict=` of zip is only a check, and the lengths are equal": without(r",? *strict=\w+"),
    "A dtype that changes no number": lambda before, after: (
        "random" not in before and without(r",? *dtype=(?:[\w.]+|\"[\w<]+\")")(before, after)
    ),
    "`device=` on a machine that has only one device": without(r",? *device=[\w.]+"),
    "The machine's default encoding, or another name of it": without(r",? *encoding=(?:None|\"[\w-]+\")"),
    "None instead of False, where only the truth value is used": lambda before, after: (
        before.replace("=False", "=None") == after
    ),
    "Words of an error message": of_words,
}


def copy_tree(folder: Path) -> None:
    """Copy the files that git tracks, in their present state, and compiled files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    compiled = (str(path.relative_to(ROOT)) for path in ROOT.glob("src/retable/**/*.so"))
    for name in chain(listed.rstrip("\0").split("\0"), compiled):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def run(folder: Path, digits: str, processes: int) -> None:
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *(f"*{d}" for d in digits)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, env=one_thread, stdout=subprocess.DEVNULL, check=True)


def read(folder: Path, digits: str) -> Iterator[Mutant]:
    """Yield mutmut's result for each mutant that has run and whose number ends in one of `digits`."""
    for path in sorted((folder / "mutants").rglob("*.py.meta")):
        for name, code in json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"].items():
            if code is not None and name.endswith(tuple(digits)):
                mutant = Mutant(name, STATUS.get(code, "unsure"))
                source = path.with_suffix("").relative_to(folder / "mutants")
                yield mutant if mutant.status == "killed" else with_lines(mutant, folder, source)


def with_lines(mutant: Mutant, folder: Path, source: Path) -> Mutant:
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    with chdir(folder):
        _, _, *lines = get_diff_for_mutant(mutant.name, path=source).split("\n")
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return replace(mutant, before=before, after=after)


Again = Callable[[str, Path, Sequence[str], float], str]


def settled(mutants: Iterable[Mutant], folder: Path, again: Again) -> list[Mutant]:
    """Return the mutants with final results; `again` runs those that a forked server cannot test."""
    known = json.loads((folder / "mutants/mutmut-stats.json").read_text(encoding="utf-8"))
    seconds: dict[str, float] = known["duration_by_test"]
    first = {next(iter(seconds))}  # mutmut counts all code that runs at import as reached by this test
    results = []
    for mutant in mutants:
        tests = known["tests_by_mangled_function_name"].get(mutant.name.rpartition("__mutmut_")[0], [])
        if mutant.status in ("unsure", "unreached") or (mutant.status == "survived" and {*tests} == first):
            _, package, *rest = mutant.module.split(".")
            own = Path("tests", package, f"test_{'_'.join(rest)}.py")
            tests = [*([str(own)] if (folder / own).exists() else []), *sorted({*tests} - first)]
            known_seconds = (seconds[test] for test in seconds if {test, test.partition("::")[0]} & {*tests})
            status = again(mutant.name, folder, tests, STARTS + TIMES * sum(known_seconds)) if tests else "unreached"
            still = mutant.status == "unreached" and status == "survived"
            mutant = mutant if still else replace(mutant, status=status)
        results.append(mutant)
    return results


def run_mutant(name: str, folder: Path, tests: Sequence[str], limit: float) -> str:
    """Run the tests of a mutant in a separate process, for at most `limit` seconds. Return its status."""
    environment = os.environ | {"MUTANT_UNDER_TEST": name, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "--rootdir=.", "-p", "no:cacheprovider", *tests]
    try:
        code = subprocess.run(
            command, cwd=folder / "mutants", env=environment, timeout=limit, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return "timeout"
    return "survived" if code == 0 else "killed"


def read_reasons() -> dict[str, str]:
    """Read the reasons why mutants survive, which people wrote; keys are `function: changed lines`.

    A key that is only a function has the reason why no test reaches this function.
    """
    reasons = yaml.safe_load(REASONS.read_text(encoding="utf-8"))
    return {mutant: reason for reason, mutants in reasons.items() for mutant in mutants}


def reason(mutant: Mutant, reasons: dict[str, str]) -> str:
    if by_hand := reasons.get(f"{mutant.function}: {mutant.after}"):
        return by_hand
    if mutant.status == "unreached":
        return reasons.get(mutant.function, UNREACHED)
    return next((heading for heading, rule in RULES.items() if rule(mutant.before, mutant.after)), OPEN)


def table(mutants: Sequence[Mutant], reasons: dict[str, str]) -> str:
    """Format the counts by package.

    Mutants that no test reaches count as tried. The last score ignores mutants that survive for a reason.
    """
    lines = ["| package | tried | killed | timed out | survived | of which with a reason | reached by no test | score |"
             " score without those with a reason |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for package in [*sorted({mutant.package for mutant in mutants}), "all"]:
        own = [mutant for mutant in mutants if package in (mutant.package, "all")]
        n = Counter(mutant.status for mutant in own)
        alike = sum(each.status == "survived" and reason(each, reasons) != OPEN for each in own)
        noticed = n["killed"] + n["timeout"]
        scores = " | ".join(f"{100 * noticed / max(tried, 1):.1f} %" for tried in (len(own), len(own) - alike))
        lines.append(f"| {package} | {len(own):,} | {n['killed']:,} | {n['timeout']} | {n['survived']} | {alike} | "
                     f"{n['unreached']} | {scores} |")  # fmt: skip
    return "\n".join(lines)


def survivors(mutants: Iterable[Mutant], reasons: dict[str, str]) -> str:
    """List the surviving mutants, with one heading per reason: the most frequent first, those without reason last."""
    groups: dict[str, list[str]] = {}
    for mutant in mutants:
        if mutant.status in ("survived", "unreached"):
            line = f"- `{mutant.function}`: `{mutant.before}` → `{mutant.after}`"
            groups.setdefault(reason(mutant, reasons), []).append(line)
    ordered = sorted(groups.items(), key=lambda group: (group[0] == OPEN, -len(group[1]), group[0]))
    return "\n\n".join(f"## {heading} ({len(lines)})\n\n" + "\n".join(sorted(lines)) for heading, lines in ordered)


def page(mutants: Sequence[Mutant], reasons: dict[str, str], digits: str, processes: int) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("mutmut", "pytest", "torch"))
    origin = [f"`python -m benchmarks.mutation {digits}`, {datetime.date.today()}, on",
              f"{machine(processes)}; {versions}."]  # fmt: skip
    parts = [HEAD, "\n".join(origin), table(mutants, reasons), survivors(mutants, reasons)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", nargs="?", default="7", help="last digits of the mutants to run (default 7)")
    parser.add_argument("--folder", type=Path, help="an empty folder, which is kept (default: a temporary one)")
    parser.add_argument("--processes", type=at_least_one, default=2)
    parser.add_argument("--results", type=Path, help="write the page from this folder of an earlier run")
    arguments = parser.parse_args()
    digits = arguments.digits
    if not re.fullmatch(r"\d+", digits):
        parser.error(f"{digits!r} is not a number of digits; write 7, or 0123456789 for all mutants")
    with TemporaryDirectory() as name:
        folder = (arguments.results or arguments.folder or Path(name)).resolve()
        if not arguments.results:
            copy_tree(folder)
            run(folder, digits, arguments.processes)
        mutants, reasons = settled(read(folder, digits), folder, run_mutant), read_reasons()
    _, heading, by_hand = PAGE.read_text(encoding="utf-8").partition(BY_HAND)
    PAGE.write_text(page(mutants, reasons, digits, arguments.processes) + heading + by_hand, encoding="utf-8")
    print(table(mutants, reasons))


if __name__ == "__main__":
    main()
