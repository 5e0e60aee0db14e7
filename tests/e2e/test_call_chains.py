"""report --stacks: who called the lines with the most growth."""
import pytest

HELPER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define ALONE __attribute__((noinline))
ALONE static char* filled(size_t bytes) {
  char* memory = malloc(bytes);  /* allocates */
  memset(memory, 1, bytes);
  return memory;
}
ALONE static char* large(void) { return filled(32 << 20) + 1; }   /* calls large */
ALONE static char* middle(void) { return filled(16 << 20) + 1; }  /* calls middle */
ALONE static char* small(void) { return filled(8 << 20) + 1; }    /* calls small */
int main(void) {
  char* kept[] = {small(), large(), middle()};  /* calls all */
  usleep(50000);  /* nothing is asked here about an end within 1 MiB and 20 ms of the last look, which is not looked at */
  return kept[0][0] + kept[1][0] + kept[2][0] != 3;
}
"""

RECURSION = """
def fill(depth):
    return fill(depth - 1) if depth else bytearray(24 << 20)
kept = fill(30)
"""


def lines_below(text, first):
    """What stands under a line of the section, without its indentation."""
    lines = text[text.index("\nCallers of the lines with the most growth\n"):].split("\n\n")[0].splitlines()
    (start,) = [number for number, line in enumerate(lines) if first in line and not line.startswith("    ")]
    below = []
    for line in lines[start + 1:]:
        if not line.startswith("    "):
            break
        below.append(line.strip())
    return below


def number_of(source, mark):
    return next(number for number, line in enumerate(source.splitlines(), 1) if mark in line)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_helper_stands_above_its_callers(whyrss, recording, compile_c, form):
    program = compile_c(HELPER)
    assert whyrss.record(recording, [program]).returncode == 0
    whyrss.wait_until_complete(recording)
    text = whyrss.run("report", recording, "--stacks", "--format", form).stdout
    if form == "markdown":
        assert "## Callers of the lines with the most growth\n\n```\n56.0 MiB  live heap, " in text
        return
    source = program.name + ".c"
    below = lines_below(text, f"56.0 MiB  live heap, {source}:{number_of(HELPER, 'allocates')} in filled")
    main = f"{source}:{number_of(HELPER, 'calls all')} in main"
    assert below == [f"32.0  {source}:{number_of(HELPER, 'calls large')} in large", main,
                     f"16.0  {source}:{number_of(HELPER, 'calls middle')} in middle", main,
                     f"8.0  {source}:{number_of(HELPER, 'calls small')} in small", main]


def test_a_recursion_is_one_line(whyrss, recording, tmp_path):
    script = tmp_path / "recursion.py"
    script.write_text(RECURSION)
    assert whyrss.record(recording, ["/usr/bin/python3", script]).returncode == 0
    whyrss.wait_until_complete(recording)
    text = whyrss.run("report", recording, "--stacks").stdout
    below = lines_below(text, "live heap, recursion.py:3 in fill")  # it may have a few KiB of slack too
    assert below == ["recursion.py:3 in fill, 30 times", "recursion.py:4 in <module>"]
    assert "Callers of" not in whyrss.run("report", recording).stdout
