"""Every task of conf/task reads its data set's own files: small ones of that layout, the real ones where they are."""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from pipelines.config.project import CONF
from retable.core.settings import build
from retable.corpora.text import SPLITS

MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t" \
       "sentence2_parse\tsentence1\tsentence2\t"  # fmt: skip
PARSES = "( a )\t( b )\t(ROOT a)\t(ROOT b)"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
# task: its files as the data set has them, and its first examples of each split: sentences and class, or score
LAYOUTS: dict[str, tuple[dict[str, str], dict[str, tuple]]] = {
    "cola": (
        {
            "glue/CoLA/train.tsv": 'gj04\t1\t\tThey said "no.\ncj99\t0\t*\tThe more you want.\n',
            "glue/CoLA/dev.tsv": "gj04\t0\t*\tHim left.\n",
        },
        {"train": ('They said "no.', "acceptable"), "validation": ("Him left.", "unacceptable")},
    ),
    "sst2": (
        {
            "glue/SST-2/train.tsv": "sentence\tlabel\na fine \t1\n",
            "glue/SST-2/dev.tsv": "sentence\tlabel\nno good . \t0\n",
            "glue/SST-2/test.tsv": "index\tsentence\n0\tuneasy .\n",
        },
        {"train": ("a fine", "positive"), "validation": ("no good .", "negative"), "test": ("uneasy .", None)},
    ),
    "mrpc": (
        {
            "glue/MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
            '1\t7\t8\t" He ran .\tHe did .\n',
            "glue/MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA\tB\n",
            "glue/MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tC\tD\n",
        },
        {
            "train": ('" He ran .', "He did .", "equivalent"),
            "validation": ("A", "B", "not_equivalent"),
            "test": ("C", "D", None),
        },
    ),
    "qqp": (
        {
            "glue/QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
            '5\t1\t2\tWho was he?\tWas\n"\tWhat is it?\t0\n7\t3\t4\tHow?\tHow come?\t1\n',
            "glue/QQP/dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n8\t3\t4\tA?\tB?\t0\n",
            "glue/QQP/test.tsv": "id\tquestion1\tquestion2\n0\tC?\tD?\n",
        },
        {
            "train": ("How?", "How come?", "duplicate"),
            "validation": ("A?", "B?", "not_duplicate"),
            "test": ("C?", "D?", None),
        },
    ),
    "stsb": (
        {
            "glue/STS-B/train.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\t"
            "score\n"
            "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA plane.\tAn air plane.\t4.200\n",
            "glue/STS-B/dev.tsv": "sentence1\tsentence2\tlabel\nA man.\tA hat.\t0.500\n",
        },
        {"train": ("A plane.", "An air plane.", 4.2), "validation": ("A man.", "A hat.", 0.5)},
    ),
    "mnli": (
        {
            "glue/MNLI/train.tsv": f"{MNLI}label1\tgold_label\n0\t31\t31n\tfiction\t{PARSES}\tP\tH\tneutral\tneutral\n",
            "glue/MNLI/dev_matched.tsv": f"{MNLI}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
            f"0\t6\t6e\tslate\t{PARSES}\tQ\tI\tneutral\tentailment\tentailment\tneutral\tentailment\tentailment\n",
            "glue/MNLI/dev_mismatched.tsv": f"{MNLI}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
            f"0\t6\t6c\tletters\t{PARSES}\tR\tJ" + 6 * "\tcontradiction" + "\n",
            "glue/MNLI/test_matched.tsv": f"{MNLI.rstrip()}\n0\t31\t31\ttravel\t{PARSES}\tS\tK\n",
            "glue/MNLI/test_mismatched.tsv": f"{MNLI.rstrip()}\n0\t31\t31\tverbatim\t{PARSES}\tT\tL\n",
        },
        {
            "train": ("P", "H", "neutral"), "validation": ("Q", "I", "entailment"),
            "validation_mismatched": ("R", "J", "contradiction"), "test": ("S", "K", None),
            "test_mismatched": ("T", "L", None),
        },
    ),
    "qnli": (
        {
            "glue/QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1990.\tentailment\n",
            "glue/QNLI/dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWho?\tIn 1990.\tnot_entailment\n",
            "glue/QNLI/test.tsv": "index\tquestion\tsentence\n0\tHow?\tSo.\n",
        },
        {
            "train": ("When?", "In 1990.", "entailment"),
            "validation": ("Who?", "In 1990.", "not_entailment"),
            "test": ("How?", "So.", None),
        },
    ),
    "rte": (
        {
            "glue/RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n",
            "glue/RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tC.\tD.\tentailment\n",
            "glue/RTE/test.tsv": "index\tsentence1\tsentence2\n0\tE.\tF.\n",
        },
        {"train": ("A.", "B.", "not_entailment"), "validation": ("C.", "D.", "entailment"), "test": ("E.", "F.", None)},
    ),
    "wnli": (
        {
            "glue/WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n",
            "glue/WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tC.\tD.\t0\n",
            "glue/WNLI/test.tsv": "index\tsentence1\tsentence2\n0\tE.\tF.\n",
        },
        {"train": ("A.", "B.", "entailment"), "validation": ("C.", "D.", "not_entailment"), "test": ("E.", "F.", None)},
    ),
    "sst5": (
        {
            "sst_trees/train.txt": "(3 (2 It) (4 (2 's) (4 lovely)))\n",
            "sst_trees/dev.txt": "(0 (1 (2 Not) (2 -LRB-)) (2 bad))\n",
            "sst_trees/test.txt": "(2 (2 So) (2 so))\n",
        },
        {
            "train": ("It 's lovely", "positive"),
            "validation": ("Not ( bad", "very_negative"),
            "test": ("So so", "neutral"),
        },
    ),
    "wic": (
        {
            f"wic/{split}/{split}.{kind}.txt": text
            for split in ("train", "dev", "test")
            for kind, text in (("data", "board\tN\t2-2\tRoom and board .\tHe nailed boards .\n"), ("gold", "T\n"))
        },
        {split: ("Room and board .", "He nailed boards .", "same") for split in SPLITS},
    ),
    "snli": (
        {
            f"snli_1.0/snli_1.0_{split}.jsonl": "".join(
                json.dumps({"annotator_labels": [gold], "gold_label": gold, "sentence1": f"A {gold}", "sentence2": "B"})
                + "\n"
                for gold in ("-", "contradiction")
            )
            for split in ("train", "dev", "test")
        },
        {split: ("A contradiction", "B", "contradiction") for split in SPLITS},
    ),
    "sick_entailment": (
        {f"sick/SICK_{s}.txt": f"{SICK}1\tA\tB\t3.6\tCONTRADICTION\n" for s in ("train", "trial", "test_annotated")},
        {split: ("A", "B", "contradiction") for split in SPLITS},
    ),
    "sick_relatedness": (
        {f"sick/SICK_{s}.txt": f"{SICK}1\tA\tB\t3.6\tNEUTRAL\n" for s in ("train", "trial", "test_annotated")},
        {split: ("A", "B", 3.6) for split in SPLITS},
    ),
    "trec": (
        {
            "trec/train_5500.label": "".join(f"NUM:date When {i} ?\n" for i in range(10)),
            "trec/TREC_10.label": "LOC:city Where: caf\xe9\xf0 ?\n",
        },
        {
            "train": ("When 0 ?", "number"),
            "validation": ("When 1 ?", "number"),
            "test": ("Where: caf\xe9\xf0 ?", "location"),
        },
    ),
    "acceptability": (
        {f"outputs/prepare/g/acceptability/{s}.tsv": "sentence\tlabel\na b\tacceptable\n" for s in SPLITS},
        {split: ("a b", "acceptable") for split in SPLITS},
    ),
    "sentiment": ({f"outputs/prepare/g/sentiment/{s}.tsv": "sentence\tlabel\na b\tnegative\n" for s in SPLITS},
        {split: ("a b", "negative") for split in SPLITS}),
}  # fmt: skip
# As GLUE and the papers count them.
SIZES: dict[str, tuple[int | None, ...]] = {
    "cola": (8551, 1043, None), "sst2": (67349, 872, 1821), "mrpc": (3668, 408, 1725), "stsb": (5749, 1500, None),
    "rte": (2490, 277, 3000), "wnli": (635, 71, 146), "sst5": (8544, 1101, 2210), "wic": (5428, 638, 1400),
}  # fmt: skip
METRICS = {"cola": ["matthews"], "mrpc": ["accuracy", "f1"], "qqp": ["accuracy", "f1"], "stsb": ["pearson", "spearman"]}


