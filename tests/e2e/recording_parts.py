"""A recording's files cut into their frames and put together again, without whyrss, so that tests can damage them.
Layouts: shim/trace/recording_format.h."""
import ctypes
import dataclasses
import pathlib
import struct

FILE_HEADER_BYTES = 64
FRAME_HEADER = struct.Struct("<I2H2I3Q")  # magic, kind, reserved, stored and raw bytes, time, number, checksum
FILE_CHECKSUM_AT = FILE_HEADER_BYTES - 8


@dataclasses.dataclass
class FrameFile:
    header: bytes
    frames: list  # of the bytes of each, with its header

    @classmethod
    def read(cls, path):
        data = pathlib.Path(path).read_bytes()
        at, frames = FILE_HEADER_BYTES, []
        while at < len(data):
            end = at + FRAME_HEADER.size + FRAME_HEADER.unpack_from(data, at)[3]
            frames.append(data[at:end])
            at = end
        return cls(data[:FILE_HEADER_BYTES], frames)

    def write(self, path):
        pathlib.Path(path).write_bytes(self.header + b"".join(self.frames))


def process_directories(recording):
    """Of the recording, by name."""
    return sorted(path for path in pathlib.Path(recording).iterdir() if path.is_dir() and path.name.count(".") >= 2)


def frame_files(recording):
    """All files with frames."""
    recording = pathlib.Path(recording)
    found = [path / name for path in process_directories(recording) for name in ("events.zst", "pages.zst")]
    return [path for path in [*found, recording / "symbols.zst"] if path.is_file()]


def _xxh3(data, seed):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return library.XXH3_64bits_withSeed(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def sealed(frame, file_header):
    """The frame with the checksum that it should have: no reader can tell that it was forged."""
    head, stored = frame[:FRAME_HEADER.size - 8], frame[FRAME_HEADER.size:]
    (seed,) = struct.unpack_from("<Q", file_header, FILE_CHECKSUM_AT)
    return head + struct.pack("<Q", _xxh3(stored, _xxh3(head, seed))) + stored


def compressed(payload):
    """As zstd stores it."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    bound = library.ZSTD_compressBound(ctypes.c_size_t(len(payload)))
    out = ctypes.create_string_buffer(bound)
    size = library.ZSTD_compress(out, ctypes.c_size_t(bound), payload, ctypes.c_size_t(len(payload)), 1)
    return out.raw[:size]


def frame_of(file_header, kind, number, payload, time_ns=1):
    """A forged frame."""
    stored = compressed(payload)
    return sealed(FRAME_HEADER.pack(0x314d5257, kind, 0, len(stored), len(payload), time_ns, number, 0) + stored, file_header)


def report_difference(sound, report):
    """The first place where two JSON reports say different things of the same recording, but for what was lost; or None."""
    def walk(one, other, where):
        if type(one) is not type(other):
            return where
        if isinstance(one, dict):
            for key in one.keys() | other.keys():
                if key not in one or key not in other:
                    return f"{where}.{key}"
                found = walk(one[key], other[key], f"{where}.{key}")
                if found:
                    return found
            return None
        if isinstance(one, list):
            if len(one) != len(other):
                return f"{where}[{len(one)}/{len(other)}]"
            return next((found for index, pair in enumerate(zip(one, other))
                         if (found := walk(*pair, f"{where}[{index}]"))), None)
        return None if one == other else f"{where}: {one!r} != {other!r}"

    def figures(of):
        recording = {key: value for key, value in of["recording"].items()
                     if key not in ("path", "complete", "incomplete_why", "lost")}
        lost = {key: value for key, value in of["recording"]["lost"].items() if key != "notes"}
        return {**of, "recording": recording, "lost": lost}
    return walk(figures(sound), figures(report), "")
