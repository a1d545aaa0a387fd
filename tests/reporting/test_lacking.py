"""The table of what is not run."""

from retable.reporting.lacking import lacking_tables
from retable.reporting.markup import markdown_table


def test_a_row_a_name_in_the_order_of_the_study():
    ((table, frame),) = lacking_tables(
        {"task": {"snli": "data/snli_1.0", "trec": "data/trec"}, "benchmark": {"piqa": "data/piqa"}}
    )
    assert frame.to_dict("list") == {
        "group": ["task", "task", "benchmark"],
        "name": ["snli", "trec", "piqa"],
        "lacks": ["data/snli_1.0", "data/trec", "data/piqa"],
    }
    assert "snli" in markdown_table(table) and table.name == "lacking"


def test_no_table_where_nothing_lacks():
    assert [*lacking_tables({})] == []
