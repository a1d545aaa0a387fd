"""Read the results of cells (output folders of single runs) or records, and average them over seeds.

An averaged row has a system, corpus, task, split and metric.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from safetensors import SafetensorError, safe_open
from scipy.special import softmax

from retable.core import artifacts
from retable.core.errors import UsageError
from retable.core.settings import resolve, shown
from retable.core.trust import NotTrusted
from retable.metrics.comparison import FEWEST
from retable.metrics.intervals import mean_std, paired_test
from retable.metrics.likelihood import BYTES_LOST, LIKELIHOODS, Likelihoods
from retable.metrics.units import Measured, Sums
from retable.reporting.units import UnitSums
from retable.reporting.verdicts import COLUMN, SEEDS, judged, tolerance_of

MEASURED = ("prepare", "evaluate", "from_scratch", "finetune", "scaling")  # stages whose metrics are in the tables
SPLITS = ("train", "validation", "test")
ORACLE = "oracle"  # The true distribution of text, labels (Bayes-optimal prediction) or hidden words.
# Prefixes of metrics of the grammar itself. These metrics do not depend on the model of the cell that computed them.
BOUNDS = ("masked", "next_sentence", "sentence_order", "spans", "prefix", "replaced")
DIRECTIONS = ("forward", "backward", "mean")  # directions of reading, and their mean
CELL = ["system", "corpus", "task", "split", "metric"]
COLUMNS = [
    *CELL, "protocol", "mean", "std", "n", "ci_low", "ci_high", "p_best",
    "published", "tolerance", "verdict", "source", "runs", "flops", "note",
]  # fmt: skip
# Names of the tables that reports show, for a cell or a benchmark. Tables in OF_NAMES contain texts, such as labels and
# words; tables in OF_NUMBERS contain only numbers.
OF_NAMES = ("units", "curve", "neighbours", "plane", "unseen_words", "alignments", "attention")
OF_NUMBERS = ("phenomena", "positions", "gradients", "gradient_norms", "sampling", "scaling", "heads")
TABLES = ("samples.jsonl", *(f"{name}.csv" for name in (*OF_NAMES, *OF_NUMBERS)))
NAMES = (
    *("label", "prediction", "word", "rank", "neighbour", "stem", "form", "source", "target", "id", "document"),
    *("set", "part"),
)
_MIX = "mix.csv"  # Table with layer, share and gamma of the scalar mix in model.safetensors.
RATES = ("fertility", "compression", "unknown", "unk_in_text", "lost")  # Metrics of a tokenizer on a text.
AFTERWARDS = "the tolerance was set after the run"
JUDGED = ("published", "tolerance", "verdict", "source", "note")  # Columns that a published number adds to a row.
MIX = "model.mix."  # Prefix of the names of a scalar mix's weights.
OVERLAP = "overlap_"  # Prefix of metrics of the overlap between test and training data.
ABSENT: Mapping[str, Any] = {  # Values for keys that are missing in `references.yaml`.
    **{"task": "", "beside": "corpus", "averaged": 1, "afterwards": False, "memory": False, "measured": False},
    **dict.fromkeys(("tolerance", "deviation", "rounding", "items", "flops"), np.nan),
    **dict.fromkeys(("basis", "open", "other_recipe", "not_run", "relative_to", "repeats", "note"), ""),
}


@dataclass(frozen=True)
class Result:
    """The results of a cell `outputs/<stage>/<corpus>/<cell>/`, or of one benchmark of an evaluation."""

    name: str  # The cell's name with its stage, such as evaluate/grammar/lstm-1-perplexity.
    run: dict  # Contents of run.json.
    metrics: dict[str, float]  # Contents of metrics.json.
    config: str  # Text of config.yaml; "" if it is missing.
    tables: dict[str, pd.DataFrame]  # The existing TABLES and `mix`, by file name without suffix.
    record: dict = field(default_factory=dict)  # How the cell was made, for `runs.csv` and pages.
    benchmark: str = ""  # Name of the benchmark, for an evaluation.

    @cached_property
    def sums(self) -> dict[str, Sums]:
        """The `Sums` of each metric with scores per test unit, by its name in `metrics.json`.

        Raises: UsageError: `metrics.json` contradicts `units.csv`.
        """
        known: dict[str, Sums] = {}
        if "units" not in self.tables:
            return known
        config = yaml.load(self.config, yaml.CSafeLoader) or {}
        measured, unit = self._measured(config), config.get("corpus", {}).get("unit", "")
        for key, (task, split, metric) in ((key, cell) for key in self.metrics if (cell := _cell(key))):
            try:
                units = measured.rows(self.tables["units"], task, split)
                sums = measured.sums(units, metric)
            except (KeyError, ValueError) as error:
                raise UsageError(
                    f"{self.name}: cannot compute {key} from units.csv: {error}; run the stage again"
                ) from None
            if sums is None:
                continue
            value, recomputed = self.metrics[key], sums.value()
            if not np.isclose(value, recomputed, rtol=1e-4):  # units.csv has fewer digits than metrics.json
                raise UsageError(
                    f"{self.name}: metrics.json has {metric} {value:.6g} on {split}, "
                    f"but its units give {recomputed:.6g}; run the stage again"
                )
            known[key] = sums._replace(blocks=measured.blocks(units, unit))
        return known

    def _measured(self, config: dict[str, Any]) -> type[Measured]:
        """Return the class that computes metrics from units.

        The class is that of the task or the benchmark; the oracle of `prepare` uses `Likelihoods`.
        """
        part = config.get("task") or config.get("benchmark", {}).get(self.benchmark)
        if not part:
            return Likelihoods
        try:
            kind: Any = resolve(part["_target_"])
        except NotTrusted as error:
            raise UsageError(f"{self.name}: {error}") from None
        except UsageError:
            target = part["_target_"]
            raise UsageError(f"{self.name} was made by {target}, which no longer exists; run it again") from None
        return kind


Systems = dict[str, list[Result]]  # results of each system, sorted by seed


def by_corpus(results: Iterable[Result], table: str) -> Iterator[tuple[str, Systems]]:
    """Yield each corpus with the results that contain `table`, by system, sorted by seed."""
    per_corpus: dict[str, Systems] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: (result.run["system"], result.run["seed"] or 0, result.name)):
        if table in result.tables:
            per_corpus[result.run["corpus"]][result.run["system"]].append(result)
    yield from sorted(per_corpus.items())


def read_result(folder: Path) -> Result:
    """Read the result of a cell, or of one benchmark of an evaluation.

    folder: the folder of a cell, or of a benchmark in the cell of an evaluation.

    Raises: UsageError: `run.json` or `metrics.json` is missing or damaged.
    """
    cell = folder.parent if (folder.parent / "run.json").exists() else folder
    run = artifacts.read_run(cell)
    parts = cell.parts
    return result_of(
        "/".join(parts[parts.index(run["stage"]) :] if run.get("stage") in parts else parts[-1:]),
        run,
        artifacts.read_json(folder / "metrics.json"),
        artifacts.require(path).read_text(encoding="utf-8") if (path := cell / "config.yaml").exists() else "",
        tables_in(folder),
        artifacts.read_record(cell),
        folder.name if folder != cell else "",
    )


def result_folders(cell: Path) -> Sequence[Path]:
    """Return the folders that contain a cell's metrics: the cell itself, or one per benchmark of an evaluation."""
    return [path.parent for path in sorted(cell.glob("*/metrics.json"))] or [cell]


