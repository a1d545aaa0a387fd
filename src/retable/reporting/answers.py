"""Fill numbers from a study's tables into the answer that its `study.yaml` contains.

    question: Do language models improve in the order of history?
    answer: Yes, from {kn5: test/perplexity_word|.2f} to {gpt: test/perplexity_word|.2f}.

Each pair of braces contains a system, the name of a metric in `metrics.json`, and a number format. The answer shows the
metric's mean over seeds instead of the braces. With `interval` before the format, the answer shows the bounds of the 95
% interval over test units (documents, lines or examples). If a metric was measured on several corpora, write the corpus
before its name, as in `ptb/test/perplexity_word`.
"""

import re

import pandas as pd

from retable.core.errors import UsageError, closest

_NUMBER = re.compile(r"\{([^{}:|]+): *([^{}|]+)\|(interval )?([^{}|]*)\}")


def answered(template: str, frame: pd.DataFrame) -> str:
    """Replace each pair of braces in an answer by the number that it describes.

    Args:
        template: the answer, with a description of each number in braces.
        frame: the study's results averaged over seeds (`results.aggregate`), a row per system and metric.

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
            raise UsageError(
                f"answer: {system} has {metric} on several corpora; write one of {', '.join(chosen['full'])}"
            )
        row = chosen.iloc[0]
        try:
            bounds = [format(float(row[name]), form) for name in ("ci_low", "ci_high")]
            return " to ".join(bounds) if interval else format(float(row["mean"]), form)
        except ValueError:
            raise UsageError(f"answer: {form!r} is not a number format; write .2f, or .1% for a share") from None

    return _NUMBER.sub(lambda match: number(match).replace("%", " %"), template)
