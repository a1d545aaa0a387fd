"""Generate pages of the site from other files: systems, checks, costs, results, API, and copies of linked files.

mkdocs-gen-files runs this script in each build. The generated pages exist only in memory.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import mkdocs_gen_files
import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the command `mkdocs` does not put the project's folder on the path

from docs.catalogue import Catalogue, Check, Number, Setting, System, comment_of, functions  # noqa: E402
from docs.sources import ASSETS, ROOT_PAGES, Files  # noqa: E402
from pipelines.config.project import STUDIES, STUDY  # noqa: E402

INDEX = """# The systems

Each system has an id, by which files of `conf/` and modules name it. Recipes are the files that train it, checks the
claims that tests hold it to, numbers the rows that it has in tables of the project's [reports](../results/index.md).
"""
FEW = 12  # numbers of a system that its page shows without a click
KINDS = {
    "equations": "Written a second time, from the equations",
    "brute force": "Brute force",
    "closed form": "Closed forms and properties",
    "peer library": "Peer libraries",
    "source's entropy": "The source's entropy",
    "published number": "Published numbers",
    "kill and resume": "Kill and resume",
}


def write(page: str, text: str) -> None:
    with mkdocs_gen_files.open(page, "w") as file:
        file.write(text)


class Pages:
    """The generated pages, which share a catalogue of the systems and a list of the files that they link to."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.files = Files(ROOT)
        self.reports = sorted(path.parts[-3] for path in STUDIES.glob("*/results/report.md"))

    def systems(self) -> None:
        index = [INDEX]
        for family in self.catalogue.families:
            page = f"systems/{family['page']}.md"
            own = [self.catalogue.systems[entry["id"]] for entry in family["systems"]]
            body = "\n".join(self._system(page, system) for system in own)
            note = "Shares, accuracies and correlations among the results are times 100."
            write(page, f"# {family['title']}\n\n{family['about']} {note}\n\n{body}")
            index.append(f"\n## [{family['title']}]({family['page']}.md)\n\n{family['about']}\n")
            index.append("\n| Id | System | Recipes | Checks | Study | Result |")
            index.append("| --- | --- | ---: | ---: | --- | --- |")
            for system in own:
                recipes = sum(setting.group == "recipe" for setting in system.settings)
                link = f"[{system.entry['name']}]({family['page']}.md#{system.id})"
                cells = [system.id, link, *(str(count or "–") for count in (recipes, len(system.checks)))]
                index.append(f"| {' | '.join([*cells, *self._shown(system)])} |")
        write("systems/index.md", "\n".join(index) + "\n")

    def _shown(self, system: System) -> tuple[str, str]:
        """Return a study that contains a system, and the system's result in this study.

        The result is a number, preferably one with a published number, and not from study `gallery`.
        Without a number, it is a link to a figure or table. Without both, it is the reason why they are missing.
        """
        page = "systems/index.md"
        if system.ran:
            number = min(system.ran, key=lambda each: (not each.published, each.study == "gallery", -each.runs))
            published = f", published {number.published}" * bool(number.published)
            return self._study(page, number.study), f"{number.system}: {number.metric} {number.mean}{published}"
        if system.shown:
            _, study, _, name = Path(system.shown[0]).parts
            return self._study(page, study), f"[{Path(name).stem}]({self.files.link(page, system.shown[0])})"
        return "–", plain(system.entry.get("lacks") or system.entry["missing"])

    def _system(self, page: str, system: System) -> str:
        entry = system.entry
        parts = [f"## {system.id} {entry['name']} {{ #{system.id} }}\n", entry["definition"], ""]
        if "source" in entry:
            parts.append(f"**Source:** {entry['source']}.\n")
        if "missing" in entry:
            return "\n".join([*parts, f"**{entry['missing']}**\n"])
        code = ", ".join(f"[`{name.removeprefix('retable.')}`][{name}]" for name in system.code)
        parts.append(f"**Code:** {code}.\n")
        parts += ["**Checked:**\n", *self._checks(page, system.checks), ""] if system.checks else []
        parts += [] if system.checks else ["**Checked:** by no test against something independent.\n"]
        if system.settings:
            parts += ["**Configuration:**\n", *(self._setting(page, setting) for setting in system.settings)]
        else:
            parts.append("**Configuration:** none of its own.\n")
        studies = ", ".join(self._study(page, name) for name in system.studies)
        parts.append(f"**Studies:** {studies}.\n" if studies else "**Studies:** in none.\n")
        return "\n".join([*parts, *self._results(page, system)])

    def _checks(self, page: str, checks: Iterable[Check]) -> Iterator[str]:
        for check in checks:
            tests = "; ".join(self._test(page, test) for test in check.tests)
            yield f"- {check.claim}: {tests}"

    def _test(self, page: str, test: str) -> str:
        path, _, name = test.partition("::")
        function = functions(ROOT / "tests" / path)[name]
        real = any(ast.unparse(each) == "pytest.mark.real" for each in function.decorator_list)
        words = f"{Path(path).stem}: {name}".replace("test_", "").replace("_", " ")
        return f"[{words}]({self.files.link(page, f'tests/{path}', function.lineno)})" + " (on real data)" * real

    def _setting(self, page: str, setting: Setting) -> str:
        entry = self.catalogue.content(setting)
        choices = {group: choice for group, choice in entry["choices"].items() if choice is not None}
        settings = {"defaults": choices} if choices else {}
        settings |= {key: value for key, value in entry.items() if key != "choices"}
        shown = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
        lines = [
            f'??? example "{setting.group or "stage"} {setting.choice}"',
            "",
            f"    {plain(setting.comment)}",
            "",
            f"    {self._ran(page, setting)}",
            "",
            f"    [{setting.path}]({self.files.link(page, setting.path)}), with what it inherits:",
            "",
            "    ```yaml",
            *(f"    {line}" for line in shown.splitlines()),
            "    ```",
            "",
        ]
        return "\n".join(lines)

    def _ran(self, page: str, setting: Setting) -> str:
        if studies := self.catalogue.ran_in(setting):
            return f"Has run in {', '.join(self._study(page, name) for name in studies)}."
        return f"Has not run; it lacks {plain(self.catalogue.missing_input(setting))}."

    def _study(self, page: str, name: str) -> str:
        if name in self.reports:
            return f"[{name}]({self.files.link(page, f'studies/{name}/results/report.md')})"
        return f"[{name}]({self.files.link(page, f'studies/{name}/{STUDY}')}) (not run)"

    def _results(self, page: str, system: System) -> Iterator[str]:
        if system.shown:
            parts = ((Path(path), self.files.link(page, path)) for path in system.shown)
            links = (f"[{path.parts[1]}/{path.name}]({link})" for path, link in parts)
            yield f"**Results:** {', '.join(links)}.\n"
        if not system.numbers:
            yield "" if system.shown else f"**Results:** in no table. What lacks: {plain(system.entry['lacks'])}\n"
            return
        table = self._table(page, system.numbers)
        if len(system.numbers) <= FEW:
            yield from ["**Results:**\n", *table, ""]
        else:
            ran = sum(number.runs > 0 for number in system.numbers)
            rest = f", {len(system.numbers) - ran} published rows that were not run" * (ran < len(system.numbers))
            yield f'??? note "Results: {ran} numbers{rest}"\n'
            yield from (f"    {line}" for line in table)
            yield ""

    def _table(self, page: str, numbers: Sequence[Number]) -> Iterator[str]:
        """Yield the lines of a table of numbers, without its empty columns."""
        columns = {
            "Study": [self._study(page, each.study) for each in numbers],
            "Corpus": [each.corpus for each in numbers],
            "System": [each.system for each in numbers],
            "What": [each.metric for each in numbers],
            "Mean ± s.d.": [each.mean for each in numbers],
            "Runs": [str(each.runs or "") for each in numbers],
            "95 % interval": [each.interval for each in numbers],
            "Published": [each.published for each in numbers],
            "Verdict": [each.verdict for each in numbers],
        }
        columns = {title: cells for title, cells in columns.items() if any(cells)}
        left = ("Study", "Corpus", "System", "What", "Verdict")
        yield f"| {' | '.join(columns)} |"
        yield f"| {' | '.join(':---' if title in left else '---:' for title in columns)} |"
        yield from (f"| {' | '.join(row)} |" for row in zip(*columns.values(), strict=True))

    def correctness(self) -> None:
        """Write page correctness.md, with each `<!-- checks: kind -->` replaced by the list of checks of this kind."""

        def listed(match: re.Match[str]) -> str:
            kind = match[1]
            checks = [check for check in self.catalogue.checks if check.kind == kind]
            rows = "\n".join(self._checks("correctness.md", checks))
            return f"## {KINDS[kind]}\n\n{{about}}\n\n{rows}\n".replace("{about}", match[2].strip())

        text = self._page("correctness.md")
        write("correctness.md", re.sub(r"<!-- checks: (.*?) -->\n(.*?)<!-- end -->", listed, text, flags=re.DOTALL))

    def costs(self) -> None:
        """Write page costs.md, with each `<!-- include: name -->` replaced by the file benchmarks/name.md."""

        def included(match: re.Match[str]) -> str:
            path = f"benchmarks/{match[1]}.md"
            title, _, body = (ROOT / path).read_text(encoding="utf-8").partition("\n")
            body = self.files.rewritten(path, "costs.md", body)
            body = re.sub(r"^(#+ )", r"#\1", body, flags=re.MULTILINE)
            return f"## {title.removeprefix('# ')} {{ #{match[1]} }}\n{body}"

        text = self._page("costs.md")
        write("costs.md", re.sub(r"<!-- include: (\w+) -->", included, text))

    def _page(self, page: str) -> str:
        """Return the text of a page of docs/; links to files of the project are rewritten for the site."""
        return self.files.rewritten(f"docs/{page}", page, (ROOT / "docs" / page).read_text(encoding="utf-8"))

    def results(self) -> None:
        """Write each study's report, with its figures."""
        rows = []
        for study in self.reports:
            folder = STUDIES / study / "results"
            text = (folder / "report.md").read_text(encoding="utf-8")
            text = re.sub(r"^## Study .*$", f"# Study {study}", text, count=1, flags=re.MULTILINE)
            text = re.sub(r"^#(##+ )", r"\1", text, flags=re.MULTILINE)
            figures = sorted(folder.glob("*.svg"))
            for figure in figures:
                link = self.files.link(f"results/{study}.md", f"studies/{study}/results/{figure.name}")
                text = text.replace(f"]({figure.name})", f"]({link})")
            text += "\n## Figures\n\n" * bool(figures)
            for figure in figures:
                link = self.files.link(f"results/{study}.md", f"studies/{study}/results/{figure.name}")
                text += f"![{figure.stem}]({link})\n\n"
            head = f"---\nsearch:\n  exclude: true\n---\n{text}"
            write(f"results/{study}.md", head)
            about = comment_of(STUDIES / study / STUDY)
            rows.append(f"| [{study}]({study}.md) | {plain(about)} |")
        body = "\n".join(["| Study | What it is |", "| --- | --- |", *rows])
        write("results/index.md", f"# Reports\n\nThe studies whose tables are kept in the project.\n\n{body}\n")

    def api(self) -> None:
        """Write a page per module of src/retable, and a page per package that links to them."""
        source = ROOT / "src/retable"
        names = sorted(path.name for path in source.iterdir() if path.is_dir() and list(path.glob("*.py")))
        packages = "\n".join(f"- [`retable.{name}`]({name}/index.md): {about(source / name)}" for name in names)
        tops = sorted(path for path in source.glob("*.py") if path.stem != "__init__")
        modules = "\n".join(f"- [`retable.{path.stem}`]({path.stem}.md): {about(path)}" for path in tops)
        write("api/index.md", f"# API\n\nFrom the docstrings. Imports point one way.\n\n{packages}\n{modules}\n")
        for path in tops:
            write(f"api/{path.stem}.md", f"::: retable.{path.stem}\n")
        for name in names:
            listed = []
            for path in sorted((source / name).glob("*.py")):
                if path.stem != "__init__":
                    listed.append(f"- [`{path.stem}`]({path.stem}.md): {about(path)}")
                    write(
                        f"api/{name}/{path.stem}.md",
                        f"[`retable.{name}`](index.md)\n\n::: retable.{name}.{path.stem}\n",
                    )
            write(
                f"api/{name}/index.md", f"# `retable.{name}`\n\n{about(source / name)}\n\n" + "\n".join(listed) + "\n"
            )

    def written(self) -> None:
        """Write the pages of docs/; rewrite their links to files outside docs/ as links to pages of the site."""
        for path in sorted((ROOT / "docs").rglob("*.md")):
            page = path.relative_to(ROOT / "docs").as_posix()
            if page not in ("correctness.md", "costs.md"):
                write(page, self._page(page))
        for name, page in ROOT_PAGES.items():
            write(page, self.files.rewritten(name, page, (ROOT / name).read_text(encoding="utf-8")))
        citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
        write("citation.md", f"# How to cite\n\nThe file `CITATION.cff`:\n\n```yaml\n{citation}```\n")

    def linked(self) -> None:
        """Write the files that the other pages link to."""
        for path in sorted(self.files.linked):
            place = f"files/{path}"
            if path.endswith(ASSETS):
                with mkdocs_gen_files.open(place, "wb") as file:
                    file.write((ROOT / path).read_bytes())
            else:
                write(f"{place}.md", self.files.page(path))


def about(path: Path) -> str:
    """Return the first sentence of a module's or a package's docstring."""
    path = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return plain(re.split(r"(?<=[^.A-Z]{3}[.?!)\]])\s(?=[A-Z])", paragraph)[0])


def plain(text: str) -> str:
    """Return the text of a comment or docstring, with all markup escaped except code in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part[:1] == "`" else re.sub(r"([\\*_\[\]<>|#])", r"\\\1", part) for part in parts)


def main() -> None:
    pages = Pages()
    pages.systems()
    pages.correctness()
    pages.costs()
    pages.results()
    pages.api()
    pages.written()
    pages.linked()


main()
