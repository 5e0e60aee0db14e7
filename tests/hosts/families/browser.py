"""Chromium without a window: its own allocator, many processes, a V8 heap."""
from harness.host import Host, files_made

PAGE = """<!doctype html><title>page</title><canvas id=c width=300 height=200></canvas><p id=p>
<script>
const kept = []; for (let i = 0; i < 200000; i++) kept.push({i, text: 'x'.repeat(i % 50)});
const context = document.getElementById('c').getContext('2d');
for (let i = 0; i < 300; i++) { context.fillStyle = `rgb(${i % 255},0,9)`; context.fillRect(i, i % 200, 9, 9); }
document.getElementById('p').textContent = kept.reduce((sum, one) => sum + one.text.length, 0);
</script>"""
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-dev-shm-usage",
         "--virtual-time-budget=5000"]


def chromium(*options):
    return lambda scene: ["/usr/bin/chromium", *QUIET, f"--user-data-dir={scene.work}/profile", *options,
                          f"file://{scene.folder}/page.html"]


def write_page(scene):
    scene.write("page.html", PAGE)


def hosts(_options):
    return [
        Host("chromium/dom", chromium("--dump-dom"), ("chromium",), write_page, files_at_exec=False, limit_s=90),
        Host("chromium/screenshot", chromium("--screenshot=shot.png", "--window-size=400,300"), ("chromium",), write_page,
             files_made("shot.png"), files_at_exec=False, limit_s=90),
    ]
