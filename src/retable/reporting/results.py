"""From the folders that stages leave to aggregates: one row a system, corpus, task, split and metric."""

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

MEASURED = ("prepare", "evaluate", "from_scratch", "finetune")  # the stages whose metrics the tables hold
SPLITS = ("train", "validation", "test")
ORACLE = "oracle"  # the true distribution: of the text, of the labels (the Bayes-optimal prediction), of hidden words
# what the grammar itself could reach, whatever cell it ran on
BOUNDS = ("masked", "next_sentence", "sentence_order", "spans", "prefix", "replaced")
DIRECTIONS = ("forward", "backward", "mean")  # that a text is read in, and the mean of both
CELL = ["system", "corpus", "task", "split", "metric"]
COLUMNS = [
    *CELL, "protocol", "mean", "std", "n", "ci_low", "ci_high", "p_best",
    "published", "tolerance", "verdict", "source", "runs", "flops", "note",
]  # fmt: skip
# Tables of a cell, or of a benchmark in it, that reports show: of names, such as labels and words, and of numbers.
OF_NAMES = ("units", "curve", "neighbours", "plane", "unseen_words", "alignments", "attention")
OF_NUMBERS = ("phenomena", "positions", "gradients", "gradient_norms", "sampling", "scaling", "heads")
TABLES = ("samples.jsonl", *(f"{name}.csv" for name in (*OF_NAMES, *OF_NUMBERS)))
NAMES = ("label", "prediction", "word", "rank", "neighbour", "stem", "form", "source", "target", "id", "document")
_MIX = "mix.csv"  # of the scalar mix in model.safetensors: layer, share and gamma
RATES = ("fertility", "compression", "unknown", "unk_in_text", "lost")  # of a tokenizer on a text
PASS, PASS_OTHER, FAIL = "pass", "pass, other recipe", "fail"
AFTERWARDS = "tolerance set after it had run"
JUDGED = ("published", "tolerance", "verdict", "source", "note")  # the columns that come with a published number
MIX = "model.mix."  # what the names of a scalar mix's weights begin with
OVERLAP = "overlap_"  # begins the names of what test data have in common with training data
TOLD = ("source", "other_recipe", "relative_to", "note")  # texts, "" where nothing was published
KNOWN = ("published", "tolerance", *TOLD)


@dataclass(frozen=True)
class Result:
    """What one stage left in `outputs/<stage>/<corpus>/<cell>/`, of an evaluation what one benchmark left below it."""

    name: str  # the cell from the stage on: evaluate/grammar/lstm-1-perplexity
    run: dict  # run.json
    metrics: dict[str, float]  # metrics.json
    config: str  # config.yaml, "" where there is none
    tables: dict[str, pd.DataFrame]  # those of TABLES that it has, and `mix`, by their names without the suffix
    record: dict = field(default_factory=dict)  # what is known of its making, for `runs.write_runs` alone
    benchmark: str = ""  # of an evaluation

    @cached_property
    def sums(self) -> dict[str, Sums]:
        """By the names of `metrics.json` those metrics that the units tell, as the class that made the cell has it.

        UsageError where both contradict each other.
        """
        found: dict[str, Sums] = {}
        if "units" not in self.tables:
            return found
        config = yaml.load(self.config, yaml.CSafeLoader) or {}
        measured, unit = self._measured(config), config.get("corpus", {}).get("unit", "")
        for key, (task, split, metric) in ((key, cell) for key in self.metrics if (cell := _cell(key))):
            try:
                units = measured.rows(self.tables["units"], task, split)
                sums = measured.sums(units, metric)
            except (KeyError, ValueError) as error:
                raise UsageError(f"{self.name}: units.csv doesn't tell {key}: {error}; run the stage again") from None
            if sums is None:
                continue
            value, recomputed = self.metrics[key], sums.value()
            if not np.isclose(value, recomputed, rtol=1e-4):  # a unit's nats are written with fewer digits
                raise UsageError(
                    f"{self.name}: metrics.json has {metric} {value:.6g} on {split}, "
                    f"but its units give {recomputed:.6g}; run the stage again"
                )
            found[key] = sums._replace(blocks=measured.blocks(units, unit))
        return found

    def _measured(self, config: dict[str, Any]) -> type[Measured]:
        """That of the task or the benchmark; the oracle that stage `prepare` leaves has the likelihoods of a text."""
        part = config.get("task") or config.get("benchmark", {}).get(self.benchmark)
        if not part:
            return Likelihoods
        try:
            kind: Any = resolve(part["_target_"])
        except NotTrusted as error:
            raise UsageError(f"{self.name}: {error}") from None
        except UsageError:
            raise UsageError(f"{self.name} was made by {part['_target_']}, which is no more; run it again") from None
        return kind


