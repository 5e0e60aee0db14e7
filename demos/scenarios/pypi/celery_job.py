"""A Celery worker with a prefork pool of two, which gets 60 tasks."""
import os
import signal
import subprocess
import sys

import celery_app

TASKS = 60


def main():
    os.makedirs(celery_app.folder + "/queue", exist_ok=True)
    worker = subprocess.Popen([sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "prefork", "--concurrency",
                               "2", "--loglevel", "ERROR"], cwd=sys.path[0], env={**os.environ, "C_FORCE_ROOT": "1"})
    results = [celery_app.parse.delay(number) for number in range(TASKS)]
    print("sum %d" % sum(result.get(timeout=60) for result in results))
    worker.send_signal(signal.SIGTERM)
    print("celery ended with %d" % worker.wait())


if __name__ == "__main__":
    main()
