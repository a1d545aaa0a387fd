"""Figures of training and validation losses by training step."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import yaml

from retable.reporting.figures import Figure, titled
from retable.reporting.lines import Look, Scale, line_panel
from retable.reporting.names import display_name
from retable.reporting.results import Result

TRAINING, VALIDATION = "train/loss", "validation/loss"
NOISE = 0.01  # A fall of one run's loss by fewer nats than this (one per cent of perplexity) may be noise.
ENOUGH = 6  # Minimum number of validation losses for a curve.
DECAY = 0.9  # Decay of the moving average of training losses.

# For some objectives: the metric with the lowest possible loss on text of the built-in grammar, and the settings of
# `batches` for which this bound was computed.
BOUND_OF: dict[str, tuple[str, dict[str, Any]]] = {
    "masked_lm": ("masked/corrupted", {"rate": 0.15, "masking": "token"}),
    "text_to_text": (
        "spans/loss",
        {"corruption": {"_target_": "retable.data.corruption.RandomSpans", "density": 0.15, "mean": 3.0}},
    ),
    "prefix_lm": ("prefix/loss", {"corruption": {"_target_": "retable.data.corruption.Prefix"}}),
}


def learning_curves(results: Iterable[Result]) -> dict[str, Figure]:
    """Return figures of loss by step: the mean over seeds, in a band from the lowest to the highest seed.

    There is a figure per stage, corpus, task and kind of loss. Language models share one kind of loss, nats of the next
    token; each other objective has a separate kind. The line is the validation loss if every run has at least ENOUGH
    validation losses. If a run has fewer validation losses, the line is the smoothed training loss, with validation
    losses as points. Steps that some seeds have not reached are left out. A dashed line is the lowest possible loss on
    text of the built-in grammar, if all runs have the tokens and the corruption for which this bound was computed.
    """
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    bounds: dict[tuple[str, str], float] = {}
    for result in results:
        if "curve" in result.tables:
            config = yaml.load(result.config, yaml.CSafeLoader)
            # the objective of a fine-tuned system may have settings but no `_target_`
            target = (config.get("objective") or {}).get("_target_", "")
            kind = target.split(".")[-2] if target and "validation_scorer" not in config else ""
            tokens = config["tokens"] if kind in BOUND_OF else ""
            where = (result.run["stage"], result.run["corpus"], result.run.get("task"), kind)
            groups[" · ".join(filter(None, dict.fromkeys(where))), tokens, kind].append(result)
        for kind, (metric, _) in BOUND_OF.items():
            if metric in result.metrics:
                bounds[yaml.load(result.config, yaml.CSafeLoader).get("tokens"), kind] = result.metrics[metric]
    names = Counter(name for name, _, _ in groups)
    figures = {}
    for (name, tokens, kind), group in sorted(groups.items()):
        title = name if names[name] == 1 else f"{name} · {tokens}"
        bounded = kind in BOUND_OF and all(_has_batches(result, BOUND_OF[kind][1]) for result in group)
        if figure := _curves(title, group, bounds.get((tokens, kind)) if bounded else None):
            figures[title] = figure
    return figures


def still_falling(results: Iterable[Result]) -> list[str]:
    """Return a line per system whose validation loss was still falling at the end of training.

    A system is listed if, on average over seeds, the last validation loss is lower, by more than the noise, than all
    losses in the first nine tenths of the steps. Other losses in the last tenth are ignored, because some runs validate
    just before the last step. The noise is NOISE, or the standard deviation of the last loss over seeds if that is
    larger. Systems that were trained on a task are left out.
    """
    groups: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for result in results:
        if "curve" in result.tables and not result.run.get("task"):
            curve = result.tables["curve"]
            losses = curve[curve["metric"] == VALIDATION].drop_duplicates("step", keep="last").sort_values("step")
            steps = losses["step"].max()
            before = losses.loc[losses["step"] <= 0.9 * steps, "value"]
            if len(before):
                last = losses["value"].iloc[-1]
                groups[result.run["system"], result.run["corpus"]].append((int(steps), before.min() - last, last))
    lines = []
    for (system, corpus), runs in groups.items():
        frame = pd.DataFrame(runs, columns=["steps", "fall", "last"])
        noise = max(NOISE, frame["last"].std() if len(frame) > 1 else 0.0)
        if (fall := frame["fall"].mean()) > noise:
            finding = f"the validation loss still fell by {fall:.2f} nats in the last tenth of the training"
            lines.append(f"{display_name(system)} on {corpus}: {finding} ({frame['steps'].max():,} steps)")
    return lines


def _has_batches(result: Result, settings: Mapping[str, Any]) -> bool:
    batches = yaml.load(result.config, yaml.CSafeLoader).get("batches") or {}
    return all(batches.get(name) == value for name, value in settings.items())


def _curves(title: str, results: list[Result], bound: float | None) -> Figure | None:
    curves = pd.concat(each.tables["curve"].assign(system=each.run["system"], run=each.name) for each in results)
    curves = curves[curves["metric"].isin([TRAINING, VALIDATION])]
    counts = curves.pivot_table(index="run", columns="metric", values="value", aggfunc="count", fill_value=0)
    is_validated = VALIDATION in counts and counts[VALIDATION].min() >= ENOUGH
    names = {TRAINING: "training loss", VALIDATION: "validation loss"}
    looks = {names[VALIDATION]: Look()} if is_validated else {
        names[TRAINING]: Look(), names[VALIDATION]: Look(dash=None, is_marked=True)
    }  # fmt: skip
    lines = []
    for (system, metric), part in curves.groupby(["system", "metric"]):
        seeds = part.pivot_table(index="step", columns="run", values="value").dropna()
        if metric == TRAINING:
            # pandas corrects the bias of the moving average in the first steps
            seeds = seeds.ewm(alpha=1 - DECAY).mean()
        ends = {"low": seeds.min(axis=1), "high": seeds.max(axis=1)}
        line = pd.DataFrame({"x": seeds.index, "y": seeds.mean(axis=1), **ends})
        lines.append(line.assign(system=system, variant=names[metric]))
    frame = pd.concat(lines) if lines else pd.DataFrame(columns=["variant"])
    frame = frame[frame["variant"].isin(list(looks))]
    if frame.empty:
        return None
    bounds = [] if bound is None else [("True distribution", bound)]
    x = Scale("training step", 0, frame["x"].max() or 1)
    y = Scale.over("loss, nats per token", frame["low"], frame["high"], [value for _, value in bounds])
    if is_validated:
        subtitle = "validation loss"
    else:
        subtitle = f"line: training loss, smoothed (moving average, decay {DECAY})"
        subtitle += "; points: validation loss" * (names[VALIDATION] in set(frame["variant"]))
    subtitle += "; band: all seeds" * bool((frame["low"] < frame["high"]).any())
    return titled(line_panel(frame, x, y, looks, bounds=bounds), "Learning curves", title, subtitle)
