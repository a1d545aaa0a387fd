"""Parts of a study that are not run, with their missing requirements, such as GPUs or data.

A study lists these parts under `lacks`, by group of `conf/` and by name:

    lacks:
      task: {snli: data/snli}
"""

from collections.abc import Mapping

import pandas as pd


def missing_inputs_rows(missing_inputs: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return a row per part that is not run: its group, its name and the missing requirement."""
    rows = [(group, name, lacking) for group, named in missing_inputs.items() for name, lacking in named.items()]
    return pd.DataFrame(rows, columns=["group", "name", "lacks"])
