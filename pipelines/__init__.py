"""The stages and commands of Retable. Before anything else is imported, modules that hide packages are refused."""

import signal
import sys

from pipelines.config.hidden import refuse_hidden_packages

# Until a command listens to signals, Ctrl-C ends it as SIGTERM does; Python would print a traceback of its imports.
if sys.argv[0].rpartition("/")[2] in ("retable", "-m") and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
refuse_hidden_packages()
