"""A module that is expensive to import, as many are: its tables are built when it is."""
WORDS = 150_000
TABLE = {number: b"%0127d" % number for number in range(WORDS)}  # builds
