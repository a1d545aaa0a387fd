"""Make a study the current one: `python -m pipelines.study ptb` composes its cells into params.yaml, as DVC would."""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pipelines.entry import CONF
from retable.errors import UsageError


def choose(study: str) -> None:
    """Write `params.yaml`. Raises UsageError for an unknown study, or one whose data are not there."""
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
    text = OmegaConf.to_yaml(cfg)
    params = Path("params.yaml")
    if not params.exists() or params.read_text(encoding="utf-8") != text:
        params.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        choose(*sys.argv[1:])
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
