"""Test that pages are true: numbers are in the files that they cite, tables equal the results, commands compose,
and named files, stages, studies and settings exist.

A number in prose is written in digits, and a comment in the same paragraph names its source:

    A GPT reaches 9.01, an LSTM 9.21. <!-- from studies/history/results/lineage.csv: gpt_rotary;
    studies/history/results/lineage.csv: lstm -->

The comment has a file, and words of a line of this file. The number must be one of this line, rounded to the digits
written. A share may be written in percent, and a difference without its sign. Not checked are: code in backticks or
fences; years; numbers in a name (GPT-2, T5, v1.1) or of a part (table 1); Python's version; the level of an interval,
95 %; the numbers of list items. Numbers in words, such as three seeds, are not checked.
"""

import re
import shlex
from pathlib import Path

import pytest
import torch
from hydra import compose

from docs.catalogue import functions, read_checks
from pipelines.cli.pages import PIECES, ROOT, filled, pages, table_of
from pipelines.config.project import CONF, STUDIES, study_names
from pipelines.study.compose import composing

GENERATED = tuple(
    ROOT / "docs" / folder for folder in ("api", "results", "systems")
)  # from docstrings and conf/, by the site's own command
SOURCES = ("studies/", "benchmarks/", "conf/", "src/retable/reporting/references.yaml")
WRITTEN = [path for path in pages() if not any(path.is_relative_to(folder) for folder in GENERATED)]
NUMBER = re.compile(r"(?<![\w.,/–-])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w/]|[.,]\d)")
EXEMPT = re.compile(
    r"\b(?:19|20)\d\d\b(?!\.\d)|\b[Tt]ables? \d+|\b[Ss]ections? \d+|\b[Ff]igures? \d+|Python \d\.\d+|95 % (?=interval)"
    r"|^(?:#+| *) ?\d+\. ",
    re.MULTILINE,
)
FORMS = [  # forms of the numbers in a file; 1,000 is one number in a page, and two numbers in a CSV
    re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)"),
    re.compile(r"(?<![\w.,])\d+(?:,\d{3})+(?!\w)"),
]
LONGEST = 128  # characters of a line of prose; lines are wrapped at about 120
OWN = re.compile(r"(?:.*/)?(?:mine|verdicts|running_mean|lstm_wide)(?:\b.*)?")  # names that pages ask readers to create
LEFT_OUT_OF_GIT = ("report.html", "runs.csv")
FROM = re.compile(r"<!--\s+from\s(.*?)-->", re.DOTALL)


def own(named: str) -> bool:
    return OWN.fullmatch(named) is not None


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_fences(text: str) -> str:
    return re.sub(r"^( *)(```|~~~).*?^\1\2$", "", text, flags=re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """Return the prose of a page, with the comments that name sources."""
    text = without_fences(re.sub(r"<!-- (\w+) -->\n.*?<!-- end \1 -->", "", text, flags=re.DOTALL))
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"https?://\S+", "", text)
    text = re.sub(r"<!--(?!\s+from\s).*?-->|<(?!!--)[^>]*>", "", text, flags=re.DOTALL)
    return text


def claims(paragraph: str) -> list[str]:
    """Return the numbers of a paragraph that must be in its sources."""
    return NUMBER.findall(EXEMPT.sub("", FROM.sub("", paragraph)))


def lines_of(paragraph: str) -> list[str]:
    """Return the lines to which the comments of a paragraph point."""
    found = []
    for sources in FROM.findall(paragraph):
        for source in sources.split(";"):
            path, _, words = " ".join(source.split()).partition(": ")
            assert path.startswith(SOURCES), f"{path} is neither a result nor a setting"
            lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
            chosen = [
                line for line in lines if all(re.search(rf"(?<!\w){re.escape(w)}(?!\w)", line) for w in words.split())
            ]
            assert chosen, f"{path} has no line with {words}"
            found += chosen
    return found


