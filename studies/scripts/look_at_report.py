#!/usr/bin/env python3
"""Takes pictures of an HTML report as a browser shows it: at three widths, light and dark, and as it is printed. Needs Chromium (Debian
package chromium), and pdftoppm (poppler-utils) for pictures of the printed pages; no test runs it.

  tandem report runs/a --out a.html
  python3 studies/scripts/look_at_report.py a.html pictures
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTHS = {400: 900, 1280: 1000, 1920: 1080}  # pixels, and the height of the first screen
WHOLE = 6000  # pixels of height that show most of a page
LEAST = 500  # pixels that a window of Chromium is wide: a narrower page is shown in a frame


def chromium(browser, *options):
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless=new", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}", "--timeout=20000", *options]
        if os.geteuid() == 0:  # where Chromium's own sandbox refuses to start
            command.insert(1, "--no-sandbox")
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def framed(page, width, height, folder):
    frame = Path(folder) / "frame.html"
    frame.write_text(f'<body style="margin:0"><iframe src="{page.as_uri()}" style="border:0;width:{width}px;height:{height}px"></iframe>')
    return frame


def take(browser, page, target, width, height, dark):
    with tempfile.TemporaryDirectory() as folder:
        shown = page if width >= LEAST else framed(page, width, height, folder)
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
        chromium(browser, *scheme, f"--screenshot={target}", f"--window-size={max(width, LEAST)},{height}", shown.as_uri())
    print(target)


def main(page, out):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("look_at_report.py: there is no Chromium: install the Debian package chromium.")
    page, out = Path(page).resolve(strict=True), Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for width, height in WIDTHS.items():
        take(browser, page, out / f"{width}.png", width, height, dark=False)
        take(browser, page, out / f"{width}-whole.png", width, WHOLE, dark=False)
    take(browser, page, out / "1280-dark.png", 1280, 1000, dark=True)
    chromium(browser, "--no-pdf-header-footer", f"--print-to-pdf={out / 'print.pdf'}", page.as_uri())
    print(out / "print.pdf")
    if shutil.which("pdftoppm"):
        subprocess.run(["pdftoppm", "-r", "70", "-png", out / "print.pdf", out / "print"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"look_at_report.py: {type(error).__name__}: {error}")
