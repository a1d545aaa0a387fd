"""Renames words in the committed results, and carries the locks of the old graph over: run once, and removed then.

python studies/rename.py results             rows, stages and cells in studies/*/results
python studies/rename.py words OLD NEW STUDY compare two folders of results up to these words, ignoring the order of lines
python studies/rename.py locks GRAPH         dvc.lock of each study, from the locks of a folder graph/ of 223180c8
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import yaml

from pipelines.project import STUDIES
from retable.plan.cell import Cell

ROWS = {
    "history": {"gpt": "gpt_rotary", "bert": "bert_rotary", "elmo": "elmo_1x128", "bilstm_tagger": "few_tags",
                "bilstm_tagger_skipgram": "few_tags_skipgram", "elmo_tagger": "few_tags_elmo"},
    "history_again": {"gpt": "gpt_rotary"},
    "smoke": {"transformer_translation": "transformer_translation_grammar",
              "rnn_translation": "rnn_translation_grammar"},
    "embedded": {"transformer_translation": "transformer_translation_grammar",
                 "rnn_translation": "rnn_translation_grammar",
                 "rnn_translation_additive": "rnn_translation_grammar_additive",
                 "rnn_translation_none": "rnn_translation_grammar_none"},
    "glue": {"bag_of_words": "bag_of_words_glue", "bilstm": "bilstm_glue", "bilstm_elmo": "bilstm_elmo_glue"},
    "more_tasks": {"bilstm": "bilstm_glue"},
    "squad": {"elmo": "elmo_glue"},
    "text8": {"skipgram": "skipgram_text8", "fasttext": "fasttext_text8"},
    "ptb": {"gpt": "gpt_ptb"},
    "encoders": {"gpt": "gpt_toy"},
    "rates": {f"{name}{end}": f"{name}_scratch{end}" for name in ("gpt", "bert")
              for end in ("", *(f"_rate_{k}" for k in range(1, 5)))},
}  # fmt: skip
STUDY_NAMES = {"history": "lineage", "history_again": "lineage_again"}


def old_place(cell: Cell, rows: dict[str, str]) -> str:
    """Where a cell was before: its stage's and its rows' old names, an evaluation named after its benchmarks."""
    stage = {"tokenize": "encode", "from_scratch": "train", "finetune": "train"}.get(cell.stage, cell.stage)
    out = cell.out
    for old, new in rows.items():
        out = re.sub(rf"(?<=[/-]){re.escape(new)}(?=-)", old, out)
    if cell.stage == "evaluate":
        out = "-".join([out, *cell.choices("benchmark")])
    return f"{stage}/{out}"


def renaming(study: str):
    """A function that renames the words of a study's results."""
    from pipelines.plan import conf
    from retable.plan.study import read_study

    rows = ROWS.get(study, {})
    cells = read_study(conf(), STUDIES / study / "study.yaml").cells.values()
    places = {old_place(cell, rows): cell.place for cell in cells}
    by_length = sorted(places, key=len, reverse=True)
    place = re.compile("|".join(rf"(?<![\w/]){re.escape(old)}(?![\w/-])" for old in by_length))
    words = re.compile(
        "|".join(rf"(?<![\w./-]){re.escape(old)}(?![\w./])" for old in sorted(rows, key=len, reverse=True)) or "(?!)"
    )
    old_study = STUDY_NAMES.get(study, study)

    def rename(text: str) -> str:
        text = place.sub(lambda found: f"\0{places[found[0]]}\0", text)
        parts = text.split("\0")
        parts[::2] = [words.sub(lambda found: rows[found[0]], part) for part in parts[::2]]
        text = "".join(parts)
        return text.replace(f"## Study {old_study}\n", f"## Study {study}\n").replace("study lineage", "study history")

    return rename


def results() -> None:
    for folder in sorted(STUDIES.glob("*/results")):
        study = folder.parent.name
        rename, rows = renaming(study), ROWS.get(study, {})
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".csv", ".md", ".svg", ".tex"):
                text = path.read_text(encoding="utf-8")
                if path.suffix == ".tex":
                    path.write_text(_tex(text, rename), encoding="utf-8")
                elif (new := rename(text)) != text:
                    path.write_text(_aligned(new) if path.suffix == ".md" else new, encoding="utf-8")
        for path in [*folder.glob("*.svg")]:
            for old, new in rows.items():
                if re.search(rf"-{old}(-\d+)?\.svg$", path.name):
                    path.rename(path.with_name(path.name.replace(old, new)))
        if (folder / "metrics").is_dir():
            scores = {
                rows.get(path.stem, path.stem): json.loads(path.read_text()) for path in (folder / "metrics").iterdir()
            }
            text = json.dumps(scores, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            (folder / "metrics.json").write_text(text, encoding="utf-8")
            for path in (folder / "metrics").iterdir():
                path.unlink()
            (folder / "metrics").rmdir()


def _aligned(text: str) -> str:
    """Pipe tables padded again, as `markdown_table` pads them."""

    def padded(found: re.Match[str]) -> str:
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found[0].splitlines()]
        numeric = [cell.endswith(":") for cell in rows[1]]
        columns = [*zip(*(row for k, row in enumerate(rows) if k != 1))]
        widths = [max(1 + right, *map(len, column)) for column, right in zip(columns, numeric)]
        rows[1] = ["-" * (width - right) + ":" * right for width, right in zip(widths, numeric)]
        lines = (
            (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric))
            for row in rows
        )
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    return re.sub(r"(?m)(?:^\|.*\|\n){2,}", padded, text)


