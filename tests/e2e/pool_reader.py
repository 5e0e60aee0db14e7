"""Reads the shared memory between program and collector without either: makes an empty pool, parses what
a traced program left in it, and decodes Python's line tables. Layouts: shim/trace/pool.h, trace_format.h.
"""
import collections
import functools
import math
import mmap
import struct

CHUNK_BYTES = 16 * 1024
SLOT_BYTES, CHUNK_HEADER_BYTES, HEADER_BYTES = 128, 64, 4096
MAGIC, POOL_VERSION = b"whypool\n", 4
LARGE_BLOCK_BYTES = 32 * 1024
COARSENESS_SHIFT = 56  # BlockRecord
SESSION = 0x1111111111111111
NO_NATIVE_INDEX = 0xFFFF
FRAME_ENTRY, FRAME_INCOMPLETE = 1, 2
STACK_TRUNCATED, STACK_TORN = 1, 2
ATTACH, MODULE, PYTHON, CODE, STACK, ALLOCATE, RELEASE, MAP, NOTE, TABLES = 1, 2, 3, 4, 5, 6, 7, 9, 22, 27

Code = collections.namedtuple("Code", "file name qualname first_line line_table flags")
Frame = collections.namedtuple("Frame", "code last_instruction native_index flags")
Python = collections.namedtuple("Python", "support version_hex eval_range runtime_range version")
Event = collections.namedtuple("Event", "kind address size_bytes stack_id tid origin")
Slot = collections.namedtuple("Slot", "small_allocations small_allocated_bytes small_releases large_allocations "
                                      "liveness waits")
Touch = collections.namedtuple("Touch", "address weight_faults missed_faults stack_id tid")
TouchState = collections.namedtuple("TouchState", "armed why")
KernelFaults = collections.namedtuple("KernelFaults", "address size_bytes faults weight_calls stack_id tid")
TOUCH, TOUCH_STATE, KERNEL_FAULTS = 25, 26, 32
RELEASE_UNDONE, CLOCK, COMPACT_ALLOCATE, COMPACT_RELEASE = 8, 28, 29, 30


class Stack:
    """One record of a stack; parsed when it is asked for, as exact mode writes a hundred thousand."""

    def __init__(self, record):
        self.record = record
        self.native_count, self.python_count, self.flags, self.waiting_count = struct.unpack_from("<4H", record, 20)

    @functools.cached_property
    def native(self):
        return struct.unpack_from(f"<{self.native_count}Q", self.record, 32)

    def frames(self, first, count):
        start = 32 + self.native_count * 8 + first * 16
        return [Frame(*fields) for fields in struct.iter_unpack("<Ii2H4x", self.record[start:start + count * 16])]

    @functools.cached_property
    def python(self):
        return self.frames(0, self.python_count)

    @functools.cached_property
    def waiting(self):
        """Of the thread that waited meanwhile."""
        return self.frames(self.python_count, self.waiting_count)


class Process:
    """What one traced process wrote."""

    def __init__(self):
        self.python, self.codes, self.stacks, self.events, self.notes = None, {}, {}, [], []
        self.touches, self.touch_states, self.moments = [], [], []
        self.kernel_faults = []
        self.mapped = []  # address, size, how many touches there were before
        self.attached = False
        self.earlier = None  # the image that this one replaced by exec: ids are of one image
        self.tables, self.inherited = None, None  # whose ids these are, and whose they were before a fork


def layout(chunk_count, slot_count):
    headers = HEADER_BYTES + slot_count * SLOT_BYTES
    chunks = (headers + chunk_count * CHUNK_HEADER_BYTES + 4095) // 4096 * 4096
    return headers, chunks, chunks + chunk_count * CHUNK_BYTES


