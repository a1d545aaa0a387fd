"""Where configurations are and what they may say. It imports nothing else of pipelines/."""
