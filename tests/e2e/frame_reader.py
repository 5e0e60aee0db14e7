"""Reads frames of a recording's pages.zst without whyrss. Layouts: shim/trace/recording_format.h."""
import collections
import ctypes
import struct

WALK, TRACKED = 2, 16
PRESENT, FILE, EXCLUSIVE, WRITE_TRACKED = 1, 4, 8, 64
PAGE = 4096
FILE_HEADER_BYTES, FRAME_HEADER_BYTES, WALK_HEADER_BYTES, WALK_VMA_BYTES = 64, 40, 64, 56

FORK, REQUEST = 2, 7  # WalkTrigger

Walk = collections.namedtuple("Walk", "begin_ns end_ns trigger vmas")  # vmas: [(start, [(bits, page count)])]
Tracked = collections.namedtuple("Tracked", "begin_ns end_ns runs")    # runs: [(start, page count)]


def decompress(data, raw_bytes):
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(raw_bytes)
    got = zstd.ZSTD_decompress(out, ctypes.c_size_t(raw_bytes), data, ctypes.c_size_t(len(data)))
    assert got == raw_bytes, "a damaged frame"
    return out.raw


def frames(path):
    """(kind, payload) of each frame."""
    data = path.read_bytes()
    at = FILE_HEADER_BYTES
    while at < len(data):
        _, kind, _, stored_bytes, raw_bytes = struct.unpack_from("<I2H2I", data, at)
        at += FRAME_HEADER_BYTES
        yield kind, decompress(data[at:at + stored_bytes], raw_bytes)
        at += stored_bytes


def parse_walk(payload):
    begin_ns, end_ns, _, _, _, _, trigger, _, vma_count, _ = struct.unpack_from("<6Q4I", payload)
    vmas, at = [], WALK_HEADER_BYTES
    for _ in range(vma_count):
        start, path_bytes, run_count = struct.unpack_from("<Q40x2I", payload, at)
        at += WALK_VMA_BYTES + (path_bytes + 7) // 8 * 8
        vmas.append((start, [struct.unpack_from("<2I", payload, at + 8 * i) for i in range(run_count)]))
        at += 8 * run_count
    return Walk(begin_ns, end_ns, trigger, vmas)


def parse_tracked(payload):
    begin_ns, end_ns, run_count, _ = struct.unpack_from("<2Q2I", payload)
    return Tracked(begin_ns, end_ns, [struct.unpack_from("<2Q", payload, 24 + 16 * i) for i in range(run_count)])


def snapshots(recording, pid):
    """Walks and tracked frames of the one process with this pid, in the order in which they were stored."""
    (path,) = recording.glob(f"*.{pid}.*/pages.zst")
    parsers = {WALK: parse_walk, TRACKED: parse_tracked}
    return [parsers[kind](payload) for kind, payload in frames(path) if kind in parsers]


def bits_between(walk, start, page_count):
    """The bits of each page of a range; 0 where nothing is mapped."""
    bits = [0] * page_count
    for vma_start, runs in walk.vmas:
        page = (vma_start - start) // PAGE
        for run_bits, count in runs:
            for index in range(max(page, 0), min(page + count, page_count)):
                bits[index] = run_bits
            page += count
    return bits
