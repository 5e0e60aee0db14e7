"""Whether a recording can be read: `report` ends with 0 in time, as text and as JSON, and the causes sum to RSS."""
import json
import pathlib
import subprocess

from harness import groups

LIMIT_S = 300
MEMORY_MAX = 8 << 30  # of one report, so that a recording that is too large harms its own row only
FORMATS = ("text", "json")


def mistakes(build, recording, formats, must_have_causes, was_killed):
    """One line for each thing that is wrong with a recording, of which reports in these formats are read. `was_killed`: the
    harness ended its processes, the collector too, so that it is not complete, and its shared memory is ours to remove."""
    if not recording.is_dir():
        return ["no recording was made"] if must_have_causes else []
    left = left_in_shared_memory(recording)
    found = [] if was_killed else [f"left behind: {path}" for path in left]
    for path in left if was_killed else []:
        path.unlink(missing_ok=True)
    manifest = manifest_of(recording)
    if not was_killed and (manifest.get("state") != "complete" or any(manifest.get("lost", {}).values())):
        found.append(f"the manifest says: {manifest.get('state')}, lost: {manifest.get('lost')}")
    for output_format in formats:
        output = recording.with_name(f"report.{output_format}")
        problem = report(build, recording, output_format, output)
        if problem:
            return [*found, problem]
        if output_format == "json":
            found += mistakes_of_json(output, must_have_causes, was_killed)
        output.unlink()
    return found


def mistakes_of_json(output, must_have_causes, was_killed):
    found = []
    section, wrong, has_causes = read_json(output)
    if not section["complete"] and not was_killed:
        found.append(f"incomplete: {section['incomplete_why']}; {'; '.join(section['lost']['notes'])[:200]}")
    if must_have_causes and not has_causes and not section["lost"]["snapshots"]:
        found.append("no process has causes, and no snapshot is said to be lost")
    return found + wrong


def read_json(path):
    """(section "recording", mistakes of processes, whether any process has causes) of a JSON report, which is read line by
    line: with a thousand processes it has gigabytes, and each process is a line of its own."""
    wrong, has_causes, rest = [], False, []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith('    {"pid":'):
                rest.append(line)
                continue
            process = json.loads(line.rstrip().removesuffix(","))
            has_causes = has_causes or bool(process["causes"])
            wrong += wrong_sums(process)
    data = json.loads("".join(rest))
    if data["processes"]:
        raise ValueError("the report does not have each process on a line of its own")
    return data["recording"], wrong, has_causes


def wrong_sums(process):
    """Where the causes of a process that was walked do not sum to its RSS."""
    for moment, total in (("first", "first"), ("last", "last"), ("at_peak", "peak")):
        sum_of_causes = sum(entry["rss"][moment] for entry in process["causes"])
        if process["causes"] and sum_of_causes != process["rss"][total]:
            yield f"causes of {process['pid']} sum to {sum_of_causes}, RSS {moment} is {process['rss'][total]}"


def manifest_of(recording):
    try:
        return json.loads((recording / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def left_in_shared_memory(recording):
    """What this recording, whose processes have all ended, left in /dev/shm. Other recordings may be under way there."""
    pool = manifest_of(recording).get("pool_path")
    if not pool or not pathlib.Path(pool).name.startswith("whyrss."):
        return []
    return [path for path in (pathlib.Path(pool), pathlib.Path(f"{pool}.memory")) if path.exists()]


def report(build, recording, output_format, output):
    """Writes a report to the file `output`; what went wrong, or None."""
    words = [str(build.whyrss), "report", str(recording), "--format", output_format]
    memory = groups.make_memory_group(MEMORY_MAX)
    try:
        with output.open("wb") as stdout:
            result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
                                    errors="replace", timeout=LIMIT_S, check=False, preexec_fn=memory.join if memory else None)
    except subprocess.TimeoutExpired:
        return f"report --format {output_format} takes more than {LIMIT_S} s"
    finally:
        if memory:
            memory.remove()
    if result.returncode != 0:
        return f"report --format {output_format} ends with {result.returncode}: {result.stderr.strip()[:200]}"
    return None
