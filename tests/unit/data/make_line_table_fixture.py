#!/usr/bin/env python3
"""Writes the line tables of a few code objects, and what this CPython itself says about them, to stdout.

One line per code object: version_hex first_line table(hex) name(kind:hex) then offset:line ... (0: none).
Run it with each interpreter: python3.X make_line_table_fixture.py > line_tables_3.X.txt
"""
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


def lines_of(code):
    """Line by instruction offset, from CPython's own reading."""
    result = {}
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for offset in range(start, end, 2):
                result[offset] = line or 0
    else:
        import dis
        starts = dict(dis.findlinestarts(code))
        line = code.co_firstlineno
        for offset in range(0, len(code.co_code), 2):
            line = starts.get(offset, line)
            result[offset] = line
    return result


def as_cpython_holds_it(text):
    width = 1 if max(map(ord, text), default=0) < 256 else 2 if max(map(ord, text)) < 65536 else 4
    return "%d:%s" % (width, text.encode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]).hex())


for code in codes(compile(SOURCE, "fixture.py", "exec")):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    print("%x" % sys.hexversion, code.co_firstlineno, table.hex() or "-", as_cpython_holds_it(code.co_name),
          code.co_name.encode().hex(), *("%d:%d" % item for item in sorted(lines_of(code).items())))
