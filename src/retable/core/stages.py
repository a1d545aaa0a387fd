"""The stages of the pipeline, by their names."""

STAGES = (
    *("prepare", "tokenize", "embed", "pretrain", "adapt", "mix", "from_scratch", "finetune"),
    *("evaluate", "generate", "scaling"),
)
TASK_STAGES = ("from_scratch", "finetune")  # train a system on a task: without and with something pretrained
SYSTEM_STAGES = ("embed", "pretrain", "adapt", "mix", *TASK_STAGES)  # leave a trained system
USING_STAGES = ("adapt", "mix", "evaluate", "generate")  # compute with systems that are trained already
_MODULES = {"tokenize": "tokenize_text", "from_scratch": "finetune"}  # of pipelines/, where not named after the stage


def module_of(stage: str) -> str:
    """The module of pipelines/ that runs a stage."""
    return f"pipelines.{_MODULES.get(stage, stage)}"
