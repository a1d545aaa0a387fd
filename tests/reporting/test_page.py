"""Test the page of a study: its content, and how it works in a browser."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe

from retable.reporting.markup import Column, Row, Table, Value, markdown_table
from retable.reporting.names import meaning
from retable.reporting.page import report_page
from retable.reporting.provenance import Entry, commit_page
from retable.reporting.results import COLUMNS

NASTY = '</script><img src=x onerror="alert(1)">& {{ 7 * 7 }}'
SYSTEMS = {f"system_{k}": 100.0 + 7 * (k * 5 % 11) for k in range(11)}
CELLS = [f"evaluate/ptb/{name}-1" for name in SYSTEMS]
NOTE = "trained other than in the paper"


def entry(name: str, **more) -> Entry:
    known = {
        "id": "run-" + name.replace("/", "-"), "name": name, "command": f"python -m pipelines.evaluate cell={name}",
        "address": "graph/corpus/ptb/dvc.yaml:cell", "set": {}, "commit": "c0ffee" * 6, "commit_url": "",
        "dirty": False, "run_id": "a1b2c3", "made_from": [], "cost": [], "digests": [], "environment": "", "config": "",
    }  # fmt: skip
    return Entry(**(known | more))


def table() -> Table:
    """Return a table like the Treebank's: four columns are visible, a click shows others, and some rows are only
    published.
    """
    columns = [Column("System", numeric=False), Column("Context", numeric=False), Column("PPL/word", "Validation")]
    columns += [Column("bits", "Validation"), Column("PPL/word", "Test"), Column("95 % interval", "Test")]
    columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False), Column("FLOPs")]
    columns.append(Column("Note", numeric=False))
    rows = []
    for (name, value), cell in zip(SYSTEMS.items(), CELLS, strict=True):
        number = Value(f"{value:.2f}", "0.50", runs=(cell,), hint=cell)
        fields = [Value(name), Value("carried"), Value("99.00"), Value("0.9"), number, Value("90.0–120.0")]
        fields += [Value("112.00", "1.50"), Value("pass" if value > 110 else "fail"), Value("2.5e+12")]
        rows.append(Row([*fields, Value(NOTE if name in ("system_3", "system_5") else "")]))
    for name in ("published_large", "published_medium"):
        fields = [Value(name), *[Value("")] * 5, Value("78.40"), Value("not run"), Value("6e+15"), Value("")]
        rows.append(Row(fields))
    lead = ("Test PPL/word", "Test 95 % interval", "Test published", "Test verdict")
    return Table("perplexity", "Perplexity", columns, {"ptb": rows}, ["PPL/word: the lower, the better."], lead=lead)


def frame(verdicts=("pass", "pass", "pass, other recipe", "fail", "not run", "n/a")) -> pd.DataFrame:
    facts = {"system": "lstm", "corpus": "ptb", "task": "", "split": "test", "metric": "perplexity_word", "mean": 118.0,
             "published": 114.5, "tolerance": 2.0, "source": "Zaremba et al. 2014", "note": ""}  # fmt: skip
    return pd.DataFrame([facts | {"verdict": verdict} for verdict in verdicts]).reindex(columns=COLUMNS)


def page_of(*tables: Table, cells=None, study="ptb", figures=None) -> str:
    made = {"evaluate · ptb": [entry(name) for name in CELLS]} if cells is None else cells
    return report_page(study, "What it is for.", "11 cells.", frame(), tables, figures or {}, made)


class Elements(HTMLParser):
    """Collects ids, references and unclosed elements."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.references, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "srcset", "action"):
                self.references.append(value)
        if tag not in ("meta", "br", "link", "wbr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"


def test_every_link_leads_somewhere_in_the_page():
    made_from = [("pretrain/ptb/x-1", ""), (CELLS[0], "run-evaluate-ptb-system_0-1")]
    other = entry("evaluate/ptb/other-1", made_from=made_from)
    found = Elements(page_of(table(), cells={"": [*map(entry, CELLS), other]}))
    inside = [reference for reference in found.references if reference != "data:,"]
    assert len(inside) > 15 and {reference.removeprefix("#") for reference in inside} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids)) and not found.open


