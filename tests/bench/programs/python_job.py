"""A job that computes in plain Python: calls, small objects, dictionaries, strings."""


def words(seed, count):
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        yield "w%d" % (seed % 5000)


def count_words(seed):
    counts = {}
    for word in words(seed, 60_000):
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]


def fibonacci(number):
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


best = [count_words(seed) for seed in range(75)]
assert fibonacci(25) == 75025 and len(best) == 75
