"""What a program says to whyrss of its course: phases, and moments at which it wants a snapshot. Harmless without."""
import time

try:
    from whyrss import phase, snapshot
except ImportError:  # outside of demos/run
    from contextlib import nullcontext as phase

    def snapshot():
        pass

__all__ = ["phase", "take_snapshot"]

SNAPSHOT_S = 0.49  # snapshot() gives up after 0.5 s at the soonest: one that took less has been served
TRIES = 4          # on a busy machine


def take_snapshot():
    """Returns when the pages of this process have been walked. A job would call snapshot() once."""
    for _ in range(TRIES):
        begun = time.monotonic()
        snapshot()
        if time.monotonic() - begun < SNAPSHOT_S:
            return
