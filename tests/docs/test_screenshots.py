"""Test the pictures of pages: they are made from committed files, or their caption has the commit that they show."""

import json
import re

import pytest

from docs.screenshots import IMAGES, RECORD, SHOTS, digest
from tests.conftest import ROOT

MOST = 300_000  # bytes of a picture


@pytest.mark.parametrize("name", SHOTS)
def test_a_screenshot_is_not_older_than_its_inputs(name):
    """If this fails, run `make screenshots` and commit docs/images."""
    *_, inputs = SHOTS[name]
    assert json.loads(RECORD.read_text(encoding="utf-8"))[f"{name}.png"] == digest(inputs)


def test_a_digest_changes_with_its_files():
    assert digest(("mkdocs.yml",)) != digest(("mkdocs.yml", "docs/site.css")) == digest(("docs/site.css", "mkdocs.yml"))
    assert all([*ROOT.glob(pattern)] for *_, inputs in SHOTS.values() for pattern in inputs)


def test_other_pictures_name_their_commit():
    shown: dict[str, str] = {}
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]:
        for name, caption in re.findall(
            r"images/([\w-]+\.(?:png|svg))\)(?=(.*\n?.*))", page.read_text(encoding="utf-8")
        ):
            shown[name] = caption
    pictures = {path.name for path in IMAGES.iterdir()} - {RECORD.name}
    assert pictures == {*shown}
    made = {f"{name}.png" for name in SHOTS}
    assert [name for name in pictures - made if not re.search(r"commit `[0-9a-f]{8}`", shown[name])] == []
    assert {path.name: path.stat().st_size for path in IMAGES.iterdir() if path.stat().st_size > MOST} == {}