def _tex(text: str, rename) -> str:
    return (
        rename(text.replace(r"\_", "_\x01")).replace("_\x01", r"\_")
        if "\\_" not in text
        else rename(text.replace(r"\_", "_")).replace("_", r"\_")
    )


def words(old: str, new: str, study: str) -> None:
    rename = renaming(study)
    before, after = Path(old), Path(new)
    rows = ROWS.get(study, {})
    differing = 0
    for path in sorted(before.glob("*")):
        if path.name in ("report.html", "runs.csv", "metrics") or path.suffix == ".tex":
            continue
        name = path.name
        for a, b in rows.items():
            name = re.sub(rf"-{a}(?=(-\d+)?\.svg$)", f"-{b}", name)
        text, other = rename(path.read_text()), (after / name).read_text()
        if name == "report.md":
            other = re.sub(r"(?m)^- \d+ cells?: .*\n", "", other)

        def lines(said: str):
            said = re.sub(r"[ -]{2,}|\s+", " ", said)
            return sorted(re.split(r"\n|\| |</g>|(?<=/>)", said))

        def flat(said: str):
            return sorted(re.sub(r"[-: |]+", " ", line).strip() for line in said.splitlines() if line.strip())

        same = text == other
        sorted_same = flat(text) == flat(other)
        print(f"{'same' if same else 'same lines, other order or widths' if sorted_same else 'DIFFERS'}  {name}")
        differing += not sorted_same
    print(f"{differing} differ")


def locks(graph: str) -> None:
    from pipelines.plan import composing, conf, data_of, plan_of
    from pipelines.project import CHECKOUT, code_of_plans
    from retable.plan.graph import keys_of, params_of, settings_of
    from retable.plan.study import read_study

    import hashlib
    import os

    stale = (
        set(json.loads(Path("/work/old/stale.json").read_text())) if Path("/work/old/stale.json").exists() else set()
    )
    noted = {
        path.parent.name: yaml.load(path.read_text(), yaml.CSafeLoader)["stages"]
        for path in Path(graph).glob("corpus/*/dvc.lock")
    }
    for file in sorted(STUDIES.glob("*/study.yaml")):
        study = file.parent.name
        if study in ("history", "smoke"):
            continue
        rows, found = ROWS.get(study, {}), read_study(conf(), file)
        keys, stages = keys_of(found), {}
        os.chdir(file.parent)

        def entry_of(cell):
            old = old_place(cell, rows)
            stage, out = old.split("/", 1)
            group, _, rest = out.partition("/")
            return noted.get(group, {}).get("-".join(filter(None, (stage, rest)))), old

        with composing():
            params = params_of(found, {place: data_of(cell) for place, cell in found.cells.items()})
            cells = {
                place: replace(cell, settings=settings_of(params[cell.stage][keys[place]]))
                for place, cell in found.cells.items()
            }
            for place, cell in cells.items():
                made, old = entry_of(found.cells[place])
                if made is None:
                    continue
                text = plan_of(cell, cells).encode()
                old_deps = {dep["path"]: dep for dep in made["deps"]}
                (old_plan,) = [dep for path, dep in old_deps.items() if path.startswith("outputs/plan/")]
                md5 = old_plan["md5"] if old in stale else hashlib.md5(text, usedforsecurity=False).hexdigest()
                deps = [{"path": cell.plan, "hash": "md5", "md5": md5, "size": len(text)}]
                reads = params[cell.stage][keys[place]]["of"].get("reads", [])
                missing = []
                for path in dict.fromkeys(reads):
                    maker = found.cells.get(path.removeprefix("outputs/"))
                    if path in old_deps:
                        deps.append(old_deps[path])
                    elif maker is not None and (upstream := entry_of(maker)[0]) is not None:
                        out = {key: value for key, value in upstream["outs"][0].items() if key != "path"}
                        deps.append({"path": path} | out)
                    elif path != cell.plan:
                        missing.append(path)
                if missing:
                    print("skipped", study, place, missing)
                    continue
                out = {key: value for key, value in made["outs"][0].items() if key != "path"}
                stages[f"{cell.stage}@{keys[place]}"] = {
                    "cmd": f"python -m {cell.module} @{cell.plan}",
                    "deps": sorted(deps, key=lambda dep: dep["path"]),
                    "outs": [{"path": f"outputs/{place}"} | out],
                }
        os.chdir(CHECKOUT)
        if stages:
            from dvc.utils.serialize import dump_yaml

            dump_yaml(str(file.parent / "dvc.lock"), {"schema": "2.0", "stages": stages})
        print(study, len(stages), "of", len(found.cells))


if __name__ == "__main__":
    {"results": results, "words": words, "locks": locks}[sys.argv[1]](*sys.argv[2:])
