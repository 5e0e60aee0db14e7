"""Keeps the labels of batches, 256 bytes of each 3 MiB: retained_view.py view|copy|torch|mlock"""
import ctypes
import mmap
import sys

BATCHES = 100
SHAPE = (3, 512, 256)
WAY = sys.argv[1]
MIB = 1 << 20


def locked_buffer():
    """Memory as drivers pin it: mapped, and locked where this machine allows that."""
    buffer = mmap.mmap(-1, 3 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # maps
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(3 * MIB))  # locks
    return buffer


def batch():
    if WAY == "torch":
        return torch.ones(SHAPE, dtype=torch.float64)  # tensors
    if WAY == "mlock":
        array = numpy.frombuffer(locked_buffer(), numpy.float64).reshape(SHAPE)
        array[:] = 1  # fills
        return array
    return numpy.ones(SHAPE)  # makes


def labels(values):
    part = values[2, 511, :32]  # views
    if WAY == "torch":
        part = part.numpy()
    return part.copy() if WAY == "copy" else part


def main():
    return [labels(batch()) for _ in range(BATCHES)]


if __name__ == "__main__":
    if WAY == "torch":
        import torch
    else:
        import numpy
    held = main()
    print("kept %d labels of 256 bytes" % len(held))