def make_pool(path, chunk_count=4096, slot_count=64):
    """Creates an empty pool that no collector drains; returns the environment that makes a program write into it."""
    headers, chunks, total = layout(chunk_count, slot_count)
    with open(path, "wb+") as file:
        file.truncate(total)
        pool = mmap.mmap(file.fileno(), total)
        struct.pack_into("<8s2I2Q4I5Q", pool, 0, MAGIC, POOL_VERSION, HEADER_BYTES, SESSION, SESSION, CHUNK_BYTES,
                         chunk_count, slot_count, 0, HEADER_BYTES, headers, chunks, total, LARGE_BLOCK_BYTES)
        struct.pack_into("<Q", pool, 128, 1 << 32 | 1)  # free_head: the first chunk
        for index in range(chunk_count):
            following = index + 2 if index + 1 < chunk_count else 0
            struct.pack_into("<2I", pool, headers + index * CHUNK_HEADER_BYTES, 0, following)
        pool.flush()
        pool.close()
    return {"WHYRSS_SESSION": f"{SESSION:016x}{SESSION:016x}:{path}"}


def slots(path):
    """pid -> Slot of the processes that have attached."""
    with open(path, "rb") as file:
        pool = file.read(HEADER_BYTES + 1024 * SLOT_BYTES)
    (slot_count,) = struct.unpack_from("<I", pool, 40)
    found = {}
    for index in range(slot_count):
        state, pid, *_, small, small_bytes, released, large, _, _, liveness, waits = struct.unpack_from(
            "<2IQ2I11Q", pool, HEADER_BYTES + index * SLOT_BYTES)
        if state == 2:
            found[pid] = Slot(small, small_bytes, released, large, liveness, waits)
    return found


def leases_of(path):
    """[(number, pid, bytes)], sorted; raises when records were dropped."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pool:  # most of it is a hole
        return leases_in(pool)


def leases_in(pool):
    chunk_count, slot_count = struct.unpack_from("<2I", pool, 36)
    headers, chunks, _ = layout(chunk_count, slot_count)
    (dropped,) = struct.unpack_from("<Q", pool, 320)
    assert dropped == 0, f"the pool of this test is too small: {dropped} records dropped"
    leases = []
    for index in range(chunk_count):
        at = headers + index * CHUNK_HEADER_BYTES
        state, _, lease, committed, _, pid = struct.unpack_from("<2IQ3I", pool, at)
        if state != 0:
            start = chunks + index * CHUNK_BYTES
            leases.append((lease, pid, pool[start:start + committed]))
    return sorted(leases)


def records_in(data, unwanted=()):
    at, head = 0, struct.Struct("<IH").unpack_from
    while at < len(data):
        size, kind = head(data, at)
        assert size >= 16 and size % 8 == 0 and at + size <= len(data), "a damaged record"
        if kind not in unwanted:
            yield kind, data[at:at + size]
        at += size


def compact_events(path):
    """pid -> [(ticks, kind, address, usable size or 0, stack)] of exact mode's small blocks, by time."""
    events = collections.defaultdict(list)
    for _, pid, data in leases_of(path):
        ticks = None
        for kind, record in records_in(data):
            if kind == CLOCK:
                (ticks,) = struct.unpack_from("<Q", record, 16)
            elif kind in (COMPACT_ALLOCATE, COMPACT_RELEASE):
                high, low, since = struct.unpack_from("<H2I", record, 6)
                size, stack_id = struct.unpack_from("<2I", record, 16) if kind == COMPACT_ALLOCATE else (0, 0)
                ticks += since
                events[pid].append((ticks, kind, high << 32 | low, size, stack_id))
    return {pid: sorted(found, key=lambda event: event[0]) for pid, found in events.items()}


def raw_records(path, unwanted=()):
    """(pid, kind, bytes) of every record but those of unwanted kinds, lease by lease; raises when records were dropped."""
    for _, pid, data in leases_of(path):
        for kind, record in records_in(data, unwanted):
            yield pid, kind, record


