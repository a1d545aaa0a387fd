"""The stages and commands of Retable. Importing the package first checks the environment."""

import signal
import sys

from pipelines.config.hidden import refuse_hidden_packages, require_own_package

# Until a command handles signals, let Ctrl-C end it without Python's traceback of the imports.
if sys.argv[0].rpartition("/")[2] in ("retable", "-m") and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
refuse_hidden_packages()
require_own_package()
