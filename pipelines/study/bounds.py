"""Check a study's tables against its recorded bands and the claims of its figures: `retable bands smoke`.

See `retable.reporting.claims`.
"""

from collections.abc import Iterator
from pathlib import Path

from pipelines.config.project import STUDY, enter_project, files_of_study
from pipelines.study.compose import study_here
from retable.core.errors import UsageError
from retable.reporting.claims import check_tables


def bands(study: str | None) -> bool:
    """Print each checked value of a study, with ok or DRIFT, and return whether all bands and claims hold."""
    enter_project(study)
    held = True
    for holds, line in check():
        held &= holds
        print(f"{'ok   ' if holds else 'DRIFT'} {line}")
    return held


def summary(study: str | None) -> str:
    """Return a summary of a study's bands in Markdown.

    The summary lists the values outside of their bands. If all bands hold, the summary contains this fact; if no bands
    could be checked, it contains the reason.
    """
    enter_project(study)
    try:
        checked = list(check())
    except UsageError as error:
        return f"### Bands\n\nNo bands were checked: {error}"
    drifts = [f"- {line}" for holds, line in checked if not holds]
    return "\n".join(["### Bands\n", *(drifts or [f"All {len(checked)} bands hold."])])


def check() -> Iterator[tuple[bool, str]]:
    """For each band and claim of the working folder's study, yield whether it holds, and a line with the value."""
    study = study_here()
    recorded, figures = study.reported.get("bands", {}), study.reported.get("figure", {})
    if not recorded and not figures:
        raise UsageError(f"study {study.name} has no recorded bands; write a key `bands` in its {STUDY}")
    results = Path(f"{files_of_study()}results")
    yield from check_tables(results, recorded)
    for figure in figures.values():
        for holds, line in check_tables(results, figure["holds"]):
            yield holds, f"{figure['claim']!r}: {line}"
