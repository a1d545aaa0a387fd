"""Make a study the current one: `python -m pipelines.study ptb` composes its cells into params.yaml, as DVC would.

DVC reads and writes the whole of `dvc.lock` around every stage, which takes 10 seconds where that holds the cells
of all studies. So it holds those of the current study alone, and those of the others wait in `results/`.
"""

import os
import shutil
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pipelines.entry import CONF
from retable.errors import UsageError

LOCK = Path("dvc.lock")
PARAMS = Path("params.yaml")


def choose(study: str) -> None:
    """Write `params.yaml` and bring the study's `dvc.lock`, the former study's staying as `results/FORMER.lock`.

    Raises UsageError for an unknown study, or one whose data are not there.
    """
    known = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))
    if study not in known:
        raise UsageError(f"there is no study {study!r}; write one of {', '.join(known)}")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("params", overrides=[f"study={study}"])
    for cell in cfg.prepare.values():
        if not Path(cell.source).exists():
            raise UsageError(
                f"{cell.source} does not exist, and study {study} reads corpus {cell.corpus} from it; "
                "set RETABLE_DATA to the folder of data sets, or put them in data/"
            )
    former = OmegaConf.load(PARAMS).study if PARAMS.exists() else study
    if former != study and LOCK.exists():
        kept(former).parent.mkdir(exist_ok=True)
        shutil.copyfile(LOCK, kept(former))
    text = OmegaConf.to_yaml(cfg)
    if not PARAMS.exists() or PARAMS.read_text(encoding="utf-8") != text:
        PARAMS.write_text(text, encoding="utf-8")
    if kept(study).exists():
        os.replace(kept(study), LOCK)
    elif former != study:
        LOCK.unlink(missing_ok=True)


def kept(study: str) -> Path:
    """Where the lock of a study waits that is not the current one."""
    return Path(f"results/{study}.lock")


if __name__ == "__main__":
    try:
        choose(*sys.argv[1:])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
