"""Test verdicts by hand-made tables and by properties, and the references that they use."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.reporting import results, verdicts
from retable.reporting.results import ABSENT, CELL, with_tolerances
from retable.reporting.verdicts import Row, half_width, judged, tolerance
from tests.reporting.specifications import REFERENCES


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        # at the edge of the band, in decimal fractions
        ([Row(141.2, 1.5, 142.7, 3)], ["pass"]),
        ([Row(141.2, 1.5, 142.7001, 3)], ["fail"]),
        ([Row(141.2, 1.5, 139.6999, 3)], ["outside, better"]),
        ([Row(0.8, 0.01, 0.82, 3, "highest")], ["outside, better"]),
        ([Row(0.8, 0.01, 0.78, 3, "highest")], ["fail"]),
        # too few seeds; a system without seeds fails in both directions
        ([Row(100, 1, 102, 2)], ["open"]),
        ([Row(100, 1, 98, 1, deterministic=True)], ["fail"]),
        ([Row(100, 1, 100.5, 1)], ["pass"]),
        ([Row(100, 1, 100.5, 3, undecidable=True)], ["undecidable"]),
        ([Row(100, 1, 102, 3, undecidable=True)], ["fail"]),
        ([Row(100, 1), Row(90, math.nan, 91.0, 3)], ["not run", "n/a"]),
        # another row in the band; a row nearer to ours, but outside of the band
        ([Row(100, 1, 100, 3), Row(101)], ["agrees", "not run"]),
        ([Row(100, 1, 101, 3), Row(101.5)], ["agrees", "not run"]),
        ([Row(100, 1, 100.5, 3), Row(101.5)], ["pass", "not run"]),
        # a group: all rows agree and the difference is reproduced; the row with the narrow band is decided by its own
        # band
        ([Row(100, 1, 100.4, 3), Row(100.8, 1, 101, 3)], ["pass (group)", "pass (group)"]),
        ([Row(100, 1, 100.9, 3), Row(100.8, 1, 100.1, 3)], ["agrees", "agrees"]),
        ([Row(100, 0.5, 100.1, 3), Row(100.8, 1, 100.7, 3)], ["pass", "pass (group)"]),
        ([Row(100, 1, 100.4, 3), Row(100.8, 1, 102, 3)], ["agrees", "fail"]),
        # a chain is one group, but the last row breaks it
        ([Row(100, 1, 100, 3), Row(101, 1, 101, 3), Row(102, 1)], ["agrees", "agrees", "not run"]),
        ([Row(100, 1, 100, 3), Row(101, 1, 101, 3), Row(102, 1, 102, 3)], ["pass (group)"] * 3),
        # other recipes, and tolerances that were set late
        ([Row(100, 1, 100, 3, other_recipe=True), Row(90)], ["pass, other recipe", "not run"]),
        ([Row(100, 1, 100, 3, other_recipe=True), Row(101)], ["agrees, other recipe", "not run"]),
        ([Row(100, 1, 100, 3), Row(101, 1, 101, 3, other_recipe=True)], ["agrees", "agrees, other recipe"]),
        ([Row(100, 1, 100, 3, afterwards=True)], ["agrees"]),
        ([Row(100, 1, 100, 3), Row(101, 1, 101, 3, afterwards=True)], ["agrees", "agrees"]),
    ],
)
def test_verdicts_of_a_column(column, expected):
    assert verdicts.verdicts(column) == expected


numbers = st.integers(0, 40).map(lambda tenths: tenths / 10)
rows = st.tuples(numbers, numbers, numbers, st.integers(1, 4)).map(lambda fields: Row(*fields))


@given(st.lists(rows, min_size=1, max_size=5), numbers)
def test_a_wider_tolerance_only_turns_outside_into_within(column, wider):
    before, row = verdicts.verdicts(column)[0], column[0]
    after = verdicts.verdicts([row._replace(tolerance=row.tolerance + wider), *column[1:]])[0]
    outside = ("fail", "outside, better", "open")
    assert not (after in outside and before not in outside)
    # and a row with a neighbour never becomes distinct
    assert not (after == "pass" and before in ("agrees", "pass (group)"))


@given(st.lists(rows, min_size=2, max_size=5))
def test_no_row_passes_alone_with_a_neighbour_in_its_band_or_nearer(column):
    for place, (row, verdict) in enumerate(zip(column, verdicts.verdicts(column), strict=True)):
        values = [other.value for i, other in enumerate(column) if i != place]
        distance = abs(row.mean - row.value)
        near = min(abs(value - row.value) for value in values) <= row.tolerance + 1e-9
        nearer = min(abs(value - row.mean) for value in values) < distance - 1e-9
        if verdict == "pass":
            assert distance <= row.tolerance + 1e-9 and not near and not nearer
        elif distance <= row.tolerance:
            assert near or nearer


def test_tolerances_by_hand():
    """TABLES: 2 · 0.15 · √(1 + 1/3) + 0.05 is 0.396 for ten folds of A1; counts have r + 0.1 %."""
    assert tolerance(77.9, 3, "seeds", 0.15, rounding=0.05) == pytest.approx(0.05 + 0.3 * (4 / 3) ** 0.5)
    assert tolerance(77.9, 3, "published", 0.15, averaged=5) == pytest.approx(0.3 * (1 / 5 + 1 / 3) ** 0.5)
    assert tolerance(83.2, 1, "deterministic", rounding=0.05) == pytest.approx(0.1332)
    assert tolerance(77.9, 3, "reruns", 0.15, given=1.4) == 1.4
    assert math.isnan(tolerance(77.9, 3))
    # 0.8 for MR's 10,662 sentences, 2.1 for SST's 2,210 in five classes
    assert half_width(0.78, 10662, math.nan, math.nan) == pytest.approx(0.008, abs=2e-4)
    assert half_width(0.45, 2210, 0, 1) == pytest.approx(0.021, abs=3e-4)
    assert half_width(140, math.nan, 136, 146) == 5 and half_width(140, *[math.nan] * 3) == math.inf


def reference(system, value, **fields):
    place = {"system": system, "corpus": "ptb", "split": "test", "metric": "perplexity_word", "value": value}
    return {**ABSENT, **place, "source": "a paper", "table": "a table", "configuration": "theirs", **fields}


def rows_judged(references, widths=10.0, n=3, **means):
    cells = [{**dict.fromkeys(CELL, ""), "system": name, "mean": mean, "n": n} for name, mean in means.items() if mean]
    frame = pd.DataFrame(cells).assign(corpus="ptb", split="test", metric="perplexity_word")
    frame = frame.assign(ci_low=frame["mean"] - widths, ci_high=frame["mean"] + widths)
    return judged(frame, with_tolerances(pd.DataFrame(references))).set_index("system")


@pytest.mark.parametrize(
    ("base", "variant", "expected"),
    [
        (115.6, 112.0, "pass"),  # our difference is 3.6; the published one is 2.1 ± 1.5
        (115.6, 111.9, "outside, better"),
        (125.0, 122.9, "pass"),  # both are far off, but their difference is not
        (114.5, 113.95, "fail"),
        (None, 112.4, "n/a"),
    ],
)
def test_a_difference_is_judged(base, variant, expected):
    references = [reference("small", 114.5, tolerance=2.0, table="another")]
    references += [reference("tied", 112.4, tolerance=1.5, relative_to="small")]
    row = rows_judged(references, small=base, tied=variant).loc["tied"]
    assert row["verdict"] == expected and row["published"] == 112.4
    measured = f": ours {variant - base:+.2f}, published -2.10 ± 1.50" if base else ""
    assert row["note"] == f"judged by the difference between this row and small{measured}"


@pytest.mark.parametrize(
    ("value", "fields", "verdict", "note"),
    [
        (141.0, {"tolerance": 1.5, "other_recipe": "other discounts"}, "pass, other recipe", "other discounts"),
        (143.0, {"tolerance": 1.5, "other_recipe": "other discounts"}, "fail", "other discounts"),
        (141.0, {"other_recipe": "other discounts"}, "n/a", "other discounts"),
        (141.0, {"tolerance": 1.5, "afterwards": True}, "agrees", results.AFTERWARDS),
        (141.0, {"tolerance": 1.5, "open": "batch size"}, "pass", "not stated in the source: batch size"),
        (141.0, {"memory": True}, "n/a", "the published number is quoted from memory"),
        (141.0, {"basis": "deterministic"}, "fail", ""),  # the tolerance r + 0.1 % is 0.19
        (141.1, {"basis": "deterministic"}, "pass", ""),
        (141.0, {"basis": "deterministic", "rounding": 0.5}, "pass", ""),  # 141 is rounded
        (141.0, {"basis": "seeds", "deviation": 0.1}, "pass", ""),  # the tolerance is 0.28
        (141.5, {"basis": "seeds", "deviation": 0.1}, "fail", ""),
        (141.0, {"basis": "seeds", "deviation": 5.0}, "undecidable", ""),  # tolerance 11.6; the interval is ± 10
        (152.0, {"tolerance": 15.0}, "fail", ""),  # not wider than the interval
    ],
)
def test_fields_of_a_reference(value, fields, verdict, note):
    row = rows_judged([reference("kn", 141.2, **fields)], kn=value).loc["kn"]
    assert (row["verdict"], row["note"]) == (verdict, note)


def test_a_repeated_row_is_no_neighbour_of_its_number():
    references = [reference("lstm", 114.5, tolerance=2.0), reference("other", 120.0)]
    references += [reference("lstm_bf16", 114.5, tolerance=2.0, repeats="lstm")]
    verdict_rows = rows_judged(references, lstm=115.0, lstm_bf16=116.0)
    assert verdict_rows["verdict"].to_dict() == {"lstm": "pass", "lstm_bf16": "pass"}


def test_references_are_complete_and_unambiguous():
    assert not REFERENCES.duplicated(CELL).any()
    texts = ["other_recipe", "not_run", "relative_to", "note", "open", "repeats"]
    required = ["system", "corpus", "split", "metric", "value", "source", "configuration", *texts]
    assert REFERENCES[required].notna().all(axis=None)
    assert (REFERENCES[["source", "configuration"]] != "").all(axis=None)
    assert not (REFERENCES["value"] < 0).any() and not (REFERENCES[["tolerance", "flops"]] <= 0).any(axis=None)
    assert REFERENCES["memory"].any() and REFERENCES["tolerance"][REFERENCES["memory"]].isna().all()
    for key in ("relative_to", "repeats"):
        named = REFERENCES[REFERENCES[key] != ""]
        assert len(named) and named["tolerance"].notna().all()
        assert len(named.assign(system=named[key]).merge(REFERENCES, on=CELL)) == len(named)


def test_bases_have_what_they_need():
    basis = REFERENCES["basis"]
    assert set(basis) <= {"", "published", "seeds", "neighbours", "reruns", "deterministic"}
    has_deviation, has_own = REFERENCES["deviation"].notna(), REFERENCES["given"].notna()
    assert has_deviation[basis.isin(["published", "seeds"])].all()
    assert (has_deviation | has_own)[basis == "neighbours"].all()
    assert has_own[basis == "reruns"].all() and not (has_own | has_deviation)[basis == "deterministic"].any()
    assert (basis[has_deviation] != "").all()
    unknown = set(REFERENCES) - {*ABSENT, *CELL, "value", "source", "table", "configuration", "given"}
    assert unknown == set()


def test_a_table_is_reproduced_by_its_shares_and_its_order():
    rows = pd.DataFrame({"value": range(10), "mean": range(10), "verdict": "pass", "other_recipe": ""})
    table = rows.assign(**dict.fromkeys(verdicts.COLUMN, "x"))
    assert verdicts.reproduction(table) == pytest.approx((1, 1, 1)) and verdicts.reproduction(table).reproduced
    two, three = table.index < 2, table.index < 3
    for spoilt in ({"verdict": "not run"}, {"verdict": "open"}, {"other_recipe": "another"}):
        assert verdicts.reproduction(table.assign(**{k: table[k].mask(two, v) for k, v in spoilt.items()})).reproduced
        reproduced = verdicts.reproduction(table.assign(**{k: table[k].mask(three, v) for k, v in spoilt.items()}))
        assert not reproduced.reproduced
    assert not verdicts.reproduction(table.assign(mean=-table["mean"])).reproduced
    assert verdicts.reproduction(table[:1]).reproduced  # one row has no order


@pytest.mark.parametrize(("mean", "verdict"), [(3.4, "outside, better"), (3.55, "pass"), (3.8, "fail")])
def test_the_lowest_loss_is_the_best(mean, verdict):
    place = {"system": "gru", "corpus": "pairs", "task": "translation", "split": "test", "metric": "loss"}
    frame = pd.DataFrame([{**dict.fromkeys(CELL, ""), **place, "mean": mean, "n": 3, "ci_low": 3.0, "ci_high": 4.0}])
    references = pd.DataFrame([reference(**place, value=3.6, tolerance=0.1)])
    assert judged(frame, with_tolerances(references))["verdict"].tolist() == [verdict]
