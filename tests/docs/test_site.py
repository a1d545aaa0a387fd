"""Test that the documentation builds without warnings, and that its links and texts are right."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from docs.catalogue import Catalogue, ids_of, read_checks, read_systems
from docs.sources import Files
from retable.planning.conf import Conf
from tests.conftest import ROOT

pytestmark = pytest.mark.site


class Page(HTMLParser):
    """The links, anchors and text of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        entry = dict(attrs)
        self.links += [entry[key] or "" for key in ("href", "src") if key in entry]
        self.anchors |= {entry[key] or "" for key in ("id", "name") if key in entry}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {"DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_somewhere(site, pages):
    broken = defaultdict(list)
    for path, page in pages.items():
        base = site if path.name == "404.html" else path.parent
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or (path.name == "404.html" and link.startswith("/")):
                continue  # a link to another site, or of the 404 page, which names its site from the root
            target = path if not parts.path else Path(os.path.normpath(base / unquote(parts.path)))
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
                broken[link].append(str(path.relative_to(site)))
    assert not broken


def test_nothing_is_fetched_from_elsewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            assert not link.endswith((".css", ".js", ".svg", ".png")) or not urlsplit(link).netloc, (path, link)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_has_nothing_to_say(site, browser, scheme):
    """A page of each kind is checked.

    Two rules are disabled: the theme gives all boxes of code the same landmark name, and today's browsers reach
    scrolling boxes with the keyboard without a mark.
    """
    left_out = {rule: {"enabled": False} for rule in ("landmark-unique", "scrollable-region-focusable")}
    page = browser.new_page(color_scheme=scheme)
    for name in ("index", "howto/dvc", "systems/language-models", "results/history", "costs", "api/models/index"):
        page.goto((site / f"{name}.html").as_uri())
        checked = Axe().run(page, options={"rules": left_out})
        assert checked.violations_count == 0, checked.generate_report()


@pytest.mark.long
def test_no_page_is_wider_than_a_phone(site, pages, browser):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    wide = []
    for path in pages:
        if "api" not in path.parts and "files" not in path.parts:
            page.goto(path.as_uri())
            if page.evaluate("document.documentElement.scrollWidth") > 390:
                wide.append(path.relative_to(site))
    assert not wide


def test_every_recipe_stands_on_the_page_of_its_systems(site, pages, catalogue):
    shown = {setting.choice: setting for setting in catalogue.settings if setting.group == "recipe"}
    conf = Conf(ROOT / "conf")
    assert shown.keys() == {conf.choice(name) for name in conf.names("recipe")}, "a recipe's comment begins with its id"
    for family in read_systems():
        text = "".join(pages[page_of(site, family)].text)
        ids = {entry["id"] for entry in family["systems"]}
        assert all(f"recipe {choice}\n" in text for choice, setting in shown.items() if ids & set(setting.ids))


def test_every_system_has_its_place(site, pages):
    for family in read_systems():
        assert {entry["id"] for entry in family["systems"]} <= pages[page_of(site, family)].anchors


def test_what_is_said_of_a_system_is_known():
    """Ids of systems are unique, and each id in a check or comment is listed."""
    ids = [entry["id"] for family in read_systems() for entry in family["systems"]]
    assert len(ids) == len(set(ids))
    named = {each for check in read_checks() for each in check.systems}
    assert named <= set(ids)


def test_every_system_that_is_built_has_code_and_a_check(catalogue):
    for system in catalogue.systems.values():
        assert "missing" in system.entry or (system.code and system.checks), system.id
        assert "missing" not in system.entry or not (system.code or system.settings), system.id


def test_every_system_is_shown_by_a_result_or_lacks_something(catalogue):
    for system in catalogue.systems.values():
        lacking = "missing" in system.entry or "lacks" in system.entry
        assert bool(system.ran or system.shown) is not lacking, system.id
        assert all((ROOT / path).is_file() for path in system.shown), system.id


def test_every_configuration_has_run_or_lacks_something(catalogue):
    for setting in catalogue.configurations:
        assert bool(catalogue.ran_in(setting)) is not bool(catalogue.missing_input(setting)), setting.path
    for group, lacking in catalogue.missing_inputs.items():
        assert {*lacking} <= {*catalogue.conf.names(group)}


def test_every_kind_of_check_is_on_the_page_of_checks():
    named = re.findall(r"<!-- checks: (.*?) -->", (ROOT / "docs/correctness.md").read_text(encoding="utf-8"))
    assert {check.kind for check in read_checks()} == {*named}


def test_what_people_wrote_families_and_packages_are_in_the_navigation():
    linked = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2])
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    packages = {f"api/{path.parent.name}/index.md" for path in (ROOT / "src/retable").glob("*/__init__.py")}
    families = {f"systems/{family['page']}.md" for family in read_systems()}
    assert written | packages | families <= set(linked)


@pytest.mark.parametrize(("comment", "ids"), [
    ("C1: counted", ("C1",)), ("F5 with D1: a tagger", ("F5", "D1")), ("B3, B7, of 200 dimensions", ("B3", "B7")),
    ("C4p, C12: large", ("C4p", "C12")), ("BERT's masks", ()), ("A.\n\nSystem C9 of docs/systems.yaml.", ("C9",)),
    ("A4 paper. Systems C3, C4 and C4p\nof docs/systems.yaml.", ("C3", "C4", "C4p")), ("Like D1 of the paper.", ()),
])  # fmt: skip
def test_a_comment_or_docstring_names_its_ids(comment, ids):
    assert ids_of(comment) == ids


def test_links_to_the_projects_files_become_the_sites():
    files = Files(ROOT)
    ptb = "../studies/ptb"
    text = f"[a]({ptb}/study.yaml) [b]({ptb}/results/report.md#tasks) [c](../benchmarks/graph.md) [d](index.md)"
    expected = "[a](files/studies/ptb/study.yaml) [b](results/ptb.md#tasks) [c](costs.md#graph) [d](index.md)"
    assert files.rewritten("docs/studies.md", "studies.md", text) == expected
    assert files.linked == {"studies/ptb/study.yaml"}
    deep = partial(files.rewritten, "docs/howto/x.md", "howto/x.md")
    assert (
        deep("[a](../../src/retable/core/errors.py#L3)")
        == "[a](../files/src/retable/core/errors.py.md#__codelineno-0-3)"
    )
    assert deep("[a](../../nowhere.py)") == "[a](../../nowhere.py)"
    assert deep("[a](../../CONTRIBUTING.md)") == "[a](../contributing.md)"
    assert files.rewritten("CONTRIBUTING.md", "contributing.md", "[a](docs/studies.md)") == "[a](studies.md)"


def page_of(site: Path, family: dict) -> Path:
    return site / "systems" / f"{family['page']}.html"
