"""Log runs to MLflow: one run per cell, which a resumed stage continues.

No other package imports mlflow.
"""

import logging
import os

# These environment variables must be set before MLflow is imported.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # by default, MLflow repeats requests for minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

logging.getLogger("alembic").setLevel(logging.WARNING)
# `run.Run` prints one line instead of the messages of these loggers
for _doubling in ("mlflow.store.db.utils", "mlflow.system_metrics"):
    logging.getLogger(_doubling).setLevel(logging.CRITICAL)
