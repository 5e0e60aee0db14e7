"""Calls and nothing else: small integers, no allocations that would last."""


def fibonacci(number):
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


assert fibonacci(35) == 9227465
