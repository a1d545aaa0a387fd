"""Comparisons of two systems, with intervals that account for both seeds and test units.

A test unit is a document, a line or an example.
A study may list pairs of systems under `compare`:

    compare:
    - {systems: [gpt, lstm]}                                    # by test perplexity per word
    - {systems: [bert_pretrained, bert], metric: sentiment/test/accuracy, corpus: grammar}

`corpus` is needed only if the metric was measured on several corpora. The command `retable compare` and the function
`retable.compare` compute the same rows for any two systems or cells (output folders of single runs).
"""

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from retable.core.artifacts import read_json, read_run
from retable.core.errors import UsageError, closest
from retable.metrics.comparison import Comparison, holm
from retable.metrics.comparison import compare as compare_runs
from retable.metrics.intervals import mean_std
from retable.metrics.likelihood import BYTES_LOST, LIKELIHOODS
from retable.metrics.units import Best, Sums
from retable.reporting.records import read_results
from retable.reporting.results import MEASURED, ORACLE, Result, read_result, result_folders, tidy, units_of

METRIC = "test/perplexity_word"
SMALL = 1e-4  # a smaller p-value is shown as ≤ 0.0001


def comparable(runs: pd.DataFrame, others: pd.DataFrame) -> bool:
    """Check whether the runs of two systems on one metric can be compared.

    If both systems have scores per test unit, the units must be the same. If a system has no scores per test unit, each
    system needs two or more runs.
    """
    units = [units_of(each) for each in (runs, others)]
    return units[0].text == units[1].text if units[0] and units[1] else min(len(runs), len(others)) > 1


def difference(runs: pd.DataFrame, others: pd.DataFrame) -> Comparison:
    """Compare two systems on one metric, from their rows of `results.tidy`.

    Raises: UsageError: the systems are not `comparable`.
    """
    if not comparable(runs, others):
        names = " and ".join(each["result"].iloc[0].name for each in (runs, others))
        raise UsageError(
            f"{names} have no scores of the same units; evaluate both on the same text, with tokenizers that lose no "
            "part of the text"
        )
    has_units = units_of(runs) and units_of(others)
    sums = [[*each["sums"]] if has_units else [] for each in (runs, others)]
    first = runs["sums"].iloc[0]
    likelihood = runs["metric"].iloc[0] in LIKELIHOODS
    scale = first.compared if isinstance(first, Sums) else np.log if likelihood else None
    own, theirs = (each["value"].to_numpy(np.float64) for each in (runs, others))
    if scale is not None:
        own, theirs = scale(own), scale(theirs)
    best: Best = first.best if isinstance(first, Sums) else "lowest" if likelihood else "highest"
    return compare_runs(own, theirs, best, *sums)


def facts_of(result: Comparison) -> dict[str, Any]:
    """Return the table columns of a comparison; `with_holm` adds columns that depend on the other rows."""
    return {
        "difference": result.difference, "difference_low": result.low, "difference_high": result.high, "p": result.p,
        "better": result.better, "pairs": result.pairs, "blocks": result.n_blocks, "_found": result,
    }  # fmt: skip


