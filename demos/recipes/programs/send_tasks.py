"""send_tasks.py COUNT: sends tasks, waits for all results, and adds them up."""
import sys

import tasks

results = [tasks.parse.delay(number) for number in range(int(sys.argv[1]))]
print("sum of the results:", sum(result.get(timeout=100) for result in results))
