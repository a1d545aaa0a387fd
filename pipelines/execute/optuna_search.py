"""The sweeper `hydra/sweeper=optuna`: a search for the best settings. The search can be resumed and extended.

Trials are stored in Optuna's database `trials.db` in the sweep's folder. A trial whose worker was killed resumes from
its checkpoint. Several workers can share a search; every worker is started with the same command. Failed trials are
retried when the command is run again.
"""

import contextlib
import fcntl
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import optuna
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from omegaconf import OmegaConf
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from pipelines.config.environment import TRIAL
from pipelines.execute.grid import Sweep, leave, parent_run
from pipelines.execute.launcher import Job, in_parallel
from pipelines.study.adhoc import cell_suffix
from retable.core.digests import digest_of
from retable.core.errors import UsageError

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
AGAIN = "again"  # attribute of a trial: the number of the failed trial that it repeats
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Search(Sweep):
    """The Optuna sweeper; its arguments are the settings of conf/hydra/sweeper/optuna.yaml."""

    def __init__(
        self,
        metric: str | None,
        direction: str | None,
        params: Mapping[str, Any] | None,
        n_trials: int,
        study_name: str | None,
        storage: str | None,
        seed: int,
        sampler: Callable[..., optuna.samplers.BaseSampler],
        pruner: optuna.pruners.BasePruner,
    ):
        super().__init__(metric or "validation/loss", direction, params)
        if not isinstance(n_trials, int) or n_trials < 1:
            raise UsageError(f"hydra.sweeper.n_trials={n_trials} must be at least 1; write 1 or more")
        self._n_trials, self._name, self._storage, self._seed = n_trials, study_name, storage, seed
        self._sampler, self._pruner = sampler, pruner
        self._ask_lock = threading.Lock()
        self._claims: dict[int, TextIO] = {}

    def sweep(self, arguments: list[str]) -> Any:
        parsed = self.parsed(arguments)
        self._space = {each.get_key_element(): distribution(each) for each in parsed if each.is_sweep_override()}
        self._fixed = [each.input_line or "" for each in parsed if not each.is_sweep_override()]
        if not self._space:
            raise UsageError(
                "no setting is varied; write an interval or a list of values, as in optimizer.lr=interval(1e-4,1e-2)"
            )
        lower = self.lower_is_better(str(self._metric))
        facts = {"space": {key: str(each) for key, each in self._space.items()}, "fixed": sorted(self._fixed),
                 "metric": self._metric, "minimize": lower}  # fmt: skip
        launcher = self.launcher
        self._name = self._name or f"search-{digest_of([launcher.stage, facts])[:8]}"
        launcher.folder = launcher.folder.parent / self._name
        for overrides in corners(self._space):
            launcher.check([*self._fixed, *overrides], 0)
        launcher.folder.mkdir(parents=True, exist_ok=True)
        self._open(facts, lower)
        self._failed = failed = len(self._of(TrialState.FAIL))
        left = self._n_trials - len(self._study.trials) + failed
        with parent_run(self.settings, launcher, [*self._space]), launcher.running(max(left, 0)):
            workers = min(launcher.devices.jobs, self._n_trials)
            in_parallel(self._work, range(workers), workers, launcher.refresh)
        leave(launcher, [self._row(each) for each in self._study.trials], str(self._metric), lower)
        if running := self._of(TrialState.RUNNING):
            print(f"{len(running)} trials are still running in other workers", file=sys.stderr)
        if (new := len(self._of(TrialState.FAIL)) - failed) > 0:
            print(f"{new} trials failed; run the same command to retry them", file=sys.stderr)
            sys.exit(1)
        return None

    def _open(self, facts: Mapping[str, Any], lower: bool) -> None:
        """Open Optuna's study and enqueue failed trials of earlier runs.

        Raises: UsageError: an existing study has another search space, metric or fixed settings, or the database does
            not answer.
        """
        self._url = self._storage or f"sqlite:///{self.launcher.folder / 'trials.db'}"
        with self._exclusive():
            try:
                self._study = optuna.create_study(
                    study_name=self._name, storage=self._url, direction="minimize" if lower else "maximize",
                    pruner=self._pruner, load_if_exists=True,
                )  # fmt: skip
            except (SQLAlchemyError, StorageInternalError, ModuleNotFoundError) as error:
                from retable.tracking.store import concealed

                hidden = concealed(f"hydra.sweeper.storage={self._url}: {str(error).splitlines()[0][:200]}")
                raise UsageError(hidden) from None
            known = self._study.user_attrs.setdefault("said", facts)
            if differs := [key for key in facts if known.get(key) != facts[key]]:
                was = "; ".join(f"{key} {known.get(key)}" for key in differs)
                raise UsageError(
                    f"{self.launcher.folder} is another search, with {was}; write another hydra.sweeper.study_name"
                )
            self._study.set_user_attr("said", known)
            again = {trial.user_attrs.get(AGAIN) for trial in self._study.trials}
            for trial in self._of(TrialState.FAIL):
                if trial.number not in again:
                    self._study.enqueue_trial(trial.params, user_attrs={AGAIN: trial.number})

    def _of(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states)

    def _work(self, _: int) -> None:
        """Run trials until the search has enough trials."""
        while (trial := self._next()) is not None:
            try:
                values = trial.params
                overrides = [f"{key}={value}" for key, value in values.items()]
                suffix = f"+{self._name}.{trial.number}{cell_suffix({}, [*map(rounded, overrides)], [*values])}"
                try:
                    job = self.launcher.check([*self._fixed, *overrides], trial.number, suffix=suffix)
                except UsageError as error:  # the drawn values are not a valid combination
                    print(f"failed: {error}", file=sys.stderr)
                    self._study.tell(trial, state=TrialState.FAIL)
                    continue
                known: dict[str, Any] = {
                    "storage": self._url,
                    "study": self._name,
                    "trial": trial.number,
                    "metric": self._metric,
                }
                known["pruner"] = OmegaConf.to_container(self.settings.hydra.sweeper.pruner, resolve=True)
                self.launcher.run_one(job, {TRIAL: json.dumps(known)})
                if job.code is None:  # stopped; the trial can be resumed
                    return
                self._report(trial, job)
            finally:
                self._release(trial.number)

    def _next(self) -> optuna.Trial | None:
        """Return the next trial to run, or None if the search has enough trials.

        Unfinished trials that no worker runs any more come first, then repetitions of failed trials, then new trials.
        Trials that failed since the command was started are included in the number of trials.
        """
        with self._ask_lock, self._exclusive():
            for left in self._of(TrialState.RUNNING):
                if self._claim(left.number):
                    if left.number not in {each.number for each in self._of(TrialState.RUNNING)}:
                        self._release(left.number)  # another worker has finished this trial meanwhile
                        continue
                    self._seed_for(left.number)
                    return self._drawn(optuna.Trial(self._study, left._trial_id))
            counted = len(self._study.get_trials(deepcopy=False)) - self._failed
            if counted >= self._n_trials and not self._of(TrialState.WAITING):
                return None
            self._seed_for(len(self._study.trials))
            trial = self._study.ask()
            self._claim(trial.number)
            return self._drawn(trial)

    def _seed_for(self, number: int) -> None:
        """Seed the sampler by the trial's number, so that interruptions of a search do not change the drawn values."""
        self._study.sampler = self._sampler(seed=int(digest_of([self._seed, number])[:8], 16))

    def _drawn(self, trial: optuna.Trial) -> optuna.Trial:
        """Draw all values of a trial now, before the sampler is seeded for another trial."""
        for key, each in self._space.items():
            suggested(trial, key, each)
        return trial

    def _report(self, trial: optuna.Trial, job: Job) -> None:
        trial.set_user_attr("cell", str(job.cell or ""))
        trial.set_user_attr("seconds", round(job.seconds + trial.user_attrs.get("seconds", 0.0), 1))
        if job.code != 0:
            self._study.tell(trial, state=TrialState.FAIL)
        elif "pruned" in job.report:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, job.metrics[self.metric_of([job])])

    def _row(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return a trial's row of `trials.csv`."""
        is_pruned = trial.state == TrialState.PRUNED
        value = trial.intermediate_values.get(trial.last_step or 0) if is_pruned else trial.value
        facts = {"trial": trial.number, "state": STATES.get(trial.state, "running"), "value": value}
        facts |= {"step": trial.last_step if is_pruned else None, "seconds": trial.user_attrs.get("seconds")}
        return facts | {"cell": trial.user_attrs.get("cell", "")} | trial.params

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock that all workers of this search share."""
        with (self.launcher.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _claim(self, number: int) -> bool:
        """Lock a trial for this worker; return False if it is locked already.

        The kernel unlocks the trials of a killed worker.
        """
        if number in self._claims:
            return False
        file = (self.launcher.folder / f"{number}.lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._claims[number] = file
        return True

    def _release(self, number: int) -> None:
        file = self._claims.pop(number)
        Path(file.name).unlink(missing_ok=True)
        file.close()


def distribution(override: Override) -> BaseDistribution:
    """Return Optuna's distribution for `interval(1e-4,1e-2)`, `tag(log, interval(…))`, `range(1,9,2)` or `a,b,c`.

    Raises: UsageError: the override has none of these forms, or the range in the override contains no value.
    """
    match override.value():
        case IntervalSweep(start=float() | int() as low, end=float() | int() as high, tags=tags):
            if low > high or ("log" in tags and low <= 0):
                raise UsageError(
                    f"{override.input_line}: the interval from {low} to {high} is invalid; write the lower end first; "
                    "with log, the lower end must be above 0"
                )
            if isinstance(low, int) and isinstance(high, int):
                return IntDistribution(low, high, log="log" in tags)
            return FloatDistribution(low, high, log="log" in tags)
        case RangeSweep():
            values: list[Any] = [*override.sweep_iterator()]
            if not values:
                raise UsageError(f"{override.input_line}: the range is empty; write a range such as range(1,9,2)")
            step = abs(values[1] - values[0]) if len(values) > 1 else 1
            if isinstance(step, int):
                return IntDistribution(min(values), max(values), step=step)
            return FloatDistribution(min(values), max(values), step=step)
        case ChoiceSweep():
            return CategoricalDistribution([*override.sweep_string_iterator()])
    raise UsageError(
        f"{override.input_line}: Optuna draws from interval(…), range(…) and choice(…); write one of these"
    )


def rounded(override: str) -> str:
    """Round the number in `name=number` to three digits; other overrides are returned unchanged."""
    key, _, value = override.partition("=")
    try:
        return f"{key}={float(value):.3g}"
    except ValueError:
        return override


def suggested(trial: optuna.Trial, name: str, of: BaseDistribution) -> Any:
    """Return the trial's value of a setting; if the trial has no value yet, draw one."""
    match of:
        case FloatDistribution():
            return trial.suggest_float(name, of.low, of.high, log=of.log, step=of.step)
        case IntDistribution():
            return trial.suggest_int(name, of.low, of.high, log=of.log, step=of.step)
        case CategoricalDistribution():
            return trial.suggest_categorical(name, of.choices)
    raise AssertionError(of)


def corners(space: Mapping[str, BaseDistribution]) -> Iterator[list[str]]:
    """Yield the overrides for some corners of a search space.

    The first corner has the first value of every setting. Each further corner differs from the first corner in one
    setting. The values of an interval are its two ends.
    """
    ends = {
        key: [*each.choices] if isinstance(each, CategoricalDistribution) else [each.low, each.high]  # type: ignore
        for key, each in space.items()
    }
    first = {key: values[0] for key, values in ends.items()}
    yield [f"{key}={value}" for key, value in first.items()]
    for key, values in ends.items():
        for value in values[1:]:
            yield [f"{k}={v}" for k, v in (first | {key: value}).items()]
