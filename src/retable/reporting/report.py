"""Write a study's report: the page `report.html`, its Markdown version `report.md`, and a file per table and figure.

Equal records give byte-identical files, except for `report.html`, which also contains facts that git does not store.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from retable.core.artifacts import write_json
from retable.core.errors import UsageError
from retable.core.escaping import markdown
from retable.metrics.likelihood import LIKELIHOODS
from retable.reporting import provenance
from retable.reporting.ablations import ablation_rows
from retable.reporting.alignments import alignment_figures
from retable.reporting.answers import answered
from retable.reporting.attention import attention_figures, heads_tables
from retable.reporting.claims import check_tables
from retable.reporting.comparison import comparison_rows
from retable.reporting.coverage import with_coverage
from retable.reporting.devices import devices_figures, devices_rows
from retable.reporting.diagnostic_figures import diagnostic_figures, phenomena_figure, sampling_figure
from retable.reporting.diagnostics import gradients_rows, phenomena_tables, sampling_rows, scaling_rows
from retable.reporting.elmo import elmo_rows
from retable.reporting.figures import Figure, with_claim, write_figure
from retable.reporting.glue import glue_averages, glue_differences
from retable.reporting.label_efficiency import label_efficiency_figures, scores_by_labels
from retable.reporting.learning_curves import learning_curves, still_falling
from retable.reporting.lineage import gains_rows, lineage_rows
from retable.reporting.markup import Table, markdown_table
from retable.reporting.missing_inputs import missing_inputs_rows
from retable.reporting.mixes import mixes_figures, mixes_frame
from retable.reporting.neighbours import neighbours_tables, unseen_neighbours_tables
from retable.reporting.overlap import with_overlap
from retable.reporting.page import failures, report_page, verdicts
from retable.reporting.perplexities import perplexities
from retable.reporting.pretraining import senses_figures
from retable.reporting.probes import probes_figures
from retable.reporting.provenance import Making, entries
from retable.reporting.published import complete, signed
from retable.reporting.rates import rates_rows
from retable.reporting.results import CELL, COLUMNS, MEASURED, Result, aggregate, read_references, tidy
from retable.reporting.samples import samples_tables
from retable.reporting.scaling_laws import (
    compute_figures,
    fitted,
    isoflop_figures,
    laws_rows,
    models_rows,
    scaling_points,
)
from retable.reporting.shots import shots_figures
from retable.reporting.spreadsheets import write_csv
from retable.reporting.sweeps import sweep_tables
from retable.reporting.tables import Specification, rows_tables, write_table, write_tables
from retable.reporting.vectors import planes, size_curves


def write_report(
    study: str,
    results: Mapping[str, list[Result]],
    out: Path,
    specifications: Mapping[str, Specification],
    notes: Mapping[str, Mapping[str, str]] | None = None,
    ablations: Mapping[str, Mapping[str, Any]] | None = None,
    baseline: str | None = None,
    elmo: Mapping[str, str] | None = None,
    label_efficiency: Mapping[str, Any] | None = None,
    lineage: Mapping[str, int] | None = None,
    gains: Sequence[Mapping[str, Any]] | None = None,
    compare: Sequence[Mapping[str, Any]] | None = None,
    tuned: str | None = None,
    rates: Mapping[str, Mapping[str, float]] | None = None,
    chosen_by: Mapping[str, str] | None = None,
    sweeps: Mapping[str | int, pd.DataFrame] | None = None,
    scaling_laws: str | None = None,
    devices: Mapping[str, Sequence[str]] | None = None,
    lacks: Mapping[str, Mapping[str, str]] | None = None,
    makings: Mapping[str, Making] | None = None,
    remote: str | None = None,
    about: str = "",
    question: str = "",
    answer: str = "",
    figure: Mapping[str, Mapping[str, Any]] | None = None,
    further: str = "",
    present: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> list[Table]:
    """Write a study's tables, figures and report into `out`, and return the tables.

    The scores of oracles come from the `prepare` stage. Other scores come from the stages evaluate, from_scratch,
    finetune, scaling, and tokenize (if measured). Learning curves and origins come from all stages.

    Args:
        study: name of the study.
        results: results by stage; an evaluation has one result per benchmark.
        out: output folder.
        specifications: table specifications by name, in the order of the tables; see `retable.reporting.tables`.
        notes: notes on numbers by corpus and system, such as the reason for a deviation.
        ablations: see `retable.reporting.ablations`.
        baseline: a system; if set, a table lists the differences of other systems to it on GLUE's tasks.
        elmo: names of variants with ELMo by system; see `retable.reporting.elmo`.
        label_efficiency: see `retable.reporting.label_efficiency`.
        lineage: years by system; see `retable.reporting.lineage`, also for `gains` and `tuned`. The tables of
            `lineage`, `gains` and `compare` are the first tables of the report.
        gains: pairs of systems, one pretrained and one trained from scratch.
        compare: pairs of systems; see `retable.reporting.comparison`.
        tuned: a note on how learning rates were found.
        rates: learning rates by system; see `retable.reporting.rates`, which also describes `chosen_by`.
        chosen_by: for each task, the metric by which a learning rate is chosen.
        sweeps: trials of sweeps by the title of their table; see `retable.reporting.sweeps`.
        scaling_laws: a pattern of system names; see `retable.reporting.scaling_laws`.
        devices: systems in several processes, by system; see `retable.reporting.devices`.
        lacks: parts of the study that are not run; see `retable.reporting.missing_inputs`.
        makings: how each cell is made, by the cell's name.
        remote: URL of the repository.
        about: the study's purpose.
        question, answer: texts at the top of the page; see `retable.reporting.answers`.
        figure: claims by the name of the figure's file; see `retable.reporting.claims`. Figures with a claim are below
            the answer.
        further: a sentence about seeds that come from another study.
        present: records of the cells on this machine, by the cell's name; the page shows the runs of these cells.
    """

    def of_rows(name: str, rows: pd.DataFrame) -> Iterator[tuple[Table, pd.DataFrame]]:
        return rows_tables(name, specifications[name], rows)

    measured = [result for stage in MEASURED for result in results.get(stage, [])]
    tokenized = results.get("tokenize", [])
    measured += [result for result in tokenized if "test/fertility" in result.metrics]
    words = {
        result.run["corpus"]: result.metrics["train/words"] for result in tokenized if "train/words" in result.metrics
    }
    everything = [result for listed in results.values() for result in listed]
    references = read_references()
    frame = complete(aggregate(measured, references), references, results.get("pretrain", []), notes or {})
    values, mixes = tidy(measured), mixes_frame(measured)
    averages, averaged = glue_averages(frame, values)
    differences = pd.DataFrame() if baseline is None else glue_differences(values, averaged, baseline)
    compared = [*of_rows("glue-differences", differences)]
    compared += of_rows("elmo", elmo_rows(elmo or {}, values, references))
    compared += of_rows("ablation", ablation_rows(ablations or {}, values))
    by_labels: dict[str, Figure] = {}
    if label_efficiency is not None:
        scores = scores_by_labels(label_efficiency, values)
        compared += of_rows("label-efficiency", scores)
        by_labels = label_efficiency_figures(label_efficiency, scores)
    swept = [*sweep_tables(sweeps or {})]
    laws = {}
    if scaling_laws is not None:
        laws = fitted(scaling_points(scaling_laws, results.get("pretrain", []), values))
    first = [*of_rows("lineage", lineage_rows(lineage or {}, values, everything, tuned or ""))]
    first += of_rows("gains", gains_rows(gains or (), values, tuned or ""))
    first += of_rows("compare", comparison_rows(compare or (), values))
    first += of_rows("rates", rates_rows(rates or {}, chosen_by or {}, results.get("pretrain", []), values))
    in_processes = devices_rows(devices or {}, results.get("pretrain", []))
    first += of_rows("devices", in_processes)
    first += [*of_rows("scaling-laws", laws_rows(laws)), *of_rows("scaling-models", models_rows(laws))]
    shown = with_overlap(signed(pd.concat([frame, averages]), measured), measured)
    shown = with_coverage(shown, measured)
    tables = write_tables(shown, specifications, out)
    tables[:0] = [write_table(table, rows, out) for table, rows in first]
    for pairs in (
        compared,
        of_rows("scalar-mix", mixes),
        neighbours_tables(everything),
        unseen_neighbours_tables(everything),
        phenomena_tables(everything),
        of_rows("gradients", gradients_rows(everything)),
        of_rows("sampling", sampling_rows(everything)),
        of_rows("scaling", scaling_rows(everything)),
        heads_tables(everything),
        samples_tables(everything),
        swept,
        of_rows("lacking", missing_inputs_rows(lacks or {})),
    ):
        tables += [write_table(table, rows, out) for table, rows in pairs]
    figures: dict[str, Figure] = {}
    main: dict[str, Figure] = {}
    pictures: dict[str, str] = {}
    claims, unproven = dict(figure or {}), list[str]()
    for title, name, drawn in (
        ("Test perplexity", "perplexity", perplexities(frame)),
        ("Label efficiency", "label-efficiency", by_labels),
        ("Accuracy by number of examples in the prompt", "shots", shots_figures(frame)),
        ("Loss by size, one curve per budget", "isoflop", isoflop_figures(laws)),
        ("Loss by operations", "compute", compute_figures(laws)),
        ("Speed by number of processes", "devices", devices_figures(in_processes)),
        ("Analogies by size of corpus", "analogies", size_curves(frame, words)),
        ("Word pairs in the plane of their first two principal components", "plane", planes(everything)),
        ("Senses of words by layer", "senses", senses_figures(frame)),
        ("Accuracy of linear probes by layer", "probes", probes_figures(frame)),
        ("Weights of ELMo's layers by task", "scalar-mix", mixes_figures(mixes)),
        ("Attention in a sentence", "attention", attention_figures(everything)),
        ("Alignment of a test sentence", "alignment", alignment_figures(everything)),
        *diagnostic_figures(everything),
    ):
        for key, chart in drawn.items():
            if claim := claims.pop(f"{name}-{key}", None):
                chart, drifts = claimed(chart, claim, out)
                text = claim["claim"]
                unproven += [f"The results contradict the claim {text!r}: {line}" for line in drifts]
                pictures[f"{name}-{key}"] = text = f"{title}, {key}" if drifts else text
                main[text] = chart
            else:
                figures[f"{title}, {key}"] = chart
            write_figure(chart, out / f"{name}-{key}.svg")
    if claims:
        raise UsageError(f"figure: this study does not draw {', '.join(claims)}; name a figure in results/")
    figures |= {f"Learning curves, {name}": figure for name, figure in learning_curves(everything).items()}
    cells = [*{result.name: result for result in everything}.values()]  # one result per cell, not per benchmark
    here = [replace(cell, record=present[cell.name]) if cell.name in present else cell for cell in cells]
    made = entries(here, makings or {}, remote)
    falling = still_falling(cells)
    answer = answered(answer, frame)
    again = f"make repro STUDY={study}"
    facts = [*unproven, *filter(None, (provenance.summary(here), further))]
    title = f"Study {study}"
    page = report_page(title, about, facts, frame, tables, figures, made, again, falling, question, answer, main)
    (out / "report.html").write_text(page, encoding="utf-8")
    write_judged(judged(frame), out)
    top = [f"**{markdown(question)}** {markdown(answer)}"] * bool(question)
    top += [f"![{markdown(text)}]({file}.svg)" for file, text in pictures.items()]
    top += verdict_lines(frame)
    top += [f"Make it again: `{again}`", *filter(None, [markdown(about)])]
    top += map(markdown, [*unproven, *filter(None, [further])])
    text = report_markdown(study, top, [*falling, *provenance.origins(cells)], tables)
    (out / "report.md").write_text(text, encoding="utf-8")
    return tables


def claimed(figure: Figure, claim: Mapping[str, Any], folder: Path) -> tuple[Figure, list[str]]:
    """Use the claim as the figure's title if all rows of the tables in `folder` agree with the claim.

    Returns: the figure, and one line for each row that contradicts the claim.
    """
    drifts = [line for holds, line in check_tables(folder, claim["holds"]) if not holds]
    return (figure if drifts else with_claim(figure, claim["claim"])), drifts


def figures_of_tables(
    folder: Path,
    label_efficiency: Mapping[str, Any] | None = None,
    figure: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Figure]:
    """Draw all figures that need only a study's CSV tables, by the names of their files.

    `label_efficiency` and `figure` are the same as in `write_report`.

    Older studies have no records, only CSV tables. Figures of learning curves, attention and word vectors need records.
    """
    tables = {
        path.stem: pd.read_csv(path, dtype=dict.fromkeys(CELL, str)).fillna(dict.fromkeys([*CELL, "budget"], ""))
        for path in sorted(folder.glob("*.csv"))
    }
    frames = [table for table in tables.values() if {*COLUMNS} <= {*table}]
    frame = pd.concat(frames).drop_duplicates(CELL) if frames else pd.DataFrame(columns=COLUMNS)
    by_labels = [table for name, table in tables.items() if name.startswith("label-efficiency-")]
    points = tables.get("scaling-models")
    laws = {} if points is None else fitted(points, resamples=0)
    diagnostics = {
        name: draw(table["corpus"].iloc[0], table)
        for kind, draw in (("phenomena", phenomena_figure), ("sampling", sampling_figure))
        for name, table in tables.items()
        if name.startswith(f"{kind}-")
    }
    kinds = {
        "perplexity": perplexities(frame),
        "label-efficiency": label_efficiency_figures(label_efficiency or {}, pd.concat(by_labels)) if by_labels else {},
        "shots": shots_figures(frame),
        "isoflop": isoflop_figures(laws),
        "compute": compute_figures(laws),
        "senses": senses_figures(frame),
        "probes": probes_figures(frame),
        "scalar-mix": mixes_figures(tables.get("scalar-mix", pd.DataFrame())),
    }
    figures = diagnostics | {f"{kind}-{key}": chart for kind, drawn in kinds.items() for key, chart in drawn.items()}
    return figures | {name: claimed(figures[name], claim, folder)[0] for name, claim in (figure or {}).items()}


def judged(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the main scores of each system, as means over seeds.

    The main scores are perplexities per word and metrics of tasks, on the test split, or on validation if there is no
    test split. If there are several corpora, the corpus is part of a metric's name.
    """
    means: dict[str, dict[str, float]] = {}
    several = frame["corpus"].nunique() > 1
    shown = frame[(frame["n"] > 0) & (frame["task"] != "tokenizer")]
    shown = shown[~shown["metric"].isin({*LIKELIHOODS} - {"perplexity_word"}) & (shown["split"] != "train")]
    tested = shown.groupby(["system", "corpus", "task"])["split"].transform(lambda splits: (splits == "test").any())
    shown = shown[~(tested & (shown["split"] == "validation"))]
    # if a metric has values for parts of the data, only the total is kept
    whole = shown["split"].isin(("total", "overall"))
    summed = whole.groupby([shown[name] for name in ("system", "corpus", "task")]).transform("any")
    shown = shown[whole | ~summed]
    for row in shown.sort_values(["system", "corpus", "task", "split", "metric"]).itertuples():
        name = "/".join(part for part in (row.corpus * several, row.task, row.split, row.metric) if part)
        means.setdefault(row.system, {})[name] = float(f"{row.mean:.6g}")
    return means


