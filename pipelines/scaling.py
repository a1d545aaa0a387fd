"""Measure the cost of layers by sequence length and width: `python -m pipelines.scaling device=cpu`."""

from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from retable.core.errors import UsageError


@stage
def scaling(cfg: DictConfig) -> None:
    import torch

    from retable.evaluation.scaling import exponents, measure

    if torch.device(cfg.device).type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device={cfg.device} is not available here; write device=cpu")
    torch.set_num_threads(1)  # the theory counts operations, so time must not depend on threads
    with run_folder(cfg, inputs=[], upstream=[], system=cfg.device, seed=0, corpus="layers") as record:
        rows = measure(
            cfg.kernel, cfg.lengths, cfg.width, cfg.widths, cfg.length, cfg.batch_size, cfg.repeats, cfg.device
        )
        rows.to_csv(record.folder / "scaling.csv", index=False, float_format="%.6g", lineterminator="\n")
        record.metrics = exponents(rows)


if __name__ == "__main__":
    scaling()
