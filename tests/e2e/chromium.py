"""A headless Chromium, driven by the DevTools protocol over a pipe: real mouse and keyboard, every request and every
message of the console."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

PATIENCE_S = 120
NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "Backspace": (8, ""), " ": (32, " "),
        "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, ""), "Home": (36, ""),
        "End": (35, ""), "/": (191, "/")}
SHIFT = 8


def program():
    """Where it is; skips where it is not installed."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if not found:
        pytest.skip("chromium is not installed")
    return found


class Page:
    """One tab, and all that it asked for and said."""

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.requests, self.complaints = [], []

    def ask(self, method, **parameters):
        return self._browser.ask(method, self._session, **parameters)

    def run(self, expression):
        """The value of a JavaScript expression, or of the promise that it is."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            value = self.run(expression)
            if value:
                return value
            time.sleep(0.02)
        pytest.fail(f"gave up waiting for {expression}; the page says: {self.run('document.body.innerText')[:400]}")

    def open(self, path, hash_=""):
        self.ask("Page.navigate", url=pathlib.Path(path).resolve().as_uri() + hash_)
        self.wait("performance.getEntriesByName('drawn').length > 0 || "
                  "(document.getElementById('page')?.textContent || '').startsWith('This page cannot')")

    def resize(self, width, height, theme="light"):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def key(self, key, shift=False):
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": SHIFT if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def place(self, selector, x=0.5, y=0.5):
        """A point of an element, scrolled into view."""
        return self.run(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = element.getBoundingClientRect();
            return [box.left + box.width * {x}, box.top + box.height * {y}];
        }})()""")

    def _mouse(self, kind, point, button="none", buttons=0):
        self.ask("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], button=button, buttons=buttons,
                 clickCount=0 if button == "none" else 1)

    def move(self, selector, x, y=0.5):
        self._mouse("mouseMoved", self.place(selector, x, y))

    def click(self, selector, x=0.5, y=0.5):
        point = self.place(selector, x, y)
        self._mouse("mouseMoved", point)
        self._mouse("mousePressed", point, "left", 1)
        self._mouse("mouseReleased", point, "left")

    def drag(self, selector, x_from, x_to):
        begin, end = self.place(selector, x_from), self.place(selector, x_to)
        self._mouse("mouseMoved", begin)
        self._mouse("mousePressed", begin, "left", 1)
        for step in range(1, 5):
            self._mouse("mouseMoved", [begin[0] + (end[0] - begin[0]) * step / 4, begin[1]], "left", 1)
        self._mouse("mouseReleased", end, "left")

    def screenshot(self, path, whole=True):
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def _notice(self, method, parameters):
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(value.get("value")) for value in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialog: {parameters['message']}")


class Browser:
    def __init__(self, profile):
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        command = [program(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                   "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                   "--force-color-profile=srgb", "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"]
        # The program reads commands from descriptor 3 and answers on 4.
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(["bash", "-c", script, "bash", *command], pass_fds=(to_browser, from_browser),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._out, self._in = os.fdopen(from_us, "wb", buffering=0), os.fdopen(to_us, "rb", buffering=0)
        self._rest, self._number, self._pages = b"", 0, {}

    def ask(self, method, session=None, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if "method" in answer and answer.get("sessionId") in self._pages:
                self._pages[answer["sessionId"]]._notice(answer["method"], answer["params"])

    def _read(self):
        while b"\0" not in self._rest:
            more = self._in.read(1 << 20)
            assert more, "chromium has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def new_page(self):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        return page

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self.ask("Browser.close")
        self._out.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