def write_judged(means: Mapping[str, Mapping[str, float]], out: Path) -> None:
    """Write the scores to `metrics.json`, for `dvc metrics`, and to `metrics.csv`, for plots."""
    write_json(out / "metrics.json", means)
    rows = [(system, metric, value) for system, of_system in means.items() for metric, value in of_system.items()]
    write_csv(pd.DataFrame(rows, columns=["system", "metric", "value"]), out / "metrics.csv")


def verdict_lines(frame: pd.DataFrame) -> Iterator[str]:
    """Yield, in Markdown, the number of rows per verdict, and the list of failures, if any."""
    if counted := verdicts(frame):
        yield "Published numbers: " + "; ".join(f"{count} {meaning}" for _, count, meaning in counted) + "."
    if outside := failures(frame):
        yield "\n".join(f"- {markdown(line)}" for line in outside)


def report_markdown(study: str, top: Iterable[str], facts: Iterable[str], tables: Iterable[Table]) -> str:
    """Return the report in Markdown: the paragraphs `top`, facts about the runs in a fold, and the tables."""
    parts = [f"## Study {markdown(study)}", *top, "<details>\n<summary>Commits, requirements and machines</summary>"]
    parts += ["\n".join(f"- {markdown(fact)}" for fact in facts), "</details>"]
    return "\n\n".join([*parts, *(markdown_table(table).rstrip() for table in tables)]) + "\n"
