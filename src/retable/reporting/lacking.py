"""What a study doesn't run, and what that lacks: GPUs, or data that are not at hand.

A study says so under `lacks`, by the groups of `conf/` and the names in them:

    lacks:
      task: {snli: data/snli}
"""

from collections.abc import Iterator, Mapping

import pandas as pd

from retable.reporting.fields import filled_table
from retable.reporting.markup import Column, Row, Table, Value


def lacking_tables(lacks: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table, where something is lacking, with its rows: one a name."""
    rows = [(group, name, lacking) for group, named in lacks.items() for name, lacking in named.items()]
    if not rows:
        return
    columns = [Column(title, numeric=False) for title in ("Of", "What", "Lacks")]
    panels = {"": [Row([*map(Value, row)]) for row in rows]}
    table = filled_table("lacking", "Not run, and what for", columns, panels, ["What stands in no committed table."])
    yield table, pd.DataFrame(rows, columns=["group", "name", "lacks"])