Systems = dict[str, list[Result]]  # the runs of each system, by seed


def by_corpus(results: Iterable[Result], table: str) -> Iterator[tuple[str, Systems]]:
    """Yield the corpora that any result has this table for, with the runs that have it, by system and seed."""
    found: dict[str, Systems] = defaultdict(lambda: defaultdict(list))
    for result in sorted(results, key=lambda result: (result.run["system"], result.run["seed"] or 0, result.name)):
        if table in result.tables:
            found[result.run["corpus"]][result.run["system"]].append(result)
    yield from sorted(found.items())


def read_result(folder: Path) -> Result:
    """Read a result folder, or that of a benchmark in it; UsageError where it or one of its `run.json` and
    `metrics.json` is missing."""
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
    """Where the metrics of a cell are: in it, or of an evaluation in a folder per benchmark."""
    return [path.parent for path in sorted(cell.glob("*/metrics.json"))] or [cell]


def intervals(cell: Path, names: Collection[str]) -> dict[str, tuple[float, float]]:
    """The 95 % intervals of those metrics of a cell that its units tell, by name; NaN for too few units."""
    found: dict[str, tuple[float, float]] = {}
    for result in map(read_result, result_folders(cell)):
        kept = replace(result, metrics={name: result.metrics[name] for name in names if name in result.metrics})
        found |= {name: UnitSums([sums]).interval for name, sums in kept.sums.items()}
    return found


def result_of(
    name: str,
    run: dict[str, Any],
    metrics: dict[str, float],
    config: str,
    tables: Mapping[str, str],
    record: dict[str, Any],
    benchmark: str = "",
) -> Result:
    """The result of a cell, or of a benchmark in it, from its files: `tables` are texts by file name."""
    for fact in ("stage", "system", "corpus", "task"):  # after which files are called
        if not _is_name(run.get(fact)):
            raise UsageError(f"{name}/run.json: {fact}={shown(run[fact])} is no name; copy the cell from elsewhere")
    read = {file.partition(".")[0]: _table(file, tables[file]) for file in (*TABLES, _MIX) if file in tables}
    return Result(name, run, metrics, config, read, record, benchmark)


def _table(file: str, text: str) -> pd.DataFrame:
    if file == "samples.jsonl":
        return pd.DataFrame([json.loads(line) for line in text.split("\n") if line])
    if file == _MIX:  # to the last bit, which pandas' own parser may not keep
        return pd.read_csv(StringIO(text), dtype={"share": str, "gamma": str}).astype({"share": float, "gamma": float})
    if file.removesuffix(".csv") in OF_NUMBERS:
        return pd.read_csv(StringIO(text), dtype={"value": str})
    # labels and words are names: "1" and "NA" stay what they are
    return pd.read_csv(StringIO(text), dtype=dict.fromkeys(NAMES, str), keep_default_na=False)


def tables_in(folder: Path) -> dict[str, str]:
    """The tables of a result folder that reports show, as texts by file name; with them, as `mix.csv`, the layer, share
    and gamma of a scalar mix in its weights. UsageError for a file that is not as it was written."""
    found = {
        name: artifacts.require(path).read_text(encoding="utf-8") for name in TABLES if (path := folder / name).exists()
    }
    mix = _read_mix(folder)
    return found if mix is None else found | {_MIX: mix.to_csv(index=False, lineterminator="\n")}


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isprintable() and "/" not in value)


