"""Test that a cell that is made again, in another folder and at another time, has the same bytes.

Small cells of every stage are tested, except `scaling`, which measures times.
"""

from pathlib import Path

import pytest
import yaml

from retable.core.artifacts import read_record
from retable.core.digests import digest
from tests.pipelines.conftest import CELLS, GPT, SHORT, Project


@pytest.fixture(scope="module")
def makings(cells, tmp_path_factory, forks) -> list[Project]:
    again = Project(tmp_path_factory.mktemp("second"), forks)
    for command in CELLS.values():
        again.succeed(*command)
    return [cells, again]


def files(cell: Path) -> dict[str, str]:
    return {str(path.relative_to(cell)): digest(path) for path in cell.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("place", CELLS)
def test_a_cell_made_again_is_the_same_bytes(place, makings):
    first, second = (project.folder / "outputs" / place for project in makings)
    assert {"config.yaml", "metrics.json", "run.json", "digests.json"} <= files(first).keys()
    assert files(first) == files(second)
    records = [read_record(cell) for cell in (first, second)]
    assert records[0]["mlflow_run_id"] != records[1]["mlflow_run_id"]


def test_a_cell_says_what_auto_was(project):
    project.succeed("pretrain", *SHORT, *GPT, "batches.batch_size=4", "trainer=auto", "system=gpt_auto")
    cell = project.folder / "outputs/pretrain/grammar_tiny/gpt_auto-1"
    config = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    assert config["trainer"] == {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
    assert 0 < read_record(cell)["flops_utilisation"] < 1
