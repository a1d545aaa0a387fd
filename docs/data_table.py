"""The table of docs/howto/data.md: the data sets of conf/data, and their readers."""

from collections import defaultdict
from pathlib import Path

from pipelines.cli.data_sets import READERS, DataSet, data_sets, paths_of, sets_at
from pipelines.cli.fetch import how_to_get, size_of
from retable.core.escaping import markdown
from retable.planning.conf import Conf

ROOT = Path(__file__).parent.parent


def table_of_data_sets() -> str:
    """Return a Markdown table with one row per data set: its folder, size, licence and readers."""
    known, conf = data_sets(), Conf(ROOT / "conf")
    readers = defaultdict[str, dict[str, None]](dict)
    for group in READERS:
        for name in conf.names(group):
            for data_set in sets_at(paths_of(group, name), [name], known):
                readers[data_set][name] = None
    lines = ["| data set | folder, files | size | get | licence | read by |", "|---|---|---|---|---|---|"]
    for name, data in known.items():
        read = ", ".join(f"`{each}`" for each in readers[name])
        fields = (f"`{name}`: [{markdown(data.title)}]({data.home})", _files(data), size_of(data), how_to_get(data),
                  markdown(data.licence), read)  # fmt: skip
        lines.append(f"| {' | '.join(fields)} |")
    return "\n".join(lines)


def _files(data: DataSet) -> str:
    """Return a data set's folder and its files or, of more than three files, their number."""
    if len(data.listed) <= 3:
        return f"`{data.folder}/`: {', '.join(f'`{path}`' for path in data.listed)}"
    return f"`{data.folder}/`: {len(data.files)} files"
