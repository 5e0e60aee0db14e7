"""Memory that comes for a moment, again and again, over a base of small objects: pulses.py BASE_MIB."""
import sys
import time

from truth import MIB, high_water, say

PULSE, PULSE_S, EVERY_S, PULSES = 300 * MIB, 0.3, 1.0, 5
FULL = b"x" * MIB
OBJECT, HEADER = 448, 33  # of a bytes object


def hold(size):
    return [bytearray(FULL) for _ in range(size // MIB)]  # holds


base_bytes = int(sys.argv[1]) * MIB
base = [b"%d" % number + b"x" * (OBJECT - HEADER - 7) for number in range(10**6, 10**6 + base_bytes // OBJECT)]
for _ in range(PULSES):
    begun = time.monotonic()
    pulse = hold(PULSE)
    time.sleep(PULSE_S)
    del pulse
    time.sleep(max(0, EVERY_S - (time.monotonic() - begun)))
say("end", high_water=high_water(), at_peak=base_bytes + sys.getsizeof(base) + PULSE)
