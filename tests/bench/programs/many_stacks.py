"""Allocates from 2 ** DEPTH different call paths, twice; keeps a list from each."""
import sys

kept = []


def leaf(number):
    kept.append([number, number + 1.5])
    return bytearray(600 + number % 300)


def walk(depth, bits, number):
    if depth == 0:
        return leaf(number)
    return (left if bits & 1 else right)(depth - 1, bits >> 1, number)


def left(depth, bits, number):
    held = [number]
    return walk(depth, bits, number) and held


def right(depth, bits, number):
    held = (number, depth)
    return walk(depth, bits, number) and held


def main():
    depth = int(sys.argv[1])
    for _ in range(2):
        for path in range(1 << depth):
            walk(depth, path, path)


main()
