"""The table of what is not run."""

from retable.reporting.lacking import lacking_rows
from retable.reporting.markup import markdown_table
from tests.reporting.specifications import of_rows


def test_a_row_a_name_in_the_order_of_the_study():
    rows = lacking_rows({"task": {"snli": "data/snli_1.0", "trec": "data/trec"}, "benchmark": {"piqa": "data/piqa"}})
    ((table, frame),) = of_rows("lacking", rows)
    assert frame.to_dict("list") == {
        "group": ["task", "task", "benchmark"],
        "name": ["snli", "trec", "piqa"],
        "lacks": ["data/snli_1.0", "data/trec", "data/piqa"],
    }
    assert "snli" in markdown_table(table) and table.name == "lacking"


def test_no_table_where_nothing_lacks():
    assert of_rows("lacking", lacking_rows({})) == []
