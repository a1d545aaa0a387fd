import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets, for tests marked `real`."""
    folder = Path(os.environ.get("RETABLE_DATA", ROOT / "data"))
    assert folder.is_dir(), f"tests marked `real` need RETABLE_DATA; {folder} is not a folder"
    return folder
