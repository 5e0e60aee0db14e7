"""How a test says that a figure is off: the one kind of failure that may be chance, and that is repeated (repeat_hooks.py)."""


class FigureOff(AssertionError):
    """A figure that depends on sampling, polls or timing differs from the truth by more than it may."""


def assert_figure(holds, *evidence):
    """`holds`: whether such a figure is right; `evidence` is shown where it is not."""
    __tracebackhide__ = True
    if not holds:
        raise FigureOff(*evidence)


def assert_near(found, truth, allowed, *evidence):
    """Within `allowed` of the truth, in its unit."""
    __tracebackhide__ = True
    assert_figure(abs(found - truth) <= allowed, *evidence, {"found": found, "truth": truth, "allowed": allowed})
