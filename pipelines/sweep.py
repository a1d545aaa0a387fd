"""Hydra's callback for multiruns: one parent run in MLflow over the runs of all jobs."""

import os
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from pipelines.observers import in_mlflow


class ParentRun(Callback):
    """Opens the parent before the first job and closes it after the last; `RETABLE_PARENT_RUN` names it to them,
    and `RETABLE_SWEPT` the settings that differ between them."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not in_mlflow(config, config.hydra.overrides.task):
            return
        from retable import artifacts
        from retable.tracking.run import Opening, start

        said = list(config.hydra.overrides.task)
        parsed = OverridesParser.create().parse_overrides(said)
        swept = " ".join(each.key_or_group for each in parsed if each.is_sweep_override())
        folder = str(Path(config.hydra.sweep.dir))
        tags = {f"retable.{k}": str(v) for k, v in artifacts.git_state().items()} | {"retable.stage": "sweep"}
        name = f"sweep {config.hydra.job.config_name} {swept}".strip()
        self._run = start(Opening(name, folder, {"overrides": " ".join(said)}, tags))
        os.environ["RETABLE_SWEPT"] = swept
        if self._run.id is not None:
            os.environ["RETABLE_PARENT_RUN"] = self._run.id

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        # After a failed job Hydra runs the others, but never calls on_multirun_end.
        if "RETABLE_SWEPT" in os.environ and job_return.status == JobStatus.FAILED:
            self._run.fail()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        if os.environ.pop("RETABLE_SWEPT", None) is not None:
            os.environ.pop("RETABLE_PARENT_RUN", None)
            self._run.finish({}, [])
