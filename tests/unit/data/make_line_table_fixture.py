#!/usr/bin/env python3
"""Writes the line tables of code objects, and what this CPython itself says about them, to stdout.

One line per code object: version_hex first_line table(hex) name(kind:hex) name(UTF-8 hex), then
offset:line[:end_line:column:end_column] ... (0: none; columns in bytes, from 1).
Run it with each interpreter: python3.X make_line_table_fixture.py > line_tables_3.X.txt
With arguments, modules of the standard library: all code objects of their sources instead.
"""
import importlib.util
import sys

SOURCE = '''
def plain(a):
    b = a
    return b

def spread(a):
    x = (a +
         1 +
         len(
             str(a)))


    if x: return [y for y in range(x)
                  if y]
    return None

def far(a):
''' + "    # gap\n" * 300 + '''    return a
class K:
    """doc"""
    @property
    def value(self):
        try:
            with open("x") as f:
                return f.read()
        except OSError as e:
            raise ValueError(
                "no") from e
        finally:
            del self
async def gen(n):
    for i in range(n):
        yield (lambda q: q +
               i)(1)
''' + "def wide(a):\n    return [" + ", ".join("a" * 1 + " + %d" % i for i in range(120)) + "]\n" + '''
def gr\u00fc\u00dfe(): return 1
def \u540d\u524d(): return 2
'''


def codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes(constant)


def positions_of(code):
    """Position by instruction offset, from CPython's own reading."""
    if hasattr(code, "co_positions"):
        result = {}
        for index, (line, end_line, column, end_column) in enumerate(code.co_positions()):
            from_one = ((-1 if value is None else value) + 1 for value in (column, end_column))
            result[2 * index] = (line, end_line or 0, *from_one) if line else (0, 0, 0, 0)
        return result
    if hasattr(code, "co_lines"):
        return {offset: (line or 0,) for start, end, line in code.co_lines() for offset in range(start, end, 2)}
    import dis
    starts, line, result = dict(dis.findlinestarts(code)), code.co_firstlineno, {}
    for offset in range(0, len(code.co_code), 2):
        line = starts.get(offset, line)
        result[offset] = (line,)
    return result


def as_cpython_holds_it(text):
    width = 1 if max(map(ord, text), default=0) < 256 else 2 if max(map(ord, text)) < 65536 else 4
    return "%d:%s" % (width, text.encode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]).hex())


def sources():
    if len(sys.argv) == 1:
        yield SOURCE, "fixture.py"
    for name in sys.argv[1:]:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.has_location:
            yield spec.loader.get_source(name), spec.origin


for source, origin in sources():
    for code in codes(compile(source, origin, "exec")):
        table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
        print("%x" % sys.hexversion, code.co_firstlineno, table.hex() or "-", as_cpython_holds_it(code.co_name),
              code.co_name.encode().hex(),
              *(":".join(map(str, (offset, *position))) for offset, position in sorted(positions_of(code).items())))
