"""Test the texts of committed figures: inside the canvas, without overlap, and large enough on a phone."""

from itertools import combinations
from pathlib import Path

import pytest
from PIL import ImageFont

from pipelines.config.project import STUDIES
from tests.reporting.charts import boxes, overlap

FONTS = Path("/usr/share/fonts/truetype")
FILES = {
    "DejaVu Sans": ("dejavu/DejaVuSans.ttf", "dejavu/DejaVuSans-Bold.ttf"),
    "Liberation Sans": ("liberation/LiberationSans-Regular.ttf", "liberation/LiberationSans-Bold.ttf"),
}
PHONE = 366  # width of a figure in a page of 390 pixels
LEAST = 9  # least height of a text in pixels
# drawn before records existed, from numbers that no table has
OLDER = [
    "embedded/results/[!ps]*.svg", "embedded/results/positions-*.svg", "embedded/results/scaling-*.svg",
    "gradients/results/gradients-*.svg", "translation/results/*.svg", "wordvectors/results/*.svg",
]  # fmt: skip


def figures():
    return sorted({*STUDIES.glob("*/results/*.svg")} - {path for pattern in OLDER for path in STUDIES.glob(pattern)})


@pytest.mark.parametrize("name", FILES)
def test_texts_are_inside_apart_and_large_enough(name):
    if not all((FONTS / file).exists() for file in FILES[name]):
        pytest.skip(f"there is no font {name}; on Debian: apt-get install fonts-dejavu fonts-liberation")
    fonts = [ImageFont.truetype(FONTS / file, 100) for file in FILES[name]]
    wrong = []
    for path in figures():
        texts, (left, top, width, height) = boxes(path.read_text(encoding="utf-8"), *fonts)
        assert texts, path
        figure = f"{path.parts[-3]}/{path.name}"
        for text, size, corners in texts:
            inside = (corners >= (left - 1, top - 1)).all() and (corners <= (left + width + 1, top + height + 1)).all()
            wrong += [] if inside else [f"{figure}: {text!r} leaves the canvas"]
            wrong += [] if size * min(1, PHONE / width) >= LEAST else [f"{figure}: {text!r} is too small"]
        for (text, _, one), (other, _, two) in combinations(texts, 2):
            if text != other and overlap(one, two):  # a name is drawn twice, the first time as its white border
                wrong.append(f"{figure}: {text!r} covers {other!r}")
    assert wrong == []