def comparison_rows(pairs: Sequence[Mapping[str, Any]], values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per pair of systems in a study's `compare`.

    `values` is a frame from `results.tidy`.

    Raises: UsageError: a system lacks the metric, or it is unclear on which corpus to compare the pair.
    """
    return with_holm([_pair(number, pair, values) for number, pair in enumerate(pairs)])


def with_holm(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Add p-values with Holm's correction over all rows, and verdicts that are based on them.

    Rows without a comparison get no p-value and no verdict.
    """
    if not rows:
        return pd.DataFrame()
    p_holm = holm([row.get("p", nan) for row in rows])
    comparisons = [row.get("_found") for row in rows]
    verdicts = [each.verdict(p) if each else "" for each, p in zip(comparisons, p_holm, strict=True)]
    shown = [f"{p:.2g}" if p >= SMALL else "" if np.isnan(p) else f"≤ {SMALL:f}".rstrip("0") for p in p_holm]
    frame = pd.DataFrame(rows).assign(p_holm=p_holm, verdict=verdicts, _p=shown)
    return frame.drop(columns="_found", errors="ignore")


def _pair(number: int, pair: Mapping[str, Any], values: pd.DataFrame) -> dict[str, Any]:
    where, metric = f"compare[{number}]", pair.get("metric", METRIC)
    values = with_names(values)
    if "corpus" in pair:
        values = values[values["corpus"] == pair["corpus"]]
    sides = [values[values["system"] == system] for system in pair["systems"]]
    for system, side in zip(pair["systems"], sides, strict=True):
        if metric not in set(side["name"]):
            raise UsageError(f"{where}: {system} has no {metric} in this study; {closest(metric, {*side['name']})}")
    named = [side[side["name"] == metric] for side in sides]
    corpora = sorted({*named[0]["corpus"]} & {*named[1]["corpus"]})
    if len(corpora) != 1:
        shown = ", ".join(corpora) or "no corpus that both have"
        raise UsageError(
            f"{where}: {metric} was measured on {shown}; set corpus to one on which both systems were measured"
        )
    return row_of(*(each[each["corpus"] == corpora[0]] for each in named))


def with_names(values: pd.DataFrame) -> pd.DataFrame:
    """Add the column `name`: the metric with its task and split, as in metrics.json."""
    parts = values[["task", "split", "metric"]].itertuples(index=False)
    return values.assign(name=["/".join(filter(None, row)) for row in parts])


def row_of(runs: pd.DataFrame, others: pd.DataFrame) -> dict[str, Any]:
    """Return the row of one comparison, for one metric and corpus.

    The frames of both systems come from `with_names`.
    """
    row: dict[str, Any] = {"corpus": runs["corpus"].iloc[0], "metric": runs["name"].iloc[0]}
    for side, each in (("", runs), ("other_", others)):
        each = each.sort_values("seed")
        mean, std = mean_std(each["value"])
        facts = {"system": each["system"].iloc[0], "mean": mean, "std": std, "n": len(each)}
        facts |= {"runs": " ".join(result.name for result in each["result"])}
        row |= {f"{side}{name}": value for name, value in facts.items()}
    return row | facts_of(difference(runs, others))


def compare(a: str, b: str, metric: str | None = None, study: str | None = None) -> pd.DataFrame:
    """Compare two systems or cells on every test metric that both have.

    Args:
        a: name of a cell, such as `pretrain/ptb/lstm-1`, or of a system, which means the cells of all its seeds.
        b: the other cell or system.
        metric: compare only this metric, named as in metrics.json: `test/perplexity_word`, `sentiment/test/accuracy`.
        study: read the committed records of this study; by default read the cells in `outputs/`.

    Returns: a row per corpus and metric. A row contains both means with their standard deviations over seeds, and the
        difference (in nats if the metric is a perplexity) with its 95 % interval. A row also contains the p-value, the
        p-value with Holm's correction over all rows, the number of pairs of runs in which `a` is better, and the
        verdict.

    Raises: UsageError: a cell or system does not exist, or the two have no metric in common.
    """
    sides = [
        values[values["system"] != ORACLE] for values in (with_names(tidy(each)) for each in _sides((a, b), study))
    ]
    common = sorted(set.intersection(*({*zip(side["corpus"], side["name"], strict=True)} for side in sides)))
    selected = [key for key in common if (key[1] == metric if metric else _is_main(key[1], common))]
    if not selected:
        names = {name for _, name in common}
        raise UsageError(
            f"{a} and {b} have no {metric}; {closest(metric, names)}" if metric and names
            else f"{a} and {b} were not measured by the same benchmark or on the same task; evaluate both"
        )  # fmt: skip
    pairs = [[side[(side["corpus"] == corpus) & (side["name"] == name)] for side in sides] for corpus, name in selected]
    return with_holm([row_of(*pair) for pair in [pair for pair in pairs if comparable(*pair)] or pairs])


def _is_main(name: str, common: Sequence[tuple[str, str]]) -> bool:
    """Check whether a metric is shown by default.

    Metrics of the test split are shown, or of validation if a task lacks a test split. Among the metrics of likelihood,
    only the perplexity per word is shown.
    """
    *task, split, metric = name.split("/")
    if metric in (*LIKELIHOODS, BYTES_LOST) and metric != "perplexity_word":
        return False
    tested = any(other.split("/")[:-2] == task and other.split("/")[-2:-1] == ["test"] for _, other in common)
    return split not in ("train", "validation") or (split == "validation" and not tested)


def _sides(names: Sequence[str], study: str | None) -> list[list[Result]]:
    """Return the results of each named system or cell, all from one study's records or one folder of outputs."""
    patterns = [(root, "run.json") for root in (Path("outputs"), *sorted(Path().glob("studies/*/outputs")))]
    if study:
        folders = [path for path in (Path("studies", study, "records"), Path(study, "records")) if path.is_dir()]
        if not folders:
            raise UsageError(f"study {study} has no records here; `retable repro {study}` makes them")
        patterns = [(folders[0], "*.json")]
    known: set[str] = set()
    for root, pattern in patterns:
        roots = [root, *_more_seeds(root)] if study else [root]
        by_place = {
            place.relative_to(each): (place, run)
            for each in reversed(roots)  # the study's own cells take precedence over those of `more_seeds`
            for stage in MEASURED[1:]
            for place, run in _measured(each / stage, pattern)
        }
        cells = [by_place[place] for place in sorted(by_place)]
        sides = [[place for place, run in cells if _is_named(name, place, run)] for name in names]
        if all(sides):
            return [[result for place in side for result in _results(place)] for side in sides]
        known |= {run["system"] for _, run in cells}
    missing = next((name for name in names if name not in known), names[0])
    where, other = (f"the records of study {study} have", "") if study else (
        "outputs/ has", "; or name a study whose records have both: --study NAME"
    )  # fmt: skip
    advice = closest(missing, sorted(known)) if known else "`retable repro` makes some"
    raise UsageError(f"{where} no measured cell or system {missing}; {advice}{other}")


def _more_seeds(records: Path) -> list[Path]:
    """Find the records of the study that trains more seeds, if the `study.yaml` next to `records` names one."""
    file = records.parent / "study.yaml"
    study = yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if file.exists() else {}
    return [records.parent.parent / study["more_seeds"] / "records"] if "more_seeds" in study else []


def _measured(stage: Path, pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each cell of a stage (an output folder or a record file) with its `run.json`."""
    for path in sorted(stage.glob(f"*/{pattern}" if pattern == "*.json" else f"*/*/{pattern}")):
        yield (path, read_json(path)["run"]) if pattern == "*.json" else (path.parent, read_run(path.parent))


def _is_named(name: str, place: Path, run: Mapping[str, Any]) -> bool:
    """Check whether `name` means this cell, its system, or the trained cell that this evaluation measures."""
    if run["system"] == name:
        return True
    cell = name.removeprefix("outputs/").strip("/")
    measured = run["made_from"][:1] if run["stage"] == "evaluate" else []
    return any(f"/{each}".endswith(f"/{cell}") for each in (place.with_suffix("").as_posix(), *measured))


def _results(place: Path) -> Iterator[Result]:
    yield from read_results(place) if place.is_file() else map(read_result, result_folders(place))
