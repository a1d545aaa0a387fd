"""Test that every task of conf/task reads the files of its data set: small ones in its format, and real ones if
present.
"""

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from pipelines.config.project import CONF
from retable.core.settings import build
from retable.corpora.text import SPLITS

QQP = "id|qid1|qid2|question1|question2|is_duplicate\n"
MRPC = "#1 ID|#2 ID|#1 String|#2 String\n"
MNLI = "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|sentence2_parse|" \
       "sentence1|sentence2"  # fmt: skip
LABELS = "|label1|label2|label3|label4|label5|gold_label\n"
PARSES = "( a )|( b )|(ROOT a)|(ROOT b)"
SICK = "pair_ID|sentence_A|sentence_B|relatedness_score|entailment_judgment\n"
SICK_FILES = ("train", "trial", "test_annotated")
STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score\n"
# For each task the files of its data set, with | for a tab, and the first example of each split: sentences, class.
LAYOUTS: dict[str, tuple[dict[str, str], dict[str, tuple]]] = {
    "cola": (
        {"glue/CoLA/train.tsv": 'gj04|1||They said "no.\ncj99|0|*|The more you want.\n',
         "glue/CoLA/dev.tsv": "gj04|0|*|Him left.\n"},
        {"train": ('They said "no.', "acceptable"), "validation": ("Him left.", "unacceptable")},
    ),
    "sst2": (
        {"glue/SST-2/train.tsv": "sentence|label\na fine |1\n", "glue/SST-2/dev.tsv": "sentence|label\nno good . |0\n",
         "glue/SST-2/test.tsv": "index|sentence\n0|uneasy .\n"},
        {"train": ("a fine", "positive"), "validation": ("no good .", "negative"), "test": ("uneasy .", None)},
    ),
    "mrpc": (
        {"glue/MRPC/train.tsv": f'\ufeffQuality|{MRPC}1|7|8|" He ran .|He did .\n',
         "glue/MRPC/dev.tsv": f"\ufeffQuality|{MRPC}0|7|8|A|B\n", "glue/MRPC/test.tsv": f"index|{MRPC}0|7|8|C|D\n"},
        {"train": ('" He ran .', "He did .", "equivalent"), "validation": ("A", "B", "not_equivalent"),
         "test": ("C", "D", None)},
    ),
    "qqp": (
        {"glue/QQP/train.tsv": f'{QQP}5|1|2|Who was he?|Was\n"|What is it?|0\n7|3|4|How?|How come?|1\n',
         "glue/QQP/dev.tsv": f"{QQP}8|3|4|A?|B?|0\n", "glue/QQP/test.tsv": "id|question1|question2\n0|C?|D?\n"},
        {"train": ("How?", "How come?", "duplicate"), "validation": ("A?", "B?", "not_duplicate"),
         "test": ("C?", "D?", None)},
    ),
    "stsb": (
        {"glue/STS-B/train.tsv": f"{STSB}0|main-captions|MSRvid|2012test|0001|none|none|A plane.|An air plane.|4.200\n",
         "glue/STS-B/dev.tsv": "sentence1|sentence2|label\nA man.|A hat.|0.500\n"},
        {"train": ("A plane.", "An air plane.", 4.2), "validation": ("A man.", "A hat.", 0.5)},
    ),
    "mnli": (
        {"glue/MNLI/train.tsv": f"{MNLI}|label1|gold_label\n0|31|31n|fiction|{PARSES}|P|H|neutral|neutral\n",
         "glue/MNLI/dev_matched.tsv": f"{MNLI}{LABELS}0|6|6e|slate|{PARSES}|Q|I|neutral|neutral{4 * '|entailment'}\n",
         "glue/MNLI/dev_mismatched.tsv": f"{MNLI}{LABELS}0|6|6c|letters|{PARSES}|R|J{6 * '|contradiction'}\n",
         "glue/MNLI/test_matched.tsv": f"{MNLI}\n0|31|31|travel|{PARSES}|S|K\n",
         "glue/MNLI/test_mismatched.tsv": f"{MNLI}\n0|31|31|verbatim|{PARSES}|T|L\n"},
        {"train": ("P", "H", "neutral"), "validation": ("Q", "I", "entailment"),
         "validation_mismatched": ("R", "J", "contradiction"), "test": ("S", "K", None),
         "test_mismatched": ("T", "L", None)},
    ),
    "qnli": (
        {"glue/QNLI/train.tsv": "index|question|sentence|label\n0|When?|In 1990.|entailment\n",
         "glue/QNLI/dev.tsv": "index|question|sentence|label\n0|Who?|In 1990.|not_entailment\n",
         "glue/QNLI/test.tsv": "index|question|sentence\n0|How?|So.\n"},
        {"train": ("When?", "In 1990.", "entailment"), "validation": ("Who?", "In 1990.", "not_entailment"),
         "test": ("How?", "So.", None)},
    ),
    "rte": (
        {"glue/RTE/train.tsv": "index|sentence1|sentence2|label\n0|A.|B.|not_entailment\n",
         "glue/RTE/dev.tsv": "index|sentence1|sentence2|label\n0|C.|D.|entailment\n",
         "glue/RTE/test.tsv": "index|sentence1|sentence2\n0|E.|F.\n"},
        {"train": ("A.", "B.", "not_entailment"), "validation": ("C.", "D.", "entailment"), "test": ("E.", "F.", None)},
    ),
    "wnli": (
        {"glue/WNLI/train.tsv": "index|sentence1|sentence2|label\n0|A.|B.|1\n",
         "glue/WNLI/dev.tsv": "index|sentence1|sentence2|label\n0|C.|D.|0\n",
         "glue/WNLI/test.tsv": "index|sentence1|sentence2\n0|E.|F.\n"},
        {"train": ("A.", "B.", "entailment"), "validation": ("C.", "D.", "not_entailment"), "test": ("E.", "F.", None)},
    ),
    "sst5": (
        {"sst_trees/train.txt": "(3 (2 It) (4 (2 's) (4 lovely)))\n",
         "sst_trees/dev.txt": "(0 (1 (2 Not) (2 -LRB-)) (2 bad))\n", "sst_trees/test.txt": "(2 (2 So) (2 so))\n"},
        {"train": ("It 's lovely", "positive"), "validation": ("Not ( bad", "very_negative"),
         "test": ("So so", "neutral")},
    ),
    "wic": (
        {f"wic/{split}/{split}.{kind}.txt": text for split in ("train", "dev", "test")
         for kind, text in (("data", "board|N|2-2|Room and board .|He nailed boards .\n"), ("gold", "T\n"))},
        {split: ("Room and board .", "He nailed boards .", "same") for split in SPLITS},
    ),
    "snli": (
        {f"snli_1.0/snli_1.0_{split}.jsonl": "".join(
            json.dumps({"annotator_labels": [gold], "gold_label": gold, "sentence1": f"A {gold}", "sentence2": "B"})
            + "\n" for gold in ("-", "contradiction")) for split in ("train", "dev", "test")},
        {split: ("A contradiction", "B", "contradiction") for split in SPLITS},
    ),
    "sick_entailment": ({f"sick/SICK_{name}.txt": f"{SICK}1|A|B|3.6|CONTRADICTION\n" for name in SICK_FILES},
        {split: ("A", "B", "contradiction") for split in SPLITS}),
    "sick_relatedness": ({f"sick/SICK_{name}.txt": f"{SICK}1|A|B|3.6|NEUTRAL\n" for name in SICK_FILES},
        {split: ("A", "B", 3.6) for split in SPLITS}),
    "trec": (
        {"trec/train_5500.label": "".join(f"NUM:date When {i} ?\n" for i in range(10)),
         "trec/TREC_10.label": "LOC:city Where: caf\xe9\xf0 ?\n"},
        {"train": ("When 0 ?", "number"), "validation": ("When 1 ?", "number"),
         "test": ("Where: caf\xe9\xf0 ?", "location")},
    ),
    "acceptability": ({f"outputs/prepare/g/acceptability/{s}.tsv": "sentence|label\na b|acceptable\n" for s in SPLITS},
        {split: ("a b", "acceptable") for split in SPLITS}),
    "sentiment": ({f"outputs/prepare/g/sentiment/{s}.tsv": "sentence|label\na b|negative\n" for s in SPLITS},
        {split: ("a b", "negative") for split in SPLITS}),
}  # fmt: skip
# The numbers of GLUE and the papers.
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
    layouts = {name for name, text in files.items() if "/task_type/sentences" in text}
    assert set(LAYOUTS) == layouts - {"mr", "subj", "own_labels"}  # tested in tests/tasks/test_sentences.py


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_task_reads_its_data_sets_own_files(name, tmp_path, monkeypatch):
    files, expected = LAYOUTS[name]
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        encoding = "latin-1" if name == "trec" else "utf-8"
        (tmp_path / path).write_text(content.replace("|", "\t"), encoding=encoding, newline="")
    monkeypatch.setenv("RETABLE_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    read = task(name)
    assert set(read.inputs) == {tmp_path / path if "outputs" not in path else Path(path) for path in files}
    assert set(read.splits) == set(expected)
    names = read.labels.names
    for split, (*sentences, label) in expected.items():
        first = read.examples(split)[0]
        label_name = names[int(first.label)] if names and first.label is not None else first.label
        assert (*first.sentences, label_name) == (*sentences, label), split


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
