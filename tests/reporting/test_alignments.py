import numpy as np
import pandas as pd
import pytest

from retable.reporting.alignments import alignment_figure
from retable.reporting.figures import inline_svg, write_figure

SOURCE, TARGET = ["a", "dog", "costs", "$5$", "a"], ["ein", "Hund", "<end>"]
SHARES = np.random.default_rng(0).dirichlet(np.ones(len(SOURCE)), len(TARGET))


@pytest.fixture
def alignment() -> pd.DataFrame:
    rows = [(u, t, s, w, SHARES[u, s]) for u, t in enumerate(TARGET) for s, w in enumerate(SOURCE)]
    frame = pd.DataFrame(rows, columns=["target_place", "target", "source_place", "source", "weight"])
    return frame.sample(frac=1, random_state=0)  # the order of rows says nothing


def test_words_stand_at_their_places_and_squares_have_their_weights(alignment):
    (axes,) = alignment_figure(alignment).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array(), SHARES)
    assert axes.yaxis_inverted()
    assert mesh.get_clim() == (0, 1)


def test_files_have_the_same_bytes_each_time(alignment, tmp_path):
    for name in ("first.svg", "second.svg"):
        write_figure(alignment_figure(alignment), tmp_path / name)
    first = (tmp_path / "first.svg").read_bytes()
    assert first == (tmp_path / "second.svg").read_bytes()
    assert b"$5$" in first and b"<image" not in first
    assert "Hund" in inline_svg(alignment_figure(alignment), "Alignment")
