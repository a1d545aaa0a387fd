"""Measure how the cost of layers grows with their size (`device=cpu`), or fit a scaling law (`scaling=law`).

A scaling law is a formula for a language model's loss, given the model's number of weights and the number of training
tokens.
"""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.errors import UsageError


@stage
def scaling(cfg: DictConfig) -> None:
    if "resamples" in cfg:
        law(cfg)
    else:
        layers(cfg)


def layers(cfg: DictConfig) -> None:
    """Measure the cost of layers at several sequence lengths and widths."""
    import torch

    from retable.evaluation.scaling import exponents, measure

    if torch.device(cfg.device).type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device={cfg.device} is not available here; write device=cpu")
    torch.set_num_threads(1)  # the measured time is compared with numbers of operations, so only one thread is used
    with run_folder(cfg, inputs=[], upstream=[], system=cfg.device, seed=0, corpus="layers") as record:
        rows = measure(
            cfg.kernel, cfg.lengths, cfg.width, cfg.widths, cfg.length, cfg.batch_size, cfg.repeats, cfg.device
        )
        rows.to_csv(record.folder / "scaling.csv", index=False, float_format="%.6g", lineterminator="\n")
        record.metrics = exponents(rows)


def law(cfg: DictConfig) -> None:
    """Fit the scaling law to the measured losses in a corpus; compute standard errors from fits to resampled losses."""
    import pandas as pd

    from retable.corpora.loss_points import POINTS
    from retable.metrics.scaling_laws import HOFFMANN, fit_law, law_metrics, resampled_laws

    folder = Path("outputs/prepare", chosen("corpus"))
    points = pd.read_csv(require(folder / POINTS))
    given = points["N"], points["D"], points["loss"]
    with run_folder(cfg, [folder / POINTS], [folder], "scaling_law", cfg.seed, corpus=chosen("corpus")) as record:
        # As in Besiroglu et al., the fit to each resample starts from the law that Hoffmann et al. published.
        laws = resampled_laws(*given, HOFFMANN, cfg.resamples, cfg.seed)
        record.metrics = law_metrics(fit_law(*given), laws)


if __name__ == "__main__":
    scaling()
