"""The stages and commands of Retable.

When imported, this package first checks that `retable` is installed and that no module hides an installed package.
"""

import signal
import sys

from pipelines.config.hidden import refuse_hidden_packages, require_own_package

# Until a command handles signals itself, Ctrl-C ends the command without a traceback from the imports.
if sys.argv[0].rpartition("/")[2] in ("retable", "-m") and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
refuse_hidden_packages()
require_own_package()
