"""Plugins of this project for Hydra: launcher, sweeper and search path.

Hydra imports this module at the start of each Hydra application, so a plugin imports its code only when it is chosen.
"""

from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper


class Processes(Launcher):
    """`hydra/launcher=processes`: pipelines/execute/launcher.py."""

    def __init__(self, **settings: Any):
        from pipelines.execute.launcher import Processes

        self.inner = Processes(**settings)

    def setup(self, **given: Any) -> None:
        self.inner.setup(**given)

    def launch(self, job_overrides: Any, initial_job_idx: int) -> Any:
        return self.inner.launch(job_overrides, initial_job_idx)


class Grid(Sweeper):
    """`hydra/sweeper=grid`: pipelines/execute/grid.py."""

    def __init__(self, **settings: Any):
        from pipelines.execute.grid import Grid

        self.inner = Grid(**settings)

    def setup(self, **given: Any) -> None:
        self.inner.setup(**given)

    def sweep(self, arguments: list[str]) -> Any:
        return self.inner.sweep(arguments)


class Search(Sweeper):
    """`hydra/sweeper=optuna`: pipelines/execute/optuna_search.py."""

    def __init__(self, **settings: Any):
        from pipelines.execute.optuna_search import Search

        self.inner = Search(**settings)

    def setup(self, **given: Any) -> None:
        self.inner.setup(**given)

    def sweep(self, arguments: list[str]) -> Any:
        return self.inner.sweep(arguments)


class OwnConfigurations(SearchPathPlugin):
    """The folder `conf/` of a study's folder, before the project's: pipelines/project.py."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from pipelines.config.project import own_conf

        if (folder := own_conf()) is not None:
            search_path.prepend(provider="study", path=str(folder))
