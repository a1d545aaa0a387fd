"""Results → tables, figures and the report: `python -m pipelines.report study=lineage`."""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.entry import CONF, stage
from retable.artifacts import require
from retable.plan.conf import Conf
from retable.plan.study import REPORTED, read_study
from retable.reporting.report import write_report

STAGES = ("prepare", "encode", "embed", "pretrain", "mix", "train", "evaluate", "generate", "scaling")


@stage
def report(cfg: DictConfig) -> None:
    conf = Conf(CONF)
    study = read_study(conf, cfg.name)
    folders: dict[str, list[Path]] = {name: [] for name in STAGES}
    for cell in study.cells.values():
        for part in cell.choices("benchmark") or [""]:
            folders[cell.stage].append(require(Path("outputs", cell.place, part)))
    out = Path(cfg.results)
    sections = {name: study.reported.get(name) for name in REPORTED if name != "bands"}
    write_report(study.name, folders, out, conf.tables(), rates=study.rates, **sections)
    print(f"The report is {out / 'report.html'}")


if __name__ == "__main__":
    report()
