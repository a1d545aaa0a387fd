"""A callback that sends a signal to its own process, to test what remains after a `kill -9` or a scheduler's signal."""

import os
import signal

import lightning as L


class Mortal(L.Callback):
    """Sends the process the signal DIE_BY, by default that of `kill -9`, at step DIE_AT, if the environment sets
    it.

    DIE_AT may also be "setup" (before all steps) or "end" (after them). With DIE_RANK, only the process of this rank
    gets it.
    """

    def setup(self, trainer, pl_module, stage):
        self._die("setup")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._die(str(trainer.global_step))

    def on_train_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            self._die("end")

    def _die(self, at: str):
        rank = os.environ.get("LOCAL_RANK", "0")
        if os.environ.get("DIE_AT") == at and os.environ.get("DIE_RANK", rank) == rank:
            os.kill(os.getpid(), signal.Signals[os.environ.get("DIE_BY", "SIGKILL")])
