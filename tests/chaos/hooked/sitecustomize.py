"""Python imports this by itself, where this folder is on its path."""

import sys

from tests.chaos.fate import touch

sys.addaudithook(touch)
