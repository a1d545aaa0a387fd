from retable.plan.conf import Conf


def test_what_a_benchmarks_variant_inherits_is_its_own(tmp_path):
    folder = tmp_path / "benchmark"
    folder.mkdir()
    (folder / "pairs.yaml").write_text("# @package benchmark.pairs\n_target_: a.B\nfolder: data/pairs\nlower: false\n")
    (folder / "mine.yaml").write_text("# @package benchmark.mine\ndefaults: [pairs@_here_, _self_]\nlower: true\n")
    said = Conf(tmp_path).says("benchmark", "mine")
    assert said == {"choices": {}, "_target_": "a.B", "folder": "data/pairs", "lower": True}