def live_blocks(path):
    """Address -> (usable bytes, stack) of the blocks that a program with one thread logged and has not released."""
    live = {}
    for _, kind, data in raw_records(path):
        if kind == ALLOCATE:
            address, size, _, stack_id = struct.unpack_from("<3QI", data, 16)
            live[address] = size, stack_id
        elif kind == COMPACT_ALLOCATE:
            high, low, _, size, stack_id = struct.unpack_from("<H4I", data, 6)
            live[high << 32 | low] = size, stack_id
        elif kind == RELEASE:
            live.pop(struct.unpack_from("<Q", data, 16)[0], None)
        elif kind == COMPACT_RELEASE:
            high, low = struct.unpack_from("<HI", data, 6)
            live.pop(high << 32 | low, None)
        elif kind == RELEASE_UNDONE:
            raise AssertionError("no program here fails to resize a block")
    return live


def live_samples(path, sample_bytes):
    """Address -> (usable bytes, how many like it each stands for) of sampled blocks, as live_blocks."""
    weights = {}
    for _, kind, data in raw_records(path):
        if kind == ALLOCATE and is_sampled(data):
            address, size, sampled = struct.unpack_from("<3Q", data, 16)
            mean = sample_bytes << (sampled >> COARSENESS_SHIFT)
            weights[address] = size, -1 / math.expm1(-(sampled % (1 << COARSENESS_SHIFT)) / mean)
    return {address: weights[address] for address in live_blocks(path) if address in weights}


def read_pool(path):
    """pid -> Process, the records of each thread in order but for compact ones; raises when records were dropped."""
    processes = collections.defaultdict(Process)
    records = collections.defaultdict(list)
    for pid, kind, data in raw_records(path, (COMPACT_ALLOCATE, COMPACT_RELEASE)):
        records[pid].append((struct.unpack_from("<Q", data, 8)[0], kind, data))
    for pid, found in records.items():
        for _, kind, data in sorted(found, key=lambda record: record[0]):
            if kind == ATTACH and processes[pid].attached:
                earlier, processes[pid] = processes[pid], Process()
                processes[pid].earlier = earlier
            take_record(processes[pid], kind, data)
            take_moment(processes[pid], kind, data)
    inherit_tables(processes)
    return processes


def images_of(processes):
    """Each image of the processes of a pool: of one that ran exec those before it, too."""
    for process in processes.values():
        while process is not None:
            yield process
            process = process.earlier


def inherit_tables(processes):
    """What a fork child did not describe itself is what its ancestors described."""
    images = {process.tables: process for process in images_of(processes) if process.tables is not None}
    for process in images.values():
        process.own_stacks, process.own_codes = set(process.stacks), set(process.codes)
    for process in images.values():
        ancestor = images.get(process.inherited)
        while ancestor is not None:
            process.python = process.python or ancestor.python
            process.codes = {**ancestor.codes, **process.codes}
            process.stacks = {**ancestor.stacks, **process.stacks}
            ancestor = images.get(ancestor.inherited)


def asked_pages(usable):
    """What a program asked glibc for in whole pages, give or take a few bytes: usable sizes are rounded up to 16
    bytes, and of blocks that are mapped apart to pages."""
    return usable // 4096 * 4096


def is_sampled(data):
    return struct.unpack_from("<Q", data, 32)[0] != 0


def take_moment(process, kind, data):
    """What happened to memory, in order: (kind, address, size or 0, stack). Large blocks only."""
    if kind in (ALLOCATE, RELEASE) and not is_sampled(data):
        process.moments.append((kind, *struct.unpack_from("<2Q8xI", data, 16)))
    elif kind == TOUCH:
        address, _, _, stack_id = struct.unpack_from("<Q3I", data, 16)
        process.moments.append((kind, address, 0, stack_id))