def stands_in(number: str, lines: list[str]) -> bool:
    digits = len(number.partition(".")[2])
    value = abs(float(number.replace(",", "").replace("−", "-")))
    half = 0.5 * 10**-digits * (1 + 1e-6)
    for text in (found for line in lines for form in FORMS for found in form.findall(line)):
        other = float(text.replace(",", ""))
        if abs(other - value) <= half or (other <= 1 and abs(100 * other - value) <= half):
            return True
    return False


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_numbers_stand_where_the_page_says(path):
    for paragraph in re.split(r"\n\s*\n", prose(path.read_text(encoding="utf-8"))):
        lines = lines_of(paragraph)
        for number in claims(paragraph):
            assert stands_in(number, lines), f"{number} in: {' '.join(paragraph.split())[:300]}"


@pytest.mark.parametrize(("text", "numbers"), [
    ("The GPT-2 of 2019 (table 3), T5, SQuAD v1.1, word2vec, `lr=0.1` and Python 3.11.", []),
    ("The 95 % interval is 8.88 to 9.16, or 1,000 of 2.", ["8.88", "9.16", "1,000", "2"]),
    ("1. first\n2. second, +10.9 or −3 %", ["+10.9", "−3"]),
    ("[88.7](studies/history/results/gains.csv) of 100.", ["88.7", "100"]),
    ("```\n3\n```\n  ```yaml\n  4\n  ```\n5", ["5"]),
    ("<!-- lineage -->\n6\n<!-- end lineage --> 7", ["7"]),
])  # fmt: skip
def test_what_is_a_claim(text, numbers):
    assert claims(prose(text)) == numbers


