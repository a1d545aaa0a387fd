"""Recording in MLflow: one run a cell, the same one when a killed stage goes on. The only importer of mlflow."""

import logging
import os

# Before MLflow is imported.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # MLflow's own retries last minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

logging.getLogger("alembic").setLevel(logging.WARNING)
for _doubling in ("mlflow.store.db.utils", "mlflow.system_metrics"):  # what Run says in a line
    logging.getLogger(_doubling).setLevel(logging.CRITICAL)
