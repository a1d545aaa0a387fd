import csv

from retable.reporting.markup import Column, Row, Table, Value, latex_table, markdown_table
from retable.reporting.neighbours import neighbours_tables
from retable.reporting.results import aggregate, read_result
from retable.reporting.tables import write_table, write_tables
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS, texts

NASTY = r"a_b|c & <d> 50% $x$ {y} ~z^ #1 \n *e*"


def test_an_oracle_without_systems_of_its_task_is_left_out(write_likelihood, perplexity_of, tmp_path, write_run):
    folder = write_likelihood("prepare", "toy", "oracle", 0, [perplexity_of(45)] * 5)
    assert write_tables(aggregate([read_result(folder)], REFERENCES), SPECIFICATIONS, tmp_path / "results") == []
    # In the same table as a system of one task, it would look like a bound for that task.
    bounds = {"sentiment/test/accuracy": 0.9, "sentiment/test/matthews": 0.8, "acceptability/test/accuracy": 0.95}
    folders = [
        write_run("prepare", "grammar", "oracle", 0, bounds),
        write_run("finetune", "grammar/lstm-1", "lstm", 1, {"sentiment/test/accuracy": 0.7}),
    ]
    frame = aggregate(map(read_result, folders), REFERENCES)
    (table,) = write_tables(frame, {"tasks": SPECIFICATIONS["tasks"]}, tmp_path)
    assert [column.name for column in table.columns] == ["System", "Runs", "sentiment accuracy"]
    assert texts(table, "grammar") == [["lstm", "1", "70.0"], ["Bayes-optimal (oracle)", "1", "90.0"]]


def test_published_analogies_stand_beside_their_system(write_vectors, tmp_path):
    results = [read_result(write_vectors("text8", *cell)) for cell in (("fasttext_text8", 1, 55), ("own", 1, 39))]
    (table,) = write_tables(aggregate(results, REFERENCES), SPECIFICATIONS, tmp_path / "results")
    assert [(column.group, column.title) for column in table.columns] == [
        ("", "Section"), ("Questions", "asked"), ("Questions", "seen"), ("fastText on text8", ""),
        ("fastText on text8", "published"), ("fastText on text8", "verdict"), ("own", ""),
    ]  # fmt: skip
    (total,) = (row for row in table.panels["text8"] if row.values[0].text == "total")
    assert [value.text for value in total.values[3:]] == ["55.0", "55.7", "pass", "39.0"]
    assert total.values[4].spread == "2.0" and "gensim" in total.values[4].hint


def test_similarity_says_what_each_kind_of_system_covers(write_run, tmp_path):
    def write(system, seed, protocol, covered, spearman):
        metrics = {"similarity/EN-A/pairs": 30, "similarity/EN-A/covered": covered}
        metrics |= {"similarity/EN-A/spearman": spearman} if covered > 1 else {}
        metrics |= {"similarity/EN-B/pairs": 9, "similarity/EN-B/covered": 0}
        return read_result(write_run("evaluate", f"ptb/{system}-{seed}", system, seed, metrics, protocol=protocol))

    results = [write("skipgram", 1, "one vector a word", 12, 0.5), write("skipgram", 2, "one vector a word", 12, 0.6),
               write("fasttext", 1, "unseen words from n-grams", 30, 0.41)]  # fmt: skip
    (table,) = write_tables(aggregate(results, REFERENCES), SPECIFICATIONS, tmp_path / "results")
    assert [column.title for column in table.columns] == [
        "Set", "Pairs", "fastText", "Skip-gram", "one vector a word", "unseen words from n-grams"
    ]  # fmt: skip
    assert texts(table, "ptb") == [["EN-A", "30", "41.0", "55.0", "12", "30"], ["EN-B", "9", "", "", "0", "0"]]


def test_neighbours_stand_under_their_words(write_neighbours, tmp_path):
    words = {("NA", "1"): ["b", '"'], ("rare|", "90"): ["c"]}
    other = {("new", ""): ["a"]}
    folders = [
        write_neighbours("ptb/skipgram-2", "skipgram", 2, {key: ["z", "z"] for key in words}),
        write_neighbours("ptb/skipgram-1", "skipgram", 1, words),
        write_neighbours("ptb/glove-1", "glove", 1, words),
        write_neighbours("ptb/fasttext-1", "fasttext", 1, other),
    ]
    tables = neighbours_tables(read_result(folder) for folder in folders)
    assert [table.name for table, _ in tables] == ["neighbours-ptb", "neighbours-ptb-2"]
    table, frame = tables[0]
    assert [(column.group, column.title) for column in table.columns] == [
        ("", "neighbour"),
        ("NA", "1"),
        ("rare|", "90"),
    ]
    assert table.panels.keys() == {"GloVe", "Skip-gram"}
    assert texts(table, "Skip-gram") == [["1", "b", "c"], ["2", '"', ""]]  # words of the first seed
    assert table.panels["Skip-gram"][0].values[0].runs == ("evaluate/ptb/skipgram-1",)
    assert markdown_table(table).count("System: ") == 2
    write_table(table, frame, tmp_path)
    with (tmp_path / "neighbours-ptb.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [row["neighbour"] for row in rows if row["system"] == "glove"] == ["b", '"', "c"]
    assert neighbours_tables([]) == []


def test_markdown_and_latex_escape_every_special():
    columns = [Column("System", numeric=False), Column(NASTY, group=NASTY)]
    rows = [Row([Value(NASTY), Value("1.0", spread="0.1", bold=True, runs=("evaluate/x y",), hint=f'"{NASTY}"')])]
    nasty = Table("nasty", NASTY, columns, {NASTY: rows}, [NASTY])
    lines = [line for line in markdown_table(nasty).splitlines() if line.startswith("|")]
    assert len(lines) == 3
    for line in lines:
        assert line.replace(r"\|", "").count("|") == 3
    assert r"a_b\|c & &lt;d&gt;" in lines[2] and r"\*e\*" in lines[2] and "**1.0** ± 0.1" in lines[2]
    narrow = Table("", "", [Column(""), Column("", numeric=False)], {"a": [Row([Value("1"), Value("b")])]}, [])
    assert "|    |   |\n| -: | - |\n|  1 | b |" in markdown_table(narrow)
    text = latex_table(nasty)
    expected = (
        r"a\_b\textbar{}c \& \textless{}d\textgreater{} 50\% \$x\$ \{y\} "
        r"\textasciitilde{}z\textasciicircum{} \#1 \textbackslash{}n *e*"
    )
    assert text.count(expected) == 6  # in title, note, group, column, corpus, field
    assert rf"{expected} & \textbf{{1.0}} $\pm$ 0.1 \\" in text
    for line in ("toprule", "midrule", "bottomrule", "cmidrule(lr){2-2}"):
        assert f"\\{line}" in text
