"""Celery tasks, one of which keeps what it has parsed. Broker and results are folders, so that no server is needed."""
import celery

app = celery.Celery("tasks", broker="filesystem://", backend="file://results")
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
parsed = []


@app.task
def parse(number):
    parsed.append(bytearray(b"x") * (1 << 20))
    return number
