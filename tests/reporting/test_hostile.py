"""Test a report with names and texts that a browser, Markdown, LaTeX, a spreadsheet or a figure could interpret."""

import csv
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import altair as alt
import markdown as python_markdown
import pandas as pd
import pytest

from retable.core import escaping
from retable.core.errors import UsageError
from retable.reporting.changes import tables_at
from retable.reporting.figures import write_figure
from retable.reporting.markup import Column, Row, Table, Value, latex_table, markdown_table
from retable.reporting.page import report_page
from retable.reporting.provenance import Making
from retable.reporting.results import COLUMNS, read_result
from retable.reporting.spreadsheets import write_csv
from retable.reporting.tables import specified_table
from tests.reporting.specifications import SPECIFICATIONS
from tests.reporting.written import write_report

TEXTS = [
    '=HYPERLINK("https:x","y")', "@SUM(1+1)", "+1+1|cmd", "-2+3", "=cmd|' C'!A0", "\t=1", "\r=1", "a;=1+1", "＝1",
    "$a$ and $\\frac{1}{0}$", "$\\href{javascript:alert(1)}{x}$",
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", '" onmouseover="alert(1)',
    "<svg onload=alert(1)>",
    "<!--<script>", "&lt;script&gt;", "[x](javascript:alert(1))", "![x](https://x)", "`x`", "| a | b |\n|---|---|\n# H",
    "\\input{/etc/passwd}", "\\write18{touch canary}", "}\\immediate\\openout1=canary", "^^5cinput", "%", "{{ 7 * 7 }}",
    "\x1b]0;x\x07\x1b[2J", "a\x00b", "\u202egnp", "\ud800", "click A href \"javascript:alert(1)\"", "__import__('os')",
]  # fmt: skip
NAMES = [text for text in TEXTS if text.isprintable() and "/" not in text]


class Seen(HTMLParser):
    """Records the tags and attributes that a browser would interpret."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)
        self.found += [name for name, value in attributes if name.startswith("on") or (value or "").startswith("javas")]

    def handle_comment(self, text):
        self.found.append("comment")


def obeyed(text: str) -> set[str]:
    (parser := Seen()).feed(text)
    return {*parser.found}


def table(texts) -> Table:
    rows = [Row([Value(text, hint=text, runs=(text,)), Value(text, spread="1", bold=True)]) for text in texts]
    return Table("hostile", texts[0], [Column(texts[0]), Column("b", texts[1])], {texts[2]: rows}, [*texts])


def test_a_field_of_a_spreadsheet_is_no_formula_and_keeps_its_type(tmp_path):
    numbers = ["-1.5", "+3", "-1e-3", ".5", "1", ""]
    frame = pd.DataFrame({"text": TEXTS[:-4], "=1": range(len(TEXTS) - 4)})
    write_csv(frame, tmp_path / "texts.csv")
    write_csv(pd.DataFrame({"said": numbers, "value": [-1.5, 2, 3, 4, float("nan"), -1e-9]}), tmp_path / "numbers.csv")
    with (tmp_path / "texts.csv").open(newline="", encoding="utf-8") as file:
        fields = [field for row in csv.reader(file) for field in row]
    assert len(fields) == 2 + 2 * len(frame)
    assert not [field for field in fields[2:] if re.search(r"(^|[;\t\r\n])[=+\-@＝＋－＠]", field)]
    assert fields[2:20:2] == [
        """'=HYPERLINK("https:x","y")""", "'@SUM(1+1)", "'+1+1|cmd", "'-2+3", "'=cmd|' C'!A0", "'\t'=1", "\\r=1",
        "a;'=1+1", "'＝1",
    ]  # fmt: skip
    with (tmp_path / "numbers.csv").open(newline="", encoding="utf-8") as file:
        said, values = zip(*[*csv.reader(file)][1:], strict=True)
    assert [*said] == numbers and values == ("-1.5", "2.0", "3.0", "4.0", "", "-1e-09")
    frame = pd.DataFrame({"count": [1, None], "text": ["=x", None]}, dtype=object)
    write_csv(frame, tmp_path / "mixed.csv")
    assert (tmp_path / "mixed.csv").read_text() == "count,text\n1,'=x\n,\n" and frame["text"][0] == "=x"


def test_markdown_and_latex_show_texts_as_they_are():
    # GitHub's Markdown, and Python-Markdown, which treats backslashes differently.
    text = markdown_table(table(TEXTS))
    assert len([line for line in text.split("\n") if line.startswith("|")]) == len(TEXTS) + 2
    made = python_markdown.markdown(text, extensions=["tables"])
    assert obeyed(made) <= {"h3", "p", "table", "thead", "tbody", "tr", "th", "td", "strong"}
    assert "&amp;lt;script&amp;gt;" in made and "[x](javascript:alert(1))" in made
    assert escaping.markdown("<unk> a_b | c") == "&lt;unk&gt; a_b \\| c"
    text = latex_table(table(TEXTS))
    commands = {"begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "multicolumn",
                "cmidrule", "emph", "textbf", "pm", "usepackage", "textbackslash", "textasciitilde", "textless",
                "textasciicircum", "textgreater", "textbar"}  # fmt: skip
    assert {*re.findall(r"\\([A-Za-z]+)", text.replace("\\\\", ""))} <= commands
    assert "^^" not in text and not re.search(r"[\x00-\x08\x0b-\x1f]", text)
    unescaped = re.sub(r"\\[&%$#_{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}") and unescaped.count("$") == 2 * text.count(r"$\pm$")


