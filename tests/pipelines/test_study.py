"""Which study is the current one, and what of the others is kept."""


def choose(project, study: str) -> str:
    project.succeed("study", study)
    return (project.folder / "params.yaml").read_text()


def test_each_study_keeps_its_own_lock(bare_project):
    lock = bare_project.folder / "dvc.lock"
    lineage = choose(bare_project, "lineage")
    lock.write_text("of lineage")
    smoke = choose(bare_project, "smoke")
    assert smoke != lineage
    assert not lock.exists(), "no cell of smoke has run"
    lock.write_text("of smoke")
    assert choose(bare_project, "lineage") == lineage
    assert lock.read_text() == "of lineage"
    assert [path.name for path in (bare_project.folder / "results").iterdir()] == ["smoke.lock"]
    assert choose(bare_project, "lineage") == lineage, "the current study again"
    assert lock.read_text() == "of lineage"
    assert choose(bare_project, "smoke") == smoke
    assert lock.read_text() == "of smoke"


def test_a_switch_that_was_killed_is_finished(bare_project):
    """Once params.yaml is written, the study's lock still waits where it was kept."""
    choose(bare_project, "lineage")
    (bare_project.folder / "dvc.lock").write_text("of smoke")
    (bare_project.folder / "results").mkdir()
    (bare_project.folder / "results/lineage.lock").write_text("of lineage")
    choose(bare_project, "lineage")
    assert (bare_project.folder / "dvc.lock").read_text() == "of lineage"


def test_an_unknown_study_changes_nothing(bare_project):
    before = choose(bare_project, "smoke")
    done = bare_project.run("study", "smok")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no study 'smok'; write one of ablations, ")
    assert (bare_project.folder / "params.yaml").read_text() == before
