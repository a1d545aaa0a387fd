"""The answer of a study: sentences of its `study.yaml` with numbers from its tables.

    question: Do language models improve in the order of history?
    answer: Yes, from {kn5: test/perplexity_word|.2f} to {gpt: test/perplexity_word|.2f}.

Braces contain a system, a metric as in `metrics.json`, and a format. The number is the mean over seeds. `interval`
before the format inserts the bounds of the 95 % interval over test units instead. If a metric was measured on
several corpora, its name begins with the corpus.
"""

import re

import pandas as pd

from retable.core.errors import UsageError, closest

_NUMBER = re.compile(r"\{([^{}:|]+): *([^{}|]+)\|(interval )?([^{}|]*)\}")


def answered(template: str, frame: pd.DataFrame) -> str:
    """Fill the numbers into an answer.

    Args:
        template: the sentences.
        frame: the aggregates of the study, one row per system and metric.

    Raises: UsageError: a system, metric or format does not exist, or a metric was measured on several corpora.
    """
    measured = frame[frame["n"] > 0]
    names = ["/".join(filter(None, row)) for row in measured[["task", "split", "metric"]].itertuples(index=False)]
    rows = measured.assign(
        name=names, full=measured["corpus"] + "/" + pd.Series(names, index=measured.index, dtype=str)
    )

    def number(match: re.Match[str]) -> str:
        system, metric, interval, form = match.groups()
        of_system = rows[rows["system"] == system]
        if of_system.empty:
            raise UsageError(f"answer: no system {system!r} in this study; {closest(system, {*rows['system']})}")
        chosen = of_system[(of_system["name"] == metric) | (of_system["full"] == metric)]
        if chosen.empty:
            raise UsageError(f"answer: no {metric!r} of {system} in this study; {closest(metric, of_system['name'])}")
        if len(chosen) > 1:
            raise UsageError(f"answer: {system} has several {metric}; write one of {', '.join(chosen['full'])}")
        row = chosen.iloc[0]
        try:
            bounds = [format(float(row[name]), form) for name in ("ci_low", "ci_high")]
            return " to ".join(bounds) if interval else format(float(row["mean"]), form)
        except ValueError:
            raise UsageError(f"answer: {form!r} formats no number; write .2f, or .1% for a share") from None

    return _NUMBER.sub(lambda match: number(match).replace("%", " %"), template)