def test_notes_and_verdicts_are_counted_over_the_rows_that_can_have_one():
    page = page_of(table())
    judged = (
        ("pass", 2, "within the"),
        ("pass", 1, "within the tolerance, with a recipe that differs"),
        ("fail", 1, ""),
        ("unrun", 1, ""),
    )
    for kind, count, text in judged:
        assert f'<li class="{kind}"><b>{count}</b>{text}' in page
    assert "<li>LSTM on ptb, test perplexity_word: 118.00, published 114.5 ± 2 (Zaremba et al. 2014)</li>" in page
    assert "<ul class=verdicts>" not in report_page("s", "", "", frame(("n/a", "n/a")), [table()], {}, {})
    page = page_of(table())
    assert page.count(NOTE) == 1 and page.count('href="#note-perplexity-1"') == 2
    assert "2 published rows not run here" in page
    run, unrun = page.split("<details class=unrun>")
    assert "published_<wbr>large" not in run and "published_<wbr>large" in unrun


REMOTES = {
    "https://github.com/o/retable.git": "https://github.com/o/retable/commit",
    "https://user@gitlab.com/group/sub/retable": "https://gitlab.com/group/sub/retable/commit",
    "git@github.com:o/retable.git": "https://github.com/o/retable/commit",
    "ssh://git@host.example/o/retable.git": "https://host.example/o/retable/commit",
} | dict.fromkeys(("/srv/git/retable.git", "../retable", "javascript:alert(1)", None), "")