def task(name: str):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(f"task/{name}", overrides=["+text=g", f"+task_name={name}"])
    return build(cfg.task, "task")


def test_every_task_has_a_layout():
    files = {path.stem: path.read_text(encoding="utf-8") for path in (CONF / "task").glob("*.yaml")}
    assert set(LAYOUTS) == {name for name, text in files.items() if "/task_type/sentences" in text}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_task_reads_its_data_sets_own_files(name, tmp_path, monkeypatch):
    files, expected = LAYOUTS[name]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        encoding = "latin-1" if name == "trec" else "utf-8"
        (tmp_path / path).write_text(content, encoding=encoding, newline="")
    monkeypatch.setenv("RETABLE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    read = task(name)
    assert set(read.inputs) == {tmp_path / path if "outputs" not in path else Path(path) for path in files}
    assert set(read.splits) == set(expected)
    names = read.labels.names
    for split, (*sentences, label) in expected.items():
        first = read.examples(split)[0]
        found = names[int(first.label)] if names and first.label is not None else first.label
        assert (*first.sentences, found) == (*sentences, label), split


@pytest.mark.parametrize("name", METRICS)
def test_a_task_has_the_metrics_of_its_table(name):
    assert task(name).metrics == METRICS[name]


@pytest.mark.real
@pytest.mark.parametrize("name", SIZES)
def test_the_real_files_have_as_many_examples_as_published(name, data_dir, monkeypatch):
    monkeypatch.setenv("RETABLE_DATA", str(data_dir))
    read = task(name)
    sizes = tuple(len(read.examples(split)) if split in read.splits else None for split in SPLITS)
    assert sizes == SIZES[name]