def test_a_page_shows_texts_as_they_are():
    figure = alt.Chart(pd.DataFrame({"system": TEXTS[:-3]})).mark_text().encode(text="system:N")
    facts = dict.fromkeys(COLUMNS, TEXTS[11]) | {"mean": 1.0, "published": 2.0, "tolerance": 0.1, "verdict": "fail"}
    page = report_page(*TEXTS[11:14], pd.DataFrame([facts]), [table(TEXTS[:-3])], {TEXTS[14]: figure}, {})
    own = {"svg", "img", "comment"}
    body = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert not obeyed(body) & own and not [name for name in obeyed(body) if name.startswith("on")]
    (said,) = re.findall(r'<script type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert "<" not in said and json.loads(said)["datasets"]


def test_a_figure_shows_texts_as_they_are(tmp_path):
    drawn = []
    for text in (text.replace("\ud800", "") for text in TEXTS):
        chart = alt.Chart(pd.DataFrame({"system": [text], "y": [1.0]})).mark_text()
        drawn.append(chart.encode(y="y:Q", text="system:N").properties(title=text))
    write_figure(alt.vconcat(*drawn), tmp_path / "figure.svg")
    tags = {each.tag.partition("}")[2] for each in ElementTree.parse(tmp_path / "figure.svg").iter()}
    assert tags <= {"svg", "g", "path", "text", "rect", "line", "tspan", "defs", "clipPath"}


def test_a_study_of_such_names_has_a_report(write_likelihood, write_run, tmp_path):
    folders = []
    for number, name in enumerate(NAMES):
        nats = [20.0 + number] * 5
        folders.append(write_likelihood("evaluate", f"ptb/{number}-1", name, 1, nats))
        (folders[-1].parent / "config.yaml").write_text("a: '</pre><script>alert(1)</script>'\n" + (
            folders[-1].parent / "config.yaml").read_text().split("\n", 1)[1])  # fmt: skip
    cell = write_run("generate", "ptb/texts", "lstm", 1, {"mean_length": 2})
    row = {"prompt": "a", "log_prob": -1.5, "tokens": 2}
    rows = [row | {"text": text, "strategy": f"{i}"} for i, text in enumerate(TEXTS)]
    (cell / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row["text"] != "\ud800"))
    before = {*tmp_path.iterdir()}
    notes = {"ptb": dict(zip(NAMES, TEXTS, strict=False))}
    making = {"evaluate/ptb/0-1": Making('x "><script>alert(1)</script>', "y", {"<b>": "<i>"})}
    out = tmp_path / "results"
    write_report(TEXTS[11], {"evaluate": folders, "generate": [cell]}, out, SPECIFICATIONS, notes, makings=making,
                 remote="javascript:alert(1)", about=TEXTS[12])  # fmt: skip
    assert {*tmp_path.iterdir()} - before == {out}
    body = re.sub(r"<script[^>]*>.*?</script>", "", (out / "report.html").read_text("utf-8"), flags=re.DOTALL)
    assert not obeyed(body) & {"svg", "img", "comment", "i", "onerror", "onmouseover", "onload"}
    made = python_markdown.markdown((out / "report.md").read_text("utf-8"), extensions=["tables"])
    assert not obeyed(made) & {"script", "svg", "img", "a", "h1", "comment"}
    for path in out.glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            fields = [field for row in csv.reader(file) for field in row]
        formulas = {field for field in fields if re.match(r"[=+\-@\t\r]", field)}
        assert not [field for field in formulas if escaping.spreadsheet(field) != field], path


@pytest.mark.parametrize("fact", ["system", "corpus", "task", "stage"])
def test_files_are_called_after_names_alone(write_run, fact):
    folder = write_run("evaluate", "ptb/lstm-1", "lstm", 1, {}, **{"task": None})
    run = json.loads((folder.parent / "run.json").read_text())
    for name in ("../../escaped", "/tmp/escaped", "a\nb", "\x1b[2J", 3, ["x"], {"a": 1}):
        (folder.parent / "run.json").write_text(json.dumps(run | {fact: name}))
        with pytest.raises(UsageError, match=rf"run.json: {fact}=.* is not a name") as refusal:
            read_result(folder)
        assert str(refusal.value).isprintable(), name


@pytest.mark.parametrize("target", ["os.system", "builtins.exec", "retable.core.artifacts.subprocess.run"])
def test_a_table_is_made_by_a_function_of_the_project(target):
    with pytest.raises(UsageError, match=r"table mine: (_target_=.* is not in|there is no )"):
        specified_table("mine", {"_target_": target, "where": {}}, pd.DataFrame())


@pytest.mark.parametrize("commit", ["--output=escaped", "-h", "HEAD;touch escaped", "$(touch escaped)", "HEAD:x\n"])
def test_a_commit_to_compare_with_is_no_option_of_git(tmp_path, monkeypatch, commit):
    monkeypatch.chdir(tmp_path)
    subprocess.run([shutil.which("git") or "git", "init", "-q"], check=True)
    with pytest.raises(UsageError, match="is not a commit"):
        tables_at(commit, tmp_path / "results")
    assert {path.name for path in tmp_path.iterdir()} == {".git"}
