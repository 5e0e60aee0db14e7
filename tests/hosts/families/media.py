"""ffmpeg: threads, large aligned blocks, code by hand in assembly."""
from harness.host import Host

PICTURES = ["-f", "lavfi", "-i", "testsrc2=duration=3:size=640x360:rate=25"]
SOUND = ["-f", "lavfi", "-i", "sine=frequency=440:duration=3"]


def ffmpeg(*options):
    return lambda _scene: ["/usr/bin/ffmpeg", "-nostdin", "-v", "error", *PICTURES, *SOUND, *options, "-f", "md5", "-"]


def hosts(_options):
    exact = ["-fflags", "+bitexact", "-flags", "+bitexact"]
    return [
        Host("ffmpeg/mpeg4", ffmpeg(*exact, "-c:v", "mpeg4", "-threads", "2", "-c:a", "aac"), ("ffmpeg",), files_at_exec=False),
        Host("ffmpeg/x264", ffmpeg(*exact, "-c:v", "libx264", "-preset", "veryfast", "-threads", "2", "-c:a", "flac"),
             ("ffmpeg",), files_at_exec=False),
        Host("ffmpeg/scale", ffmpeg(*exact, "-vf", "scale=320:-1:flags=lanczos,hue=h=90", "-c:v", "ffv1", "-threads", "2"),
             ("ffmpeg",), files_at_exec=False),
    ]
