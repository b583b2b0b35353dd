"""Draws `bridge/manual/status-page.png`: the status page of a made pipeline that has run for an hour.

uv run python -m tests.support.page_picture
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from bridge.watch.document import HOUR_SECONDS, POINT_SECONDS, History
from tests.support.browser import browser
from tests.support.shown_output import MANUAL
from tests.support.watched import MadeSampler, status, watching

PICTURE: Final = MANUAL / "status-page.png"
_SIZE: Final = (1000, 640)


def draw() -> None:
    """Draws its upper part, as on a desk and in light."""
    sampler = MadeSampler()
    with watching(sampler) as watch, tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as chromium:
        watch._history = History()
        for ago in range(round(HOUR_SECONDS), 0, -round(POINT_SECONDS)):
            at = time.time() - ago
            watch._history.add(at, status(at, 0))
        page = chromium.open(f"http://{watch.address}/")
        width, height = _SIZE
        page.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        page.wait_for("document.querySelector('#chart polygon.area-apply') !== null")
        page.wait_for("document.querySelector('.tile:nth-child(2) b').innerText !== '0'")
        page.screenshot(PICTURE, clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})


if __name__ == "__main__":
    draw()
    print(PICTURE)
