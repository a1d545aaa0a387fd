"""The stages and commands of Retable. Before anything else is imported, modules that hide packages are refused."""

from pipelines.config.hidden import refuse_hidden_packages

refuse_hidden_packages()
