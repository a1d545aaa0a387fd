"""A report replaces a report only, and no file of somebody else's in its folder."""

import pytest

from retable.core.errors import UsageError
from retable.core.publishing import refuse_all_but_a_report, replace


def report(folder):
    folder.mkdir(parents=True)
    for name in ("report.md", "metrics.json", "lm.csv", "lm.svg"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("name", ["thesis.tex", "other/x", "notes", "model.safetensors", ".git/HEAD"])
def test_a_folder_with_another_file_is_refused(tmp_path, name):
    out = report(tmp_path / "results")
    refuse_all_but_a_report(out)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("kept")
    with pytest.raises(UsageError, match=f"{name.partition('/')[0]} is not part of a report.*move it"):
        refuse_all_but_a_report(out)
    assert (out / name).read_text() == "kept"


def test_a_link_is_refused_and_breaks_no_later_report(tmp_path):
    out = tmp_path / "results"
    out.symlink_to(report(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="results is a link"):
        refuse_all_but_a_report(out)
    assert out.is_symlink() and (tmp_path / "elsewhere/report.md").exists()
    aside = tmp_path / "aside"
    for path in (aside, tmp_path / "aside.old"):  # as an earlier version left them
        path.symlink_to(tmp_path / "elsewhere")
    out.unlink()
    report(out)
    with replace(out, tmp_path / "begun", aside) as begun:
        (begun / "report.md").write_text("new")
    assert [each.name for each in out.iterdir()] == ["report.md"]
    assert (tmp_path / "elsewhere/report.md").exists() and not aside.is_symlink()


def test_a_corpus_is_written_by_a_writer_of_corpora(tmp_path):
    from typing import get_type_hints

    from pipelines.config.schema import STAGES
    from retable.core.settings import SettingError, check_all

    schema = get_type_hints(STAGES["prepare"], include_extras=True)
    with pytest.raises(
        SettingError, match=r"corpus\.write: _target_=retable\.core\.publishing\.remove_empty is none of"
    ):
        check_all({"corpus": {"write": {"_target_": "retable.core.publishing.remove_empty"}}}, schema, ())
