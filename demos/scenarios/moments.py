"""What a program tells whyrss about its course: phases, and moments at which it wants to be looked at. Harmless without."""
import time

try:
    from whyrss import phase, snapshot
except ImportError:  # outside of demos/run
    from contextlib import nullcontext as phase

    def snapshot():
        pass

__all__ = ["look", "phase"]

SNAPSHOT_S = 0.5  # before that snapshot() does not give up: one that took less has been served
TRIES = 5         # on a busy machine


def look():
    """Returns when the pages of this process have been looked at. A job would call snapshot() once."""
    for _ in range(TRIES):
        begun = time.monotonic()
        snapshot()
        if time.monotonic() - begun < SNAPSHOT_S:
            return
