"""Names of the pipeline's stages."""

STAGES = (
    *("prepare", "tokenize", "embed", "pretrain", "adapt", "mix", "from_scratch", "finetune"),
    *("evaluate", "generate", "scaling"),
)
TASK_STAGES = ("from_scratch", "finetune")  # train a system on a task, without and with a pretrained part
SYSTEM_STAGES = ("embed", "pretrain", "adapt", "mix", *TASK_STAGES)  # their cells contain a trained system
USING_STAGES = ("adapt", "mix", "evaluate", "generate")  # use systems that are already trained
_MODULES = {"tokenize": "tokenize_text", "from_scratch": "finetune"}  # modules not named after their stage


def module_of(stage: str) -> str:
    """Return the module of `pipelines/` that runs a stage."""
    return f"pipelines.{_MODULES.get(stage, stage)}"
