"""Names of the pipeline's stages, and groups of stages."""

STAGES = (
    *("prepare", "tokenize", "embed", "pretrain", "adapt", "mix", "from_scratch", "finetune"),
    *("evaluate", "generate", "scaling"),
)
TASK_STAGES = ("from_scratch", "finetune")  # stages that train on a task, from random or from pretrained weights
SYSTEM_STAGES = ("embed", "pretrain", "adapt", "mix", *TASK_STAGES)  # stages whose output is a trained system
USING_STAGES = ("adapt", "mix", "evaluate", "generate")  # stages that use trained systems
_MODULES = {"tokenize": "tokenize_text", "from_scratch": "finetune"}  # stages whose module has a different name


def module_of(stage: str) -> str:
    """Return the full name of the module in `pipelines/` that runs a stage."""
    return f"pipelines.{_MODULES.get(stage, stage)}"
