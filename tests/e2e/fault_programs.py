"""Programs of tests/programs that the tests of page faults compile themselves, and whose functions they look for."""
import re
import subprocess

# Absolute addresses, so that nm's are those of the running program; and each function on the stack.
FUNCTIONS_ON_STACKS = ("-no-pie", "-fno-inline", "-fno-optimize-sibling-calls")


class Functions:
    """Where the functions of a program lie."""

    def __init__(self, program):
        listed = subprocess.run(["nm", "-S", str(program)], capture_output=True, text=True, check=True).stdout
        self.ranges = {name: (int(start, 16), int(start, 16) + int(size, 16))
                       for start, size, name in re.findall(r"^(\w+) (\w+) [tT] (\w+)$", listed, re.M)}

    def names(self, process, stack_id):
        """The program's functions of a stack, innermost first; none where there was no room to take one."""
        if stack_id == 0:
            return []
        found = [next((name for name, (start, end) in self.ranges.items() if start < address <= end), None)
                 for address in process.stacks[stack_id].native]
        return [name for name in found if name is not None]