def test_what_a_claim_is_looked_up_in():
    said = "<!-- from studies/embedded/results/choices.csv: bert_pretrained test accuracy -->"
    assert all(stands_in(number, lines_of(said)) for number in ("78.0", "75.4", "0.805"))
    assert not any(stands_in(number, lines_of(said)) for number in ("78.1", "40.5"))
    assert not lines_of("no comment")
    with pytest.raises(AssertionError, match="neither a result nor a setting"):
        lines_of("<!-- from LICENSE -->")
    with pytest.raises(AssertionError, match="no line with gpt_best"):
        lines_of("<!-- from studies/history/results/gains.csv: gpt_best -->")


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_tables_and_files_are_as_they_stand(path):
    text = path.read_text(encoding="utf-8")
    assert filled(text) == text, "python -m pipelines.cli.pages writes them anew"
    assert len(re.findall(r"<!-- end \w+ -->", text)) == len(re.findall(r"<!-- (?!end)\w+ -->", text))
    for file, block in re.findall(r"[Ff]rom\s+`((?:conf|src|studies)/[\w/.-]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL):
        assert block in (ROOT / file).read_text(encoding="utf-8"), file


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_is_of_the_table(piece):
    head, _, *rows = table_of(PIECES[piece]).splitlines()
    assert [field.strip() for field in head.split("|")[1:-1]] == [*PIECES[piece].columns.values()]
    whole = (ROOT / PIECES[piece].source).read_text(encoding="utf-8")
    lines = sum(line.startswith("|") for line in whole.splitlines())
    assert len(rows) == lines // 2 - 2  # the file has the table twice: with its first columns, and with all


PAGES = [ROOT / "README.md", *(path for path in WRITTEN if path.is_relative_to(ROOT / "docs"))]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_has_at_most_150_lines_besides_generated_tables(path):
    text = re.sub(r"<!-- ([\w: -]+) -->\n.*?<!-- end \1 -->\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(text.splitlines()) <= 150


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_lines_are_short_and_fences_close(path):
    text = path.read_text(encoding="utf-8")
    lines = without_fences(text).splitlines()
    assert not [line for line in lines if len(line) > LONGEST and not line.lstrip().startswith("|")]
    fences = [line.strip() for line in text.splitlines() if "```" in line]
    assert all(line.startswith("```") and line.count("```") == 1 for line in fences), fences
    assert all(line == "```" for line in fences[1::2]) and len(fences) % 2 == 0, fences


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(path.read_text(encoding="utf-8"))):
        file, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        to = (path.parent / file).resolve() if file else path
        if any(to.is_relative_to(folder) for folder in GENERATED):
            continue
        assert to.exists() and to.is_relative_to(ROOT), target
        if anchor and to.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", without_fences(to.read_text(encoding="utf-8")), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in heads], target


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_what_is_named_is_there(path):
    """Named are files of the project, stages, studies, and choices of the groups of conf/."""
    text = re.sub(r"\]\([^)]*\)", "]", path.read_text(encoding="utf-8"))
    past = path.name == "CHANGELOG.md"  # it also names what no longer exists
    for file in re.findall(r"(?<![\w/.-])(?:conf|src|pipelines|benchmarks|studies|tests)/[\w/.-]+\w", text):
        if not past and not own(file) and not file.endswith(LEFT_OUT_OF_GIT):
            assert (ROOT / file).exists() or list(ROOT.glob(f"{file}*")), file
    for module in re.findall(r"python -m ((?:pipelines|benchmarks|retable)[\w.]*\w)", text):
        assert past or (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    for study in re.findall(r"\bSTUDY=(\w+)|retable (?:repro|graph|report|bands|tables) ([a-z]\w*)", text):
        assert own("".join(study)) or "".join(study) in study_names(), study
    for group in sorted(entry.name for entry in CONF.iterdir() if entry.is_dir()):
        for chosen in re.findall(rf"(?<![\w.]){group}=(\w[\w/,]*)", text):
            for each in chosen.split(","):
                assert own(each) or (CONF / group / f"{each}.yaml").exists(), f"{group}={each}"


def test_every_study_has_its_paragraph():
    pages = ("findings-language-models", "findings-tasks", "studies")
    text = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in pages)
    run, _, rest = text.partition("\n## What has not run\n")
    made = {study for study in study_names() if (STUDIES / study / "results/report.md").exists()}
    assert set(re.findall(r"^## (\w+)$", run, re.MULTILINE)) == made
    assert {*re.findall(r"`(\w+)`", rest)} == {*study_names()} - made


def commands(text: str) -> set[tuple[str, ...]]:
    """Return the commands of stages in fences and backticks, as words, without placeholders that a reader replaces."""
    fences = "\n".join(re.findall(r"^ *```.*?^ *```", text, re.DOTALL | re.MULTILINE))
    lines = [line.removeprefix("$ ") for line in fences.splitlines()]
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_fences(text))]
    found = set()
    for part in (part.strip() for line in lines for part in line.split("&&")):
        if part.startswith("python -m pipelines.") and not {"…", "<"} & {*part} and "--config-dir=mine" not in part:
            found.add(tuple(shlex.split(part, comments=True)[2:]))
    return found


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_commands_compose(path):
    with composing():
        for stage, *words in sorted(commands(path.read_text(encoding="utf-8"))):
            config = stage.removeprefix("pipelines.").removesuffix("_text")  # tokenize_text uses `tokenize`
            if (CONF / f"{config}.yaml").exists() and not any(own(word.partition("=")[2]) for word in words):
                swept = "-m" in words
                given = [word for word in words if word != "-m" and "(" not in word]
                compose(config, [word.partition(",")[0] if swept and "[" not in word else word for word in given])


def test_every_named_test_exists():
    for check in read_checks():
        for test in check.tests:
            path, _, name = test.partition("::")
            assert name in functions(ROOT / "tests" / path), test


def test_the_model_that_a_page_adds_works():
    page = (ROOT / "docs/howto/add-a-system.md").read_text(encoding="utf-8")
    names: dict[str, type] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    model = names["RunningMean"](vocab_size=5, d_model=3)
    ids = torch.tensor([[0, 1, 2, 3], [4, 4, 0, 1]])
    whole, _ = model(ids)
    first, state = model(ids[:, :1])
    rest, _ = model(ids[:, 1:], state)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), whole)
    torch.testing.assert_close(whole[:, -1], model.embedding(ids).mean(1))


def test_the_script_of_a_page_trains():
    page = (ROOT / "docs/howto/python.md").read_text(encoding="utf-8")
    said = page.partition("## Train in a script")[2]
    names: dict[str, object] = {}
    exec(said.partition("```python\n")[2].partition("```")[0], names)
    assert "Both losses are then below half a nat" in said
    assert names["metrics"]["loss"] < 0.5 and names["nats"] < 0.5
