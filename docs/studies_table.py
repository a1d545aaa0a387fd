"""The table of all studies on docs/studies.md: question, data, systems, seeds, cost, answer, verdicts, commit."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pandas as pd

from retable.core.escaping import markdown
from retable.planning.conf import Conf
from retable.planning.study import Study, read_study
from retable.reporting.answers import answered
from retable.reporting.results import CELL, ORACLE, read_references
from retable.reporting.verdicts import MEANINGS, judged

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
HEADS = ("study", "question", "data", "systems", "seeds", "cost", "answer", "verdicts", "commit")
SHOWN = 3  # corpora
NUMBERS = ("mean", "std", "n", "ci_low", "ci_high")  # columns of the aggregates
README = (
    *("history", "ptb", "ptb_combined", "shakespeare", "wordvectors"),
    *("tagging", "glue", "squad", "translation_tiny", "scaling_laws"),
)


def table_of_studies() -> str:
    """Return the table in Markdown, with one row per study. Studies that never ran are last."""
    conf = Conf(ROOT / "conf")
    studies = [read_study(conf, file) for file in sorted(STUDIES.glob("*/study.yaml"))]
    rows = sorted((_row(study) for study in studies), key=lambda row: (row["commit"] == "never run", row["study"]))
    lines = [" | ".join(HEADS), " | ".join("---" for _ in HEADS)]
    lines += [" | ".join(row[head] for head in HEADS) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def table_of_answers() -> str:
    """Return the questions and answers of the README's studies in Markdown."""
    conf = Conf(ROOT / "conf")
    lines = ["| study | question | answer |", "| --- | --- | --- |"]
    for name in README:
        row = _row(read_study(conf, STUDIES / name / "study.yaml"))
        study = f"[`{name}`](studies/{name}/results/report.md)"
        lines.append(f"| {study} | {row['question']} | {row['answer']} |")
    return "\n".join(lines)


def _row(study: Study) -> dict[str, str]:
    results = STUDIES / study.name / "results"
    name = f"[`{study.name}`](../studies/{study.name}/results/report.md)"
    report = (results / "report.md").read_text(encoding="utf-8") if (results / "report.md").exists() else ""
    commit = commit_of(results)
    return {
        "study": name if report else f"`{study.name}`",
        "question": markdown(study.reported.get("question", "")),
        "data": _data(study),
        "systems": str(len({cell.settings["system"] for cell in study.cells.values() if "system" in cell.settings})),
        "seeds": _seeds(study),
        "cost": markdown(study.reported.get("cost", "")),
        "answer": markdown(answered(study.reported.get("answer", ""), aggregates(results))) if report else "",
        "verdicts": _verdicts(aggregates(results)) if report else "",
        "commit": f"`{commit}`" if commit else "never run",
    }


def commit_of(results: Path) -> str:
    """Return the commit that made most cells of a study, according to its report; "" if the study never ran."""
    report = results / "report.md"
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    commits = Counter(re.findall(r"\bcommit ([0-9a-f]{7,10})\b", text))
    return commits.most_common(1)[0][0] if commits else ""


@cache
def aggregates(results: Path) -> pd.DataFrame:
    """Return the aggregates of a study: the rows of its committed tables, each once."""
    tables = [
        pd.read_csv(path, keep_default_na=False, dtype=dict.fromkeys(CELL, str))
        for path in sorted(results.glob("*.csv"))
    ]
    tables = [table for table in tables if {*CELL, "mean", "n", "ci_low", "verdict"} <= {*table}]
    if not tables:
        return pd.DataFrame(columns=[*CELL, *NUMBERS, "verdict"])
    rows = pd.concat(tables).drop_duplicates(CELL)
    return rows.assign(**{name: pd.to_numeric(rows[name], errors="coerce") for name in NUMBERS})


def _data(study: Study) -> str:
    corpora = list(dict.fromkeys(cell.corpus or cell.settings.get("task", "") for cell in study.cells.values()))
    corpora = [each for each in corpora if each]
    more = f" and {len(corpora) - SHOWN} more" if len(corpora) > SHOWN else ""
    return ", ".join(f"`{each}`" for each in corpora[:SHOWN]) + more


def _seeds(study: Study) -> str:
    seeds: dict[tuple[str, ...], set[str]] = {}
    for cell in study.cells.values():
        if "seed" in cell.settings:
            seeds.setdefault((cell.stage, cell.corpus, cell.settings.get("system", "")), set()).add(
                cell.settings["seed"]
            )
    counts = sorted({len(each) for each in seeds.values()})
    return "–".join(map(str, dict.fromkeys([*counts[:1], *counts[-1:]])))


def _verdicts(frame: pd.DataFrame) -> str:
    counts = Counter(judged(frame[frame["system"] != ORACLE], _references())["verdict"])
    return ", ".join(f"{counts[each]} {each}" for each in MEANINGS if counts[each])


_references = cache(read_references)
