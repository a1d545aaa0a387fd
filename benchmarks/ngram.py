"""Seconds and peak memory of an n-gram model: python -m benchmarks.ngram TRAIN TEST [--order 5]

The files hold a sentence a line, words separated by spaces. Peak memory is that of the process so far,
with numpy and both texts.
"""

import argparse
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from retable.models.arpa import read_arpa, write_arpa
from retable.models.ngram import KneserNey


def read_words(path: Path) -> list[str]:
    return [word for line in path.read_text(encoding="utf-8").splitlines() for word in [*line.split(), "</s>"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--order", type=int, default=5)
    arguments = parser.parse_args()

    train, test = read_words(arguments.train), read_words(arguments.test)
    ids = {word: index for index, word in enumerate(dict.fromkeys(["<unk>", *train]))}
    train_ids = np.array([ids[word] for word in train])
    test_ids = np.array([ids.get(word, ids["<unk>"]) for word in test])
    model = KneserNey(len(ids), arguments.order, boundary=ids["</s>"])
    before = time.perf_counter()

    def report(step: str) -> None:
        nonlocal before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{step:<14} {time.perf_counter() - before:6.2f} s {peak:8.0f} MiB")
        before = time.perf_counter()

    print(f"{len(train_ids):,} tokens to train, {len(test_ids):,} to score, {len(ids):,} words")
    report("(start)")
    model.estimate(train_ids)
    report("estimate")
    log_prob = model.log_prob(test_ids)
    report("score")
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model.safetensors")
        report("save")
        model.load(f"{folder}/model.safetensors")
        report("load")
        write_arpa(model, list(ids), f"{folder}/model.arpa")
        report("write ARPA")
        arpa = read_arpa(f"{folder}/model.arpa")
        report("read ARPA")
    np.testing.assert_allclose(arpa.model.log_prob(test_ids), log_prob, rtol=0, atol=1e-5)
    n_grams = sum(len(table.keys) for table in model.tables)
    print(f"{n_grams:,} n-grams up to order {arguments.order}, perplexity {np.exp(-log_prob.mean()):.3f}")


if __name__ == "__main__":
    main()