def _read_mix(folder: Path) -> pd.DataFrame | None:
    """What a model's `nn.scalar_mix` holds, None where it has none; `model.layers` are those that it mixes."""
    if not (path := folder / "model.safetensors").exists():
        return None
    artifacts.require(path)
    try:
        with safe_open(path, "np") as file:  # reads what is asked for alone
            if not {MIX + "weights", MIX + "gamma"} <= set(file.keys()):
                return None
            weights, gamma = (file.get_tensor(MIX + name).astype(np.float64) for name in ("weights", "gamma"))
    except SafetensorError as error:
        raise UsageError(f"{path} is damaged ({error}); remove it and run `dvc repro` to make it again") from None
    config = yaml.safe_load(artifacts.require(folder / "config.yaml").read_text(encoding="utf-8"))
    layers = config["model"].get("layers") or range(len(weights))
    return pd.DataFrame({"layer": layers, "share": softmax(weights), "gamma": float(gamma)})


def read_references() -> pd.DataFrame:
    """The published numbers of `references.yaml`: CELL's columns, value, source, configuration and beside; tolerance
    and flops, NaN where there is none; other_recipe, not_run, relative_to and note, "" where there is none."""
    text = resources.files(__package__).joinpath("references.yaml").read_text(encoding="utf-8")
    absent = {"task": "", "tolerance": np.nan, "flops": np.nan, "beside": "corpus"}
    absent |= dict.fromkeys(("other_recipe", "not_run", "relative_to"), "")
    rows: list[dict[str, Any]] = []
    section: dict[str, Any] = {}
    for part in yaml.load(text, yaml.CSafeLoader):
        if "systems" not in part:
            section = absent | part
            continue
        source = section | part
        systems, metrics = source.pop("systems"), source.pop("metric")
        for place, metric in enumerate([metrics] if isinstance(metrics, str) else metrics):
            for system, entry in systems.items():
                for split, values in entry["values"].items():
                    value = values[place] if isinstance(metrics, list) else values
                    row = source | entry | {"metric": metric, "system": system, "split": split, "value": value}
                    notes = [row.get("note", ""), AFTERWARDS * row.pop("afterwards", False)]
                    rows.append(row | {"note": "; ".join(filter(None, notes))})
    return pd.DataFrame(rows).drop(columns="values")


