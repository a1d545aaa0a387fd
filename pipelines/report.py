"""Results → tables, figures and the report: `python -m pipelines.report study=lineage`."""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.entry import stage
from retable.artifacts import require
from retable.reporting.report import write_report

STAGES = (
    *("prepare", "encode", "embed", "pretrain", "mix", "finetune", "tag", "answer", "choose", "resolve", "translate"),
    *("evaluate", "generate", "scaling"),
)


@stage
def report(cfg: DictConfig) -> None:
    folders = {
        name: [require(Path("outputs", name, cell.out)) for cell in cfg.get(name, {}).values()] for name in STAGES
    }
    folders["evaluate"] += [require(Path("outputs/evaluate", cell.out)) for cell in cfg.get("score", {}).values()]
    out = Path(cfg.results)
    sections = {name: cfg.get(name) for name in ("notes", "ablations", "baseline", "elmo", "label_efficiency")}
    write_report(cfg.study, folders, out, **sections)
    print(f"The report is {out / 'report.html'}")


if __name__ == "__main__":
    report()
