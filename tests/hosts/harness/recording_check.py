"""Whether a recording can be read: `report` ends with 0 in time, as text and as JSON, and the causes sum to RSS."""
import json
import pathlib
import subprocess

LIMIT_S = 300


def mistakes(build, recording, must_have_causes, was_killed):
    """One line for each thing that is wrong with a recording. `was_killed`: the harness ended its processes, the collector
    too, so that it is not complete, and its shared memory is ours to remove."""
    if not recording.is_dir():
        return ["no recording was made"] if must_have_causes else []
    left = left_in_shared_memory(recording)
    found = [] if was_killed else [f"left behind: {path}" for path in left]
    for path in left if was_killed else []:
        path.unlink(missing_ok=True)
    for output_format in ("text", "json"):
        problem, output = report(build, recording, output_format)
        if problem:
            return [*found, problem]
    data = json.loads(output)
    if not data["recording"]["complete"] and not was_killed:
        found.append(f"incomplete: {data['recording']['incomplete_why']}; {'; '.join(data['recording']['lost']['notes'])[:200]}")
    walked = [process for process in data["processes"] if process["causes"]]
    if must_have_causes and not walked and not data["recording"]["lost"]["snapshots"]:
        found.append("no process has causes, and no snapshot is said to be lost")
    for process in walked:
        for moment, total in (("first", "first"), ("last", "last"), ("at_peak", "peak")):
            sum_of_causes = sum(entry["rss"][moment] for entry in process["causes"])
            if sum_of_causes != process["rss"][total]:
                found.append(f"causes of {process['pid']} sum to {sum_of_causes}, RSS {moment} is {process['rss'][total]}")
    return found


def left_in_shared_memory(recording):
    """What this recording, whose processes have all ended, left in /dev/shm. Other recordings may be under way there."""
    try:
        pool = json.loads((recording / "manifest.json").read_text(encoding="utf-8")).get("pool_path")
    except (OSError, ValueError):
        return []  # `report` says so
    if not pool or not pathlib.Path(pool).name.startswith("whyrss."):
        return []
    return [path for path in (pathlib.Path(pool), pathlib.Path(f"{pool}.memory")) if path.exists()]


def report(build, recording, output_format):
    """(what went wrong or None, the report)."""
    words = [str(build.whyrss), "report", str(recording), "--format", output_format]
    try:
        result = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"report --format {output_format} takes more than {LIMIT_S} s", ""
    if result.returncode != 0:
        return f"report --format {output_format} ends with {result.returncode}: {result.stderr.strip()[:200]}", ""
    return None, result.stdout
