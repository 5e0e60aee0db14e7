"""GridSearchCV with two processes: joblib writes the data to /dev/shm, and each worker maps it."""
import numpy
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from truth import say


def main():
    random = numpy.random.default_rng(0)
    features = random.random((120_000, 100))  # makes
    target = features[:, 0]
    say("features", features.nbytes)
    search = GridSearchCV(Ridge(solver="cholesky"), {"alpha": [0.1, 1.0, 10.0]}, n_jobs=2, cv=2)
    search.fit(features, target)  # fits
    print(search.best_params_)
    return features


if __name__ == "__main__":
    kept = main()
