"""What a program is born with, alone: the shortest host."""
from harness.host import Host


def hosts(_options):
    return [
        Host("probe/first", lambda scene: [scene.environment()["PROBE"]], timed=False),
        Host("probe/child", lambda _: ["/bin/sh", "-c", '"$PROBE"; "$PROBE" <&- ; exec "$PROBE" 7</dev/null'], timed=False),
    ]
