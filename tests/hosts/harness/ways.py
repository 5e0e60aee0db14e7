"""The five ways in which each host runs: bare, and four with whyrss. One row each."""
import dataclasses
import pathlib
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Build:
    folder: pathlib.Path

    @property
    def whyrss(self):
        return self.folder / "bin/whyrss"

    @property
    def shim(self):
        return self.folder / "lib/libwhyrss.so"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    records: bool
    prefix: Callable[[Build, pathlib.Path], list]  # words before the command
    variables: Callable[[Build, pathlib.Path], dict]  # environment


def no_prefix(_build, _recording):
    return []


def no_variables(_build, _recording):
    return {}


def record(*options):
    return lambda build, recording: [str(build.whyrss), "record", "-q", *options, "-o", str(recording), "--"]


WAYS = [
    Way("bare", False, no_prefix, no_variables),
    Way("preload", False, no_prefix, lambda build, _: {"LD_PRELOAD": str(build.shim)}),
    Way("env-only", True, no_prefix, lambda build, recording: {"LD_PRELOAD": str(build.shim),
                                                               "WHYRSS_OUTPUT": str(recording)}),
    Way("record", True, record(), no_variables),
    Way("exact", True, record("--mode", "exact"), no_variables),
]


def command_line(way, host, scene, build, recording):
    """(words, environment) that run a host in a way."""
    words = [str(word) for word in host.command(scene)]
    variables = way.variables(build, recording)
    environment = {**scene.environment(), **host.environment}
    preloaded = host.environment.get("LD_PRELOAD")
    if preloaded and "LD_PRELOAD" in variables:
        variables["LD_PRELOAD"] += f":{preloaded}"
    if host.around is None:
        return [*way.prefix(build, recording), *words], {**environment, **variables}
    inner = [*way.prefix(build, recording), *words]
    if variables:
        inner = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *inner]
    return [str(word) for word in host.around(inner)], environment
