"""A callback that puts the clock back, as an administrator or a time server does."""

import time

import lightning as L


class PutBack(L.Callback):
    """Puts back the clock that Python reads by an hour, before the third step; the machine's clock is not changed."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == 3:
            now, now_ns = time.time, time.time_ns
            time.time = lambda: now() - 3600
            time.time_ns = lambda: now_ns() - 3600 * 10**9