def intervals(cell: Path, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """Return the 95 % intervals of those metrics in `names` that have scores per test unit.

    The bounds are NaN if there are too few units.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for result in map(read_result, result_folders(cell)):
        kept = replace(result, metrics={name: result.metrics[name] for name in names if name in result.metrics})
        bounds |= {name: UnitSums([sums]).interval for name, sums in kept.sums.items()}
    return bounds


def result_of(
    name: str,
    run: dict[str, Any],
    metrics: dict[str, float],
    config: str,
    tables: Mapping[str, str],
    record: dict[str, Any],
    benchmark: str = "",
) -> Result:
    """Build a result from the contents of its files; `tables` maps file names to texts.

    Raises: UsageError: a name in `run.json` is not suitable for file names.
    """
    for fact in ("stage", "system", "corpus", "task"):  # reports use these facts in file names
        if not _is_name(run.get(fact)):
            raise UsageError(f"{name}/run.json: {fact}={shown(run[fact])} is not a name; copy the cell again")
    read = {file.partition(".")[0]: _table(file, tables[file]) for file in (*TABLES, _MIX) if file in tables}
    return Result(name, run, metrics, config, read, record, benchmark)


def _table(file: str, text: str) -> pd.DataFrame:
    if file == "samples.jsonl":
        return pd.DataFrame([json.loads(line) for line in text.split("\n") if line])
    if file == _MIX:  # Python parses the numbers, because pandas' float parser may lose the last bit
        return pd.read_csv(StringIO(text), dtype={"share": str, "gamma": str}).astype({"share": float, "gamma": float})
    if file.removesuffix(".csv") in OF_NUMBERS:
        return pd.read_csv(StringIO(text), dtype={"value": str})
    # labels and words stay texts, even "1" and "NA"
    return pd.read_csv(StringIO(text), dtype=dict.fromkeys(NAMES, str), keep_default_na=False)


def tables_in(folder: Path) -> dict[str, str]:
    """Return the TABLES of a result folder, as texts by file name.

    If the weights include a scalar mix, its layers, shares and gamma are added as `mix.csv`.

    Raises: UsageError: a file is damaged.
    """
    tables = {
        name: artifacts.require(path).read_text(encoding="utf-8") for name in TABLES if (path := folder / name).exists()
    }
    mix = _read_mix(folder)
    return tables if mix is None else tables | {_MIX: mix.to_csv(index=False, lineterminator="\n")}


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isprintable() and "/" not in value)


def _read_mix(folder: Path) -> pd.DataFrame | None:
    """Read the share of each layer in a model's `nn.scalar_mix`; None if it has no scalar mix."""
    if not (path := folder / "model.safetensors").exists():
        return None
    artifacts.require(path)
    try:
        with safe_open(path, "np") as file:  # `safe_open` reads only the requested tensors
            if not {MIX + "weights", MIX + "gamma"} <= set(file.keys()):
                return None
            weights, gamma = (file.get_tensor(MIX + name).astype(np.float64) for name in ("weights", "gamma"))
    except SafetensorError as error:
        raise UsageError(f"{path} is damaged ({error}); remove it and run `dvc repro` to make it again") from None
    config = yaml.safe_load(artifacts.require(folder / "config.yaml").read_text(encoding="utf-8"))
    layers = config["model"].get("layers") or range(len(weights))
    return pd.DataFrame({"layer": layers, "share": softmax(weights), "gamma": float(gamma)})


def read_references() -> pd.DataFrame:
    """Return the published numbers of `references.yaml`, a row per number; see `references_of`."""
    return references_of(resources.files(__package__).joinpath("references.yaml").read_text(encoding="utf-8"))


def references_of(text: str) -> pd.DataFrame:
    """Return the published numbers of a file like `references.yaml`, a row per number.

    The columns are those of CELL, the keys of the file, and `given` (see `with_tolerances`). A missing `table` is
    replaced by the source, other missing keys by the values in ABSENT.
    """
    rows: list[dict[str, Any]] = []
    section: dict[str, Any] = {}
    for part in yaml.load(text, yaml.CSafeLoader):
        if "systems" not in part:
            section = {**ABSENT, **part}
            continue
        source = section | {"table": part["source"]} | part
        systems, metrics = source.pop("systems"), source.pop("metric")
        for place, metric in enumerate([metrics] if isinstance(metrics, str) else metrics):
            for system, entry in systems.items():
                of_system = source | entry
                for split in of_system["values"]:
                    row = {key: _of(value, split, place) for key, value in of_system.items()}
                    rows.append(row | {"metric": metric, "system": system, "split": split, "value": row.pop("values")})
    return with_tolerances(pd.DataFrame(rows))


def with_tolerances(references: pd.DataFrame) -> pd.DataFrame:
    """Compute the `tolerance` of each published number for SEEDS seeds; `given` keeps the file's tolerance.

    Notes are extended for numbers from memory, for tolerances that were set after the run, and for settings that the
    source leaves open.
    """
    digits = references["value"].map(lambda value: len(str(value).partition(".")[2]) if value % 1 else 0)
    digits = digits.groupby([references[name] for name in COLUMN]).transform("max")
    references = references.assign(given=references["tolerance"])
    references["rounding"] = references["rounding"].fillna(0.5 * 10.0**-digits)
    references["tolerance"] = [tolerance_of(row, SEEDS) for row in references.to_dict("records")]
    return references.assign(note=["; ".join(filter(None, _notes(row))) for row in references.itertuples()])


def _notes(row: Any) -> Sequence[str]:
    is_open = row.open and f"not stated in the source: {row.open}"
    return row.note, "the published number is quoted from memory" * row.memory, AFTERWARDS * row.afterwards, is_open


def _of(value: Any, split: str, place: int) -> Any:
    """Return a field for one split and for the metric at index `place`.

    A field may be a mapping by split, a list by metric, or both.
    """
    value = value[split] if isinstance(value, dict) else value
    return value[place] if isinstance(value, list) else value


def tidy(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per run and metric.

    The columns are those of CELL, value, seed, protocol, result and sums. `sums` contains the scores per test unit that
    the value is computed from, or None.

    The names in `metrics.json` determine task, split and metric:

    - `<split>/<likelihood>`: a metric of a language model. The task is empty.
    - `<task>/<split>/<metric>`: a metric of a task. For some tasks, `split` is another part of the data: a section of
      `analogies`, a set of `similarity`, a layer of `senses` and `probes`, a group of `blimp`, the sentences of
      `steering`, or a part of `law`.
    - `held_out/<metric>`, `senses/<metric>` and `unseen_words/<metric>`: a metric of a task. The split is empty.
    - `<split>/<direction>/<likelihood>`: a metric of a language model. The task is the direction of reading.
    - `<bound>/<metric>`: a metric of the oracle.
    - `vocab_size` and `<split>/<rate>`: a metric of a tokenizer.

    Other metrics, such as counts, are omitted.

    Raises: UsageError: two results have the same metric of one system and seed.
    """
    rows = []
    for result in results:
        run = result.run
        own = run["system"], run.get("protocol", "")
        for key, value in result.metrics.items():
            if cell := _cell(key):
                system, protocol = (ORACLE, "") if cell[0] in BOUNDS else own
                sums = result.sums.get(key)
                value = sums.value() if sums else value
                rows.append((system, run["corpus"], *cell, value, run["seed"], protocol, result, sums))
    frame = pd.DataFrame(rows, columns=[*CELL, "value", "seed", "protocol", "result", "sums"])
    repeated = frame[frame.duplicated([*CELL, "seed"], keep=False)]
    if len(repeated):
        _, alike = next(iter(repeated.groupby([*CELL, "seed"], dropna=False)))
        first, second = alike["result"].iloc[:2]
        system, seed, corpus = (alike[name].iloc[0] for name in ("system", "seed", "corpus"))
        remedy = "give one of them another system name or another seed"
        if system == ORACLE:
            system, remedy = f"the oracle of {corpus}", "leave one of them out"
        raise UsageError(f"{first.name} and {second.name} both have {system} with seed {seed}; {remedy}")
    return frame


def _cell(key: str) -> tuple[str, str, str] | None:
    match key.split("/"):
        case [*_, metric] if metric.startswith(OVERLAP):
            return None
        case [split, metric] if split in SPLITS and metric in (*LIKELIHOODS, BYTES_LOST):
            return "", split, metric
        case [split, direction, metric] if split in SPLITS and direction in DIRECTIONS and metric in LIKELIHOODS:
            return direction, split, metric
        case [task, split, metric] if split in SPLITS or task in (
            "analogies", "similarity", "sentence_similarity", "senses", "blimp", "probes", "steering", "law",
        ):  # fmt: skip
            return task, split, metric
        case [task, metric] if task in (*BOUNDS, "held_out", "senses", "unseen_words"):
            return task, "", metric
        case [split, metric] if split in SPLITS and metric in RATES:
            return "tokenizer", split, metric
        case ["vocab_size"]:
            return "tokenizer", "", "vocab_size"
    return None


def aggregate(results: Iterable[Result], references: pd.DataFrame) -> pd.DataFrame:
    """Average results over seeds, and compare them with published numbers; return one row per CELL, with COLUMNS.

    std is the sample standard deviation over the n seeds. ci_low and ci_high bound the mean's 95 % bootstrap interval
    over the units of the split (documents, lines, examples). p_best is the p-value of a paired bootstrap against the
    best system, not counting the oracle. Missing values are NaN. ci_low, ci_high and p_best are also NaN for fewer than
    FEWEST blocks of units. flops is NaN here; `published.complete` adds it.
    """
    rows: list[dict] = []
    units: list[UnitSums | None] = []
    for cell, group in tidy(results).groupby(CELL, sort=True):
        group = group.sort_values("seed")
        mean, std = mean_std(group["value"])
        sums = units_of(group)
        units.append(sums if sums and sums.n_blocks >= FEWEST else None)
        low, high = sums.interval if sums else (np.nan, np.nan)
        protocol, runs = ", ".join(sorted({*group["protocol"]} - {""})), [result.name for result in group["result"]]
        row = dict(zip(CELL, cell, strict=True)) | {"protocol": protocol, "mean": mean, "std": std, "n": len(group)}
        rows.append(row | {"ci_low": low, "ci_high": high, "runs": " ".join(runs), "flops": np.nan})
    measured = [name for name in COLUMNS if name not in JUDGED]
    frame = pd.DataFrame(rows, columns=measured).astype(dict.fromkeys(CELL, object))
    frame["p_best"] = _p_best(frame, units)
    return judged(frame, references)[COLUMNS]


def units_of(group: pd.DataFrame) -> UnitSums | None:
    """Combine the runs of one CELL with their scores per test unit; None if a run has no such scores.

    Raises: UsageError: the runs were measured on different units.
    """
    runs = [run for run in group["sums"] if isinstance(run, Sums)]
    if len(runs) < len(group):
        return None
    try:
        return UnitSums(runs)
    except ValueError as error:
        names = ", ".join(result.name for result in group["result"])
        split = group["split"].iloc[0]
        raise UsageError(f"the {split} units of {names}: {error}; run these cells again on the same data") from None


def _p_best(frame: pd.DataFrame, units: list[UnitSums | None]) -> pd.Series:
    """Compute the p-value of each row against the best system of its corpus, task, split and metric.

    The oracle is excluded. A system that was measured on other units than the best system has no p-value, because the
    difference of the two would be meaningless. Units differ if the text is segmented differently. For
    `perplexity_token`, units also differ if the tokenizers differ. If the tokens of a system lose part of the text, and
    other systems read more or less of the text, the system has no p-value either.
    """
    p_best = pd.Series(np.nan, index=frame.index)
    for _, group in frame[frame["system"] != ORACLE].groupby(CELL[1:]):
        group = _comparable(group, units)
        best = next((each.best for row in group.index if (each := units[row])), None)
        if best is None:
            continue
        first = group["mean"].idxmin() if best == "lowest" else group["mean"].idxmax()
        top = units[first]
        for row in group.index:
            other = units[row]
            if top and other and top.text == other.text:
                means = top.compared([frame["mean"][first], frame["mean"][row]])
                resampled = top.compared(top.replicates) - top.compared(other.replicates)
                p_best[row] = paired_test(means[0] - means[1], resampled)
    return p_best


def _comparable(group: pd.DataFrame, units: list[UnitSums | None]) -> pd.DataFrame:
    """Return the rows of a group whose systems read the same text: all of it, or the same part of it.

    If only one of several rows qualifies, no row is returned.
    """
    read = {row: sums for row in group.index if (sums := units[row])}
    if all(sums.whole for sums in read.values()) or len({sums.text for sums in read.values()}) == 1:
        return group
    whole = [row for row in group.index if row not in read or read[row].whole]
    return group.loc[whole if len(whole) > 1 else []]
