"""A random forest whose trees are as large as its data is noisy."""
import numpy
from sklearn.ensemble import RandomForestClassifier

from truth import say


def main():
    random = numpy.random.default_rng(0)
    features, labels = random.random((100_000, 8), numpy.float32), random.integers(0, 20, 100_000)
    forest = RandomForestClassifier(4, n_jobs=1, random_state=0)
    forest.fit(features, labels)  # fits
    states = [tree.tree_.__getstate__() for tree in forest.estimators_]
    say("trees", sum(state["nodes"].nbytes + state["values"].nbytes for state in states))
    del states
    return forest, features


if __name__ == "__main__":
    kept = main()
