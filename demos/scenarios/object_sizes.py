"""A table of 4 million rows of which many share a value; adds up what sys.getsizeof says of each"""
import sys

ROWS = 4000000
NAMES = ["category %d" % number for number in range(10)]


def load():
    return [NAMES[row % 10] for row in range(ROWS)]  # loads


def deep_size(column):
    return sys.getsizeof(column) + sum(map(sys.getsizeof, column))


def main():
    column = load()
    print("sys.getsizeof: %d bytes, %d deep" % (sys.getsizeof(column), deep_size(column)))
    return column


if __name__ == "__main__":
    held = main()