def tidy(results: Iterable[Result]) -> pd.DataFrame:
    """One row a run and measured quantity: CELL's columns, and value, seed, protocol, result, and the sums over units
    that the value comes from, None where there are no such.

    Metrics `<split>/<likelihood>` are of language models, whose task is empty; `<task>/<split>/<metric>` and
    `analogies/<section>/<metric>` of tasks, where the section of the analogies stands as their split, and so do the set
    of `similarity/<set>/<metric>`, the layer of `senses/<layer>/<metric>` and `probes/<layer>/<metric>`, the paradigm
    or phenomenon of `blimp/<group>/<metric>`, and which sentences `steering/<sentences>/<metric>` is of;
    `held_out/<metric>`, `senses/<metric>` and `unseen_words/<metric>` have none. `<split>/<direction>/<likelihood>` is
    of a task that is called like the direction. `<bound>/<metric>` is the oracle's, whatever cell it was measured
    beside. `vocab_size` and `<split>/<rate>` are of tokenizers. Others (counts, seconds) are no quantity of a table.
    UsageError where two results claim one seed of one system.
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
        raise UsageError(f"{first.name} and {second.name} both hold {system} with seed {seed}; {remedy}")
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
            "analogies", "similarity", "senses", "blimp", "probes", "steering",
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
    """One row a CELL, with COLUMNS, sorted: seeds averaged, published numbers and verdicts attached.

    std is the sample standard deviation over the n seeds; ci_low and ci_high bound the mean's 95 % bootstrap
    interval over the units of the split (documents, lines, examples); p_best is the paired bootstrap's
    p-value against the best system but the oracle. All are NaN where they don't exist, the last three for fewer than
    FEWEST blocks of units, and so are the flops, which `published.complete` adds.
    """
    rows: list[dict] = []
    units: list[UnitSums | None] = []
    for cell, group in tidy(results).groupby(CELL, sort=True):
        group = group.sort_values("seed")
        mean, std = mean_std(group["value"])
        found = units_of(group)
        units.append(found if found and found.n_blocks >= FEWEST else None)
        low, high = found.interval if found else (np.nan, np.nan)
        protocol, runs = ", ".join(sorted({*group["protocol"]} - {""})), [result.name for result in group["result"]]
        row = dict(zip(CELL, cell, strict=True)) | {"protocol": protocol, "mean": mean, "std": std, "n": len(group)}
        rows.append(row | {"ci_low": low, "ci_high": high, "runs": " ".join(runs), "flops": np.nan})
    measured = [name for name in COLUMNS if name not in JUDGED]
    frame = pd.DataFrame(rows, columns=measured).astype(dict.fromkeys(CELL, object))
    frame["p_best"] = _p_best(frame, units)
    known = references.rename(columns={"value": "published"})[[*CELL, *KNOWN]]
    frame = frame.merge(known, how="left", on=CELL)
    frame[[*TOLD]] = frame[[*TOLD]].fillna("")
    return _judged(frame)[COLUMNS]


def _judged(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with verdicts. A number that was published beside another is judged by the difference of the two, which
    the note tells: then both systems must have been run. It tells also how the recipe is not the published one."""
    cells = frame.set_index(CELL)
    verdicts, notes = [], []
    for row in frame.to_dict("records"):
        mean, published, note = row["mean"], row["published"], row["note"]
        if base := row["relative_to"]:
            other = (base, *(row[name] for name in CELL[1:]))
            mean, published = (
                (row[name] - cells.loc[other, name] if other in cells.index else np.nan)
                for name in ("mean", "published")
            )
            difference = "" if np.isnan(mean) else f": {mean:+.2f}, published {published:+.2f} ± {row['tolerance']:.2f}"
            note = "; ".join(filter(None, [f"judged by the difference to {base}{difference}", note]))
        judged, other = verdict(mean, published, row["tolerance"]), row["other_recipe"]
        verdicts.append(PASS_OTHER if judged == PASS and other else judged)
        notes.append("; ".join(filter(None, [other, note])))
    return frame.assign(verdict=verdicts, note=notes)


def verdict(mean: float, published: float, tolerance: float) -> str:
    """`pass` where |mean − published| <= tolerance, else `fail`; `n/a` where nothing was published, or nothing that a
    tolerance is known for. Where the recipe is not the published one, a table says `pass, other recipe`."""
    if np.isnan([mean, published, tolerance]).any():
        return "n/a"
    # rounded, so that 142.7 against 141.2 ± 1.5 passes, whatever binary fractions make of it
    return PASS if round(abs(mean - published), 9) <= tolerance else FAIL


def units_of(group: pd.DataFrame) -> UnitSums | None:
    """The runs of one CELL on its units, None if one left none; UsageError if their units are not the same."""
    runs = [run for run in group["sums"] if isinstance(run, Sums)]
    if len(runs) < len(group):
        return None
    try:
        return UnitSums(runs)
    except ValueError as error:
        names = ", ".join(result.name for result in group["result"])
        split = group["split"].iloc[0]
        raise UsageError(f"the {split} units of {names}: {error}; run them again on the same data") from None


def _p_best(frame: pd.DataFrame, units: list[UnitSums | None]) -> pd.Series:
    """The p-value of each row against the best system of its corpus, task, split and metric.

    The oracle stands outside. A system measured on other units than the best one (another segmentation, or
    for perplexity_token another tokenizer) has no p-value: their difference means nothing. Neither has one whose tokens
    do not determine the whole text, if it stands next to systems that read more or less of it.
    """
    p_best = pd.Series(np.nan, index=frame.index)
    for _, group in frame[frame["system"] != ORACLE].groupby(CELL[1:]):
        group = _comparable(group, units)
        best = next((found.best for row in group.index if (found := units[row])), None)
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
    """The rows of a group whose systems read the same text: all of it, or all the same part. None where that is one row
    of several."""
    read = {row: found for row in group.index if (found := units[row])}
    if all(found.whole for found in read.values()) or len({found.text for found in read.values()}) == 1:
        return group
    whole = [row for row in group.index if row not in read or read[row].whole]
    return group.loc[whole if len(whole) > 1 else []]