def take_record(process, kind, data):
    if kind == ATTACH:
        process.attached = True
    elif kind == TABLES:
        pid, inherited_pid, *since_ns = struct.unpack_from("<2I2Q", data, 16)
        process.tables, process.inherited = (pid, since_ns[0]), (inherited_pid, since_ns[1])
    elif kind == PYTHON:
        support, version_hex, *ranges, version_bytes, _ = struct.unpack_from("<2I4Q2I", data, 16)
        process.python = Python(support, version_hex, tuple(ranges[:2]), tuple(ranges[2:]),
                                data[64:64 + version_bytes].decode("ascii"))
    elif kind == CODE:
        (code_id, first_line, *sizes, file_kind, name_kind, qualname_kind, flags,
         _) = struct.unpack_from("<6I4BI", data, 16)
        pieces, at = [], 48
        for size in sizes:
            pieces.append(data[at:at + size])
            at += size
        assert code_id not in process.codes, f"code {code_id} is described twice"
        process.codes[code_id] = Code(text(pieces[0], file_kind), text(pieces[1], name_kind),
                                      text(pieces[2], qualname_kind), first_line, pieces[3], flags)
    elif kind == STACK:
        (stack_id,) = struct.unpack_from("<I", data, 16)
        assert stack_id not in process.stacks, f"stack {stack_id} is described twice"
        process.stacks[stack_id] = Stack(data)
    elif kind == ALLOCATE and not is_sampled(data):
        process.events.append(Event(kind, *struct.unpack_from("<2Q8x2I", data, 16), 0))
    elif kind == MAP:
        address, size, _, _, _, _, origin, stack_id, tid = struct.unpack_from("<3Q2Ii3I", data, 16)
        process.events.append(Event(kind, address, size, stack_id, tid, origin))
        process.mapped.append((address, size, len(process.touches)))
    elif kind == TOUCH:
        process.touches.append(Touch(*struct.unpack_from("<Q4I", data, 16)))
    elif kind == KERNEL_FAULTS:
        process.kernel_faults.append(KernelFaults(*struct.unpack_from("<2Q4I", data, 16)))
    elif kind == TOUCH_STATE:
        armed, size = struct.unpack_from("<2I", data, 16)
        process.touch_states.append(TouchState(bool(armed), data[24:24 + size].decode("utf-8", "replace")))
    elif kind == NOTE:
        (size,) = struct.unpack_from("<I", data, 20)
        process.notes.append(data[24:24 + size].decode("utf-8", "replace"))


def text(data, kind):
    return data.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind], "surrogatepass")


def line_of(version_hex, code, last_instruction):
    """The line that traceback would show; None where the code says that it has none."""
    if last_instruction < 0:
        return code.first_line
    minor = version_hex >> 16 & 0xFF
    if minor < 10:
        return line_by_pairs(code, last_instruction)
    return line_by_ranges(code, last_instruction) if minor == 10 else line_by_locations(code, last_instruction)


def signed(byte):
    return byte - 256 if byte >= 128 else byte


def line_by_pairs(code, wanted):
    address, line = 0, code.first_line
    for delta, line_delta in zip(code.line_table[::2], code.line_table[1::2]):
        address += delta
        if address > wanted:
            break
        line += signed(line_delta)
    return line


def line_by_ranges(code, wanted):
    end, line = 0, code.first_line
    for delta, line_delta in zip(code.line_table[::2], code.line_table[1::2]):
        end += delta
        if signed(line_delta) != -128:
            line += signed(line_delta)
        if wanted < end:
            return None if signed(line_delta) == -128 else line
    return None


def line_by_locations(code, wanted):
    table, at, end, line = code.line_table, 0, 0, code.first_line
    while at < len(table):
        form, units = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        if form in (13, 14):
            value, shift = 0, 0
            for byte in table[at:]:
                value |= (byte & 63) << shift
                shift += 6
                if not byte & 64:
                    break
            line += -(value >> 1) if value & 1 else value >> 1
        elif 10 <= form <= 12:
            line += form - 10
        while at < len(table) and table[at] < 128:
            at += 1
        end += 2 * units
        if wanted < end:
            return None if form == 15 else line
    return None
