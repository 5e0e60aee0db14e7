"""A task that keeps what it has parsed. Broker and results are folders."""
import os

import celery

from truth import say

folder = os.environ["DEMO_DIR"]
app = celery.Celery("celery_app", broker="filesystem://", backend="file://" + folder)
app.conf.broker_transport_options = {"data_folder_in": folder + "/queue", "data_folder_out": folder + "/queue",
                                     "control_folder": folder + "/control"}
parsed = []


@app.task
def parse(number):
    parsed.append(bytearray(b"x") * (1 << 20))  # keeps
    say("parsed by %d" % os.getpid(), sum(len(one) for one in parsed))
    return number
