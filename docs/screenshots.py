"""Make the screenshots in docs/images from committed files: `make screenshots`.

`made_from.json` has a digest of the inputs of each screenshot; a test fails if the inputs have changed.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from pipelines.app.rendering import write_results
from pipelines.config.project import enter_project
from pipelines.study.compose import set_study

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"
RECORD = IMAGES / "made_from.json"
HEIGHT = 900  # pixels: height of the browser window, and of a picture of the top of a page
MAIN = "#figure-main-1 svg"  # the figure that follows the report's answer
REPORT = ("studies/history/results/report.md", "studies/history/results/*.svg", "src/retable/reporting/templates/*")
SITE = ("mkdocs.yml", "docs/site.css")
# for each picture: its page, its width in pixels, the part of the page that it shows ("" for the top), and its inputs
SHOTS = {
    "report": ("report.html", 1280, "", REPORT),
    "report-390": ("report.html", 390, "", REPORT),
    "provenance": ("report.html", 1280, "dialog", REPORT),
    "figure-1280": ("report.html", 1280, MAIN, REPORT),
    "figure-390": ("report.html", 390, MAIN, REPORT),
    "report-ptb-1280": ("site/results/ptb.html", 1280, "", (*SITE, "studies/ptb/results/report.md")),
    "report-ptb-390": ("site/results/ptb.html", 390, "", (*SITE, "studies/ptb/results/report.md")),
    "site-1280": ("site/index.html", 1280, "", (*SITE, "docs/index.md", "studies/history/results/phenomena-*.svg")),
}


def digest(inputs: tuple[str, ...]) -> str:
    """Return the digest of the files that match the patterns."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in inputs for path in ROOT.glob(pattern)):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def make(folder: Path) -> None:
    """Write all pictures and their record `made_from.json`; the pages that they show are written to `folder`."""
    (folder / "history").mkdir()
    enter_project("history")
    write_results(set_study(), {}, folder / "history")
    shutil.copy(folder / "history/report.html", folder)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder / "site")]
    quiet = {"DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=os.environ | quiet, check=True)
    with _browser() as browser:
        for name, (page, width, part, _) in SHOTS.items():
            _write(_picture(browser, folder / page, width, part), IMAGES / f"{name}.png")
    record = {f"{name}.png": digest(inputs) for name, (*_, inputs) in SHOTS.items()}
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, names)), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _picture(browser: Any, path: Path, width: int, part: str) -> bytes:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme="light")
    page.goto(path.as_uri())
    if path.name == "report.html":
        page.wait_for_selector("html[data-ready]", state="attached")
        page.wait_for_selector(MAIN)
    if part == "dialog":
        page.locator("a[data-cells]").first.click()
    target = page.locator(part) if part else page
    picture = target.screenshot()
    page.close()
    return picture


def _write(picture: bytes, path: Path) -> None:
    """Write a picture with only 128 colours, which takes a third of the bytes."""
    Image.open(BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    with TemporaryDirectory() as pages:
        make(Path(pages))
