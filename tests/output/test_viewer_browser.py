"""The viewer and its recordings in a real browser: Chromium without a display, drawing by software."""

from __future__ import annotations

import io
import json
import shutil
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import warp_articulated as wa
from warp_articulated.show.viewer import Viewer, record_html

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no browser to test with: install Debian's packages chromium and chromium-driver.",
)
PATIENCE = 90.0  # s: a busy machine without a GPU may need half a minute for the first picture
SQUAT = torch.tensor([0.0, 0.2, -0.4]).repeat(4)  # rad: hip, upper and lower leg
MOVED = 12  # of 255: larger than the effect of rounding on a pixel


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--window-size=640,480",
    ):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(PATIENCE)
    driver.set_script_timeout(PATIENCE)
    driver.downloads = downloads
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def live():
    """A viewer of robots that do squats, in its own thread; few pictures per second: software renders slowly."""
    sim = wa.Simulator(wa.load("laikago_feet"), num_envs=4)

    def control(seconds: float, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return sim.initial_control() + SQUAT * np.sin(4.0 * seconds)

    with Viewer(sim, port=0, control=control, fps=5.0, shadows=False) as viewer:
        loop = threading.Thread(target=viewer.run)
        loop.start()
        yield viewer
        viewer.stop()
        loop.join()


def wait_for(what: str, happened: Callable[[], object], patience: float = PATIENCE):
    """Waits until `happened` returns something true, and returns it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            value = happened()
        except (TimeoutException, WebDriverException):  # the page was too busy to answer
            value = None
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {patience:g} s.")


def picture(driver) -> np.ndarray:
    """(height, width, 3) int: the part of the page that shows robots."""
    image = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    box = driver.execute_script(
        "const r = [...document.querySelectorAll('canvas')].map(c => c.getBoundingClientRect())"
        ".sort((a, b) => b.width * b.height - a.width * a.height)[0]; return [r.left, r.top, r.right, r.bottom]"
    )
    return np.asarray(image.crop([round(x) for x in box])).astype(int)


def shows_robots(image: np.ndarray) -> bool:
    """A light ground, and on it the dark feet and legs of robots."""
    dark, light = (image.max(-1) < 90).mean(), (image.min(-1) > 180).mean()
    return image.std() > 10.0 and 0.002 < dark < 0.3 and light > 0.3


def share_moved(a: np.ndarray, b: np.ndarray) -> float:
    return float((np.abs(a - b).max(-1) > MOVED).mean()) if a.shape == b.shape else 0.0


def first_picture(driver) -> np.ndarray:
    """Once there is one; without the warning that this browser draws by software, which would hide robots."""

    def look():
        for close in driver.find_elements(By.CSS_SELECTOR, ".mantine-Notification-closeButton"):
            driver.execute_script("arguments[0].click()", close)
        image = picture(driver)
        return [image] if shows_robots(image) else []

    (image,) = wait_for("the first picture of robots", look)
    wait_for("the warning's end", lambda: not driver.find_elements(By.CSS_SELECTOR, ".mantine-Notification-root"))
    return image


def button(driver, label: str):
    path = f"//button[normalize-space(.)='{label}']"
    return wait_for(f"the button {label!r}", lambda: driver.find_elements(By.XPATH, path))[0]


def click(driver, label: str) -> None:
    driver.execute_script("arguments[0].click()", button(driver, label))


def wait_until_still(driver) -> np.ndarray:
    """The picture, once everything is drawn: it stays the same for a second and ten frames of the browser."""
    seen = [picture(driver)]

    def same() -> bool:
        time.sleep(1.0)  # for messages that the viewer's loop had not sent yet
        driver.execute_async_script(
            "let left = 10; const next = () => left-- ? requestAnimationFrame(next) : arguments[0](); next()"
        )
        seen.append(picture(driver))
        return share_moved(seen[-2], seen[-1]) == 0.0

    wait_for("a picture at rest", same)
    return seen[-1]


def no_errors(driver) -> None:
    errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors


def test_robots_move_while_it_plays_and_rest_while_it_is_paused(browser, live):
    browser.get(live.url)
    assert browser.title
    seen = first_picture(browser)
    wait_for("motion", lambda: share_moved(seen, picture(browser)) > 0.002)
    click(browser, "Pause")
    wait_for("the pause", lambda: not live.playing)
    at = live.time
    rest = wait_until_still(browser)
    assert shows_robots(rest)
    time.sleep(1.0)
    assert live.time == at
    assert share_moved(rest, picture(browser)) == 0.0
    no_errors(browser)


def test_a_slider_of_the_page_poses_the_robot(browser, live):
    live.pause()
    browser.get(live.url)
    first_picture(browser)
    rest = wait_until_still(browser)
    sliders = browser.find_elements(By.CSS_SELECTOR, "[role=slider]")
    joints = [joint for joint, _ in live.panel.joints]
    joint, thumb = joints[1], sliders[len(sliders) - len(joints) + 1]
    before = float(live.q[0, joint.q_index])
    browser.execute_script("arguments[0].focus()", thumb)
    thumb.send_keys(Keys.END)
    wait_for("the pose", lambda: float(live.q[0, joint.q_index]) > before + 0.5)
    assert float(live.q[0, joint.q_index]) == pytest.approx(joint.pose_range[1], abs=2e-3)
    wait_for("the new picture", lambda: share_moved(rest, picture(browser)) > 1e-4)
    live.reset()


def test_contact_arrows_are_drawn(browser, live):
    live.pause()
    browser.get(live.url)
    first_picture(browser)

    def red() -> int:
        r, g, b = np.moveaxis(picture(browser), -1, 0)
        return int(((r > 150) & (r > 1.6 * g) & (r > 1.6 * b)).sum())

    assert red() == 0
    live.panel.contacts.value = True
    wait_for("red arrows", lambda: red() > 20)
    live.panel.contacts.value = False
    wait_for("their end", lambda: red() == 0)


def test_the_page_saves_a_recording(browser, live):
    live.play()
    browser.get(live.url)
    first_picture(browser)
    until = live.time + 0.5
    wait_for("something to record", lambda: live.time > until)
    live.pause()
    click(browser, "Save recording")
    path = browser.downloads / "laikago_feet.html"
    wait_for("the download", path.exists)
    page = path.read_text("utf-8")
    assert "__VISER_EMBED_DATA__" in page and page.rstrip().endswith("</html>")
    no_errors(browser)


def test_a_recording_plays_without_a_server_or_network(browser, tmp_path):
    sim = wa.Simulator(wa.load("laikago_feet"), num_envs=4)
    seconds = sim.dt * torch.arange(3000)[:, None, None]
    qs, _ = sim.rollout(*sim.initial_state(), sim.initial_control() + SQUAT * torch.sin(4.0 * seconds))
    path = tmp_path / "a film.html"
    # ten times slower than it was: a long film, because software takes long to set the light at its start
    record_html(path, sim.model, qs, dt=10.0 * sim.dt, fps=5.0, shadows=False)
    browser.get_log("performance")  # drop the requests of other pages
    browser.get(path.as_uri())
    seen = first_picture(browser)
    wait_for("motion in the recording", lambda: share_moved(seen, picture(browser)) > 0.002)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert urls and [u for u in urls if not u.startswith(("file:", "data:", "blob:"))] == []
    no_errors(browser)