def test_commits_are_links_where_the_host_is_known():
    assert {remote: commit_page(remote) for remote in REMOTES} == REMOTES


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page in the browser; the test fails if the page requests something from the network, or reports an
    error.
    """
    asked, said = [], []

    def open_page(text: str, width: int = 1280, scheme: str = "light"):
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 850}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    assert not said and all(url.startswith(("file:", "blob:", "data:")) for url in asked)


def systems(page) -> list[str]:
    shown = page.locator("section.table .sorts").first.locator("tbody > tr:visible")
    cells = [shown.nth(i).locator("th") for i in range(shown.count())]
    texts = [cell.inner_html().replace("<wbr>", "").rpartition("</button>")[2] for cell in cells]
    return [re.match(r"\w+", text)[0] for text in texts]


def test_a_heading_sorts_the_filter_filters_and_plus_shows_all_of_a_row(opened):
    page = opened(page_of(table()))
    assert systems(page) == [*SYSTEMS]
    heads = page.locator("section.table .sorts").first.locator("thead tr").last.locator("th:visible")
    assert heads.all_inner_texts() == ["System", "PPL/word", "95 % interval", "published", "verdict"]
    more = page.get_by_role("button", name="all of system_0", exact=True)
    more.click()
    details = page.locator("section.table dl").first
    shown = zip(details.locator("dt").all_inner_texts(), details.locator("dd").all_inner_texts(), strict=True)
    facts = {"Context": "carried", "Validation PPL/word": "99.00", "Validation bits": "0.9", "FLOPs": "2.5e+12"}
    assert dict(shown) == facts
    more.click()
    assert page.locator("section.table dl").count() == 0
    for order in ("ascending", "descending"):
        page.get_by_role("columnheader", name="PPL/word").last.click()
        page.locator(f"th[aria-sort={order}]").wait_for()
        assert systems(page) == sorted(SYSTEMS, key=SYSTEMS.get, reverse=order == "descending")
    page.get_by_placeholder("Filter").fill("system_7")
    assert systems(page) == ["system_7"]
    page.get_by_text("2 published rows").click()
    assert page.get_by_text("published_medium").is_visible()


@pytest.mark.parametrize(("width", "seen"), [(1280, 5), (390, 4), (300, 3)])
def test_the_first_columns_fit_the_page_and_a_button_opens_all(opened, width, seen):
    page = opened(page_of(table()), width)
    heads = page.locator("section.table .sorts").first.locator("thead tr").last.locator("th:visible")
    box = page.locator(".scroll").first
    fits, page_fits = "box => box.scrollWidth <= box.clientWidth", f"document.documentElement.scrollWidth == {width}"
    assert heads.count() == seen and box.evaluate(fits) and page.evaluate(page_fits)
    assert heads.filter(has_text="PPL/word").first.get_attribute("title") == meaning("PPL/word")
    every = page.get_by_role("button", name="All 9 columns")
    every.click()
    assert heads.count() == 9 and page.evaluate(page_fits) and (width > 390) == box.evaluate(fits)
    page.get_by_role("button", name="Fewer columns").click()
    assert heads.count() == seen and every.is_visible()


def test_a_display_name_is_followed_by_its_key():
    shown = replace(table(), panels={"ptb": [Row([Value("Elman RNN", key="elman"), *[Value("1")] * 9])]})
    assert "Elman RNN <code class=key>elman</code>" in page_of(shown)
    assert "| Elman RNN (`elman`) |" in markdown_table(shown)


def test_a_table_in_markdown_has_seven_columns_and_all_below_a_fold():
    wide = replace(table(), lead=())
    first, fold, every = re.split("(<details>)", markdown_table(wide), maxsplit=1)
    assert first.count("---") and fold and "<summary>All 10 columns</summary>" in every
    tested = [f"Test {title}" for title in ("PPL/word", "95 % interval", "published", "verdict")]
    heads = ["System", "Validation PPL/word", "Validation bits", *tested]
    shown = [next(line for line in text.splitlines() if line.startswith("| System")) for text in (first, every)]
    columns = [[head.strip() for head in line.strip("| ").split(" | ")] for line in shown]
    assert columns == [heads, [column.name for column in wide.columns]]


def test_a_number_opens_all_runs_that_made_it(opened):
    cells = {"": [entry(name, made_from=[("pretrain/ptb/x-1", "run-pretrain-ptb-x-1")]) for name in CELLS]}
    cells["pretrain"] = [entry("pretrain/ptb/x-1", commit_url="https://github.com/o/r/commit/c0ffee", config="lr: 1")]
    first, second, *rest = table().panels["ptb"]
    several = Row([*second.values[:4], Value("101.00", "0.50", runs=tuple(CELLS[:3])), *second.values[5:]])
    page = opened(page_of(replace(table(), panels={"ptb": [first, several, *rest]}), cells=cells))
    page.get_by_role("link", name="101.00").click()
    dialog = page.get_by_role("dialog")
    assert dialog.locator("summary").all_inner_texts() == CELLS[:3]
    page.keyboard.press("Escape")
    page.get_by_role("link", name="100.00").first.click()
    assert dialog.locator(".command").first.inner_text() == f"python -m pipelines.evaluate cell={CELLS[0]}"
    dialog.get_by_role("button", name="Copy").first.click()
    dialog.get_by_role("button", name="Copied").wait_for()
    dialog.get_by_role("link", name="pretrain/ptb/x-1").click()
    assert dialog.get_by_role("link", name="c0ffeec0ff").get_attribute("href") == "https://github.com/o/r/commit/c0ffee"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_figures_are_drawn_tell_values_at_the_mouse_and_give_their_data(opened):
    """The last figure names its data in its parts, as maps of words do; their many cells would be larger as JSON."""
    data = pd.DataFrame({"loss": [3.5, 2.25], "name": ["a, b", 'c "d"']})
    bars = alt.Chart(data).mark_bar().encode(x="loss:Q", y="name:N", tooltip=["name:N", "loss:Q"])
    form = alt.DataFormat(type="csv")
    texts = [alt.InlineData(values=f"word,x\n{word},1.5\n", format=form) for word in ("cat", "dog")]
    parts = [alt.Chart(text).mark_text().encode(x="x:Q", text="word:N") for text in texts]
    page = opened(page_of(table(), figures={f"Losses {NASTY}": bars, "Words": alt.hconcat(*parts)}))
    written = []
    for place, drawn in ((0, ".mark-rect path"), (1, "svg text")):
        figure = page.locator("figure").nth(place)
        figure.scroll_into_view_if_needed()
        figure.locator(drawn).first.wait_for(state="attached")
        with page.expect_download() as downloaded:
            figure.get_by_role("button", name="Data (CSV)").click()
        written.append(Path(downloaded.value.path()))
    assert pd.read_csv(written[0]).equals(data)
    assert written[1].read_text(encoding="utf-8") == "word,x\ncat,1.5\n\nword,x\ndog,1.5"
    page.locator("figure .mark-rect path").nth(1).hover()
    page.locator("#vg-tooltip-element.visible").wait_for()
    assert page.locator("#vg-tooltip-element td").all_inner_texts() == ["name", 'c "d"', "loss", "2.25"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_has_nothing_to_say(opened, scheme):
    page = opened(page_of(table()), scheme=scheme)
    for _ in range(2):  # in the page, and in its dialog
        checked = Axe().run(page)
        assert checked.violations_count == 0, checked.generate_report()
        page.get_by_role("link", name="100.00").first.focus()
        page.keyboard.press("Enter")
