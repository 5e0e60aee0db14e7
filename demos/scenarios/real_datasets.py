"""Iterates over a Hugging Face data set, twice, and drops each row: needs datasets. real_datasets.py [in_memory]"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("HF_HOME", os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "hf"))

import datasets  # noqa: E402

ROWS, ROW_BYTES = 16384, 8192
MIB = 1 << 20


def rows():
    for row in range(ROWS):
        yield {"text": "%0*d" % (ROW_BYTES, row)}


def main():
    datasets.disable_progress_bars()
    folder = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "saved")
    datasets.Dataset.from_generator(rows).save_to_disk(folder)
    data = datasets.load_from_disk(folder, keep_in_memory="in_memory" in sys.argv)  # loads
    letters = 0
    for _ in range(2):
        for row in data:
            letters += len(row["text"])  # touches
    print("%d rows read, %d MiB of text" % (2 * ROWS, letters // MIB))
    return data


if __name__ == "__main__":
    held = main()
