"""Keeps every line that it reads: accumulate.py [MIB]; more than a limit of that size allows."""
import sys
import time

LINE = b"%0262142d\n"


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    kept = []
    for number in range(mib * 4):
        kept.append(LINE % number)  # keeps
        if number % 8 == 0:
            time.sleep(0.01)  # as one that computes in between
    print("%d lines kept" % len(kept))
    return kept


if __name__ == "__main__":
    held = main()
