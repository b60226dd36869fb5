"""OZ2_REPORT: the page is well-formed, needs nothing else, and its figures are those of OZ2_STATS."""

import html.parser
import json
import re
import shutil
import struct
import subprocess
import zlib

import pytest

from helpers import PROGRAMS, PYTHON, ROOT, environment, preloaded

ARTEFACTS = ROOT / "target/report"
VOID = {"meta", "br"}
# A name that would be a tag, an entity and the end of an attribute.
HOSTILE = '<b>&"x'


class Page(html.parser.HTMLParser):
    """Reads a page, and fails where a tag is not closed by its own."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.data, self.text, self.scripts = [], [], {}, "", []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag == "data":
            self.data[attributes["id"]] = float(attributes["value"])
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)
        self.text += " " if tag in ("td", "th") else ""

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.text += data


def report(folder, command, **options):
    """Runs a program; its page and its statistics."""
    result = preloaded(command, OZ2_REPORT=folder / "%p.html", OZ2_STATS=folder / "%p.json", **options)
    (stats,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    path = folder / ("%d.html" % stats["pid"])
    return path, Page(path.read_text()), stats, result


def mixed(folder, kind, **options):
    return report(folder, [PYTHON, PROGRAMS / "mixed.py", kind], OZ2_NUM_THREADS="2", **options)


def agrees(page, stats):
    """The figures that are seen, and those for programs."""
    assert json.loads(page.scripts[0]) == stats
    for name in ("calls", "emulated", "flops"):
        assert page.data[name] == stats[name], name
    assert abs(page.data["seconds"] - stats["seconds"]) < 1e-5


def test_a_mixed_program(tmp_path):
    options = {"OZ2_MIN_SIZE": "100", "OZ2_CHECK": "on", "OZ2_VERIFY": "4"}
    path, page, stats, _ = mixed(tmp_path, "mixed", **options)
    agrees(page, stats)
    assert stats["calls"] == 6 * (60 + 200 + 3 + 1 + 5) and stats["emulated"] >= 6 * 6, stats
    text = " ".join(page.text.split())
    assert stats["reasons"]["too small"] == 6 * 260 and stats["rows_native"] > 0
    for words in (
            "1,560 calls (among them 40 x 40 x 40, 1,200 times) are below OZ2_MIN_SIZE=100",
            "6 calls of 300 x 300 x 300 were native because of NaN or Inf",
            "not provable with an N within the limit",
            "%d rows and %d columns of C were computed natively, because" % (stats["rows_native"], stats["columns_native"]),
            "1024 \u00d7 1024 \u00d7 1024", "1500 \u00d7 1500 \u00d7 32", "N = 15", "too small", "plain",
            "fp64: T = 2 sqrt(n)", "OZ2_MIN_SIZE 100 environment", "OZ2_VERIFY 4 environment",
            "The self-check looked at %d calls and flagged nothing." % stats["checked"],
            "%d calls were computed natively too, and none differs" % stats["verified"],
            "openblas", "integers of 64 bits"):
        assert words in text, (words, text)
    # The shares of both routes in the time line and in the tables.
    classes = [attributes.get("class") for tag, attributes in page.tags if tag == "rect"]
    assert classes.count("e") > 0 and classes.count("n") > 0
    assert path.stat().st_size < 200_000


def test_nothing_from_elsewhere(tmp_path):
    """No address but that of the SVG's own elements, no attribute that loads something."""
    path, page, _, _ = mixed(tmp_path, "mixed")
    text = path.read_text()
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text.split("</style>")[0] + text.split("</style>")[1])
    for tag, attributes in page.tags:
        assert not {"src", "href", "srcset", "action", "poster", "xlink:href"} & set(attributes), (tag, attributes)
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")


def test_a_hostile_name(tmp_path, build):
    """What comes from outside stays text: the program, its arguments, the rank, an option."""
    program = tmp_path / HOSTILE
    shutil.copy(build("product.c"), program)
    pages = tmp_path / "pages"
    pages.mkdir()
    result = preloaded([program, 40, 30, 20], blas="reference", OZ2_REPORT=pages / "p.html", OMPI_COMM_WORLD_RANK="<i>3",
                       OZ2_VERIFY_DUMP="<u>'x'")
    assert "good" in result.out, str(result)
    text = (pages / "p.html").read_text()
    page = Page(text)  # every tag closed by its own
    assert HOSTILE + " 40 30 20" in page.text and ", rank <i>3" in page.text and "<u>'x'" in page.text
    for raw in ("<b>&", "<i>3", "<u>"):
        assert raw not in text


def test_everything_native(tmp_path):
    _, page, stats, _ = mixed(tmp_path, "native", OZ2_MODE="native")
    agrees(page, stats)
    text = " ".join(page.text.split())
    assert stats["emulated"] == 0
    assert "Everything was native because of OZ2_MODE=native" in text
    assert "No call was emulated" in text and "0 % of the flops emulated" in text


def test_a_thousand_shapes(tmp_path):
    """All are there, most of them folded."""
    path, page, stats, _ = mixed(tmp_path, "shapes", OZ2_MIN_SIZE="40")
    agrees(page, stats)
    shapes = set(re.findall(r"\d+ \u00d7 \d+ \u00d7 \d+", page.text))
    assert len(shapes) == 1000 and "985 more shapes" in page.text
    assert path.stat().st_size < 1_000_000


def test_names(tmp_path, build):
    """As those of OZ2_STATS: nothing is overwritten, each process has its own, a rank has its number."""
    (tmp_path / "3.html").write_text("mine")
    result = preloaded([build("product.c"), 40, 30, 20], blas="reference", OZ2_REPORT=tmp_path / "%r.html",
                       OMPI_COMM_WORLD_RANK="3")
    assert "good" in result.out and result.err == "", str(result)
    assert (tmp_path / "3.html").read_text() == "mine"
    assert "rank 3" in Page((tmp_path / "3.html.1").read_text()).text


def test_a_page_that_cannot_be_written(build):
    result = preloaded([build("product.c"), 40, 30, 20], blas="reference", OZ2_REPORT="/nowhere/p.html")
    assert "good" in result.out and len(result.err.splitlines()) == 1 and "/nowhere/p.html" in result.err, str(result)


def test_no_page_unasked_or_without_a_call(tmp_path):
    preloaded(["sh", "-c", "/bin/true; echo x"], OZ2_REPORT=tmp_path / "%p.html")
    preloaded([PYTHON, "-c", "import numpy; numpy.dot(numpy.ones((9, 9)), numpy.ones((9, 9)) + 1)"], cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["child", "idle"])
def test_forks(build, tmp_path, mode):
    """A child that leaves by _exit has no page, and one that runs the exit handlers none without calls of its own."""
    preloaded([build("ends.c"), mode, 5, 40], blas="reference", OZ2_REPORT=tmp_path / "%p.html")
    pages = [Page(path.read_text()) for path in tmp_path.iterdir()]
    assert [page.data["calls"] for page in pages] == [2]


def test_the_child_of_a_fork_starts_anew(tmp_path):
    code = """
import os, sys, numpy
a = numpy.random.default_rng(1).standard_normal((90, 90))
for _ in range(3): a @ a.copy()
sys.stdout.flush()
child = os.fork()
for _ in range(2 if child == 0 else 4): a @ a.copy()
if child: os.waitpid(child, 0)
"""
    preloaded([PYTHON, "-c", code], OZ2_REPORT=tmp_path / "%p.html")
    pages = [Page(path.read_text()) for path in tmp_path.iterdir()]
    assert sorted(page.data["calls"] for page in pages) == [2, 7]


def test_other_threads_may_go_on(tmp_path):
    """Exit handlers run while other threads call DGEMM."""
    code = """
import threading, time, numpy
a = numpy.random.default_rng(1).standard_normal((120, 120))
def work():
    while True: a @ a.copy()
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.4)
import ctypes; ctypes.CDLL(None).exit(0)
"""
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        _, page, stats, result = report(folder, [PYTHON, "-c", code])
        assert page.data["calls"] > 10 and stats["calls"] > 10, str(result)


def test_bits_are_the_same_with_it(build, tmp_path):
    program = build("product.c")
    plain = preloaded([program, 310, 270, 290], blas="reference").out
    assert preloaded([program, 310, 270, 290], blas="reference", OZ2_REPORT=tmp_path / "p.html").out == plain


# ----------------------------------------------------------------- as a browser shows it


def browser():
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def pixels(path):
    """Width, height and the set of the colours of a PNG of 8-bit RGB or RGBA, without a library."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed, header = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colour = header[:4]
    step = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw = zlib.decompress(packed)
    size = width * step
    lines = [raw[row * (size + 1):(row + 1) * (size + 1)] for row in range(height)]
    # Filters take differences; a blank picture has nothing but zeros after its first pixel.
    changing = sum(1 for line in lines if any(line[1 + step:]))
    return width, height, changing


def screenshot(path, name, *flags):
    """Renders a page and keeps the picture; the messages of its console come back."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    picture = ARTEFACTS / (name + ".png")
    picture.unlink(missing_ok=True)
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
               "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
               "--user-data-dir=%s" % (path.parent / "profile"), "--enable-logging=stderr", "--window-size=1240,2000",
               "--virtual-time-budget=2000", *flags, "--screenshot=%s" % picture, "file://%s" % path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert picture.exists(), done.stderr
    return picture, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


needs_browser = pytest.mark.skipif(browser() is None, reason="no Chromium on this machine (scripts/setup installs it)")


@needs_browser
@pytest.mark.parametrize("kind, options, flags", [
    ("mixed", {"OZ2_MIN_SIZE": "100"}, ()),
    ("native", {"OZ2_MODE": "native"}, ()),
    ("shapes", {"OZ2_MIN_SIZE": "40"}, ()),
    ("dark", {"OZ2_MIN_SIZE": "100"}, ("--blink-settings=preferredColorScheme=0",)),
], ids=["mixed", "native", "shapes", "dark"])
def test_a_browser_shows_it(tmp_path, kind, options, flags):
    path, _, _, _ = mixed(tmp_path, "mixed" if kind == "dark" else kind, **options)
    picture, console = screenshot(path, kind, *flags)
    assert console == []
    width, height, changing = pixels(picture)
    assert (width, height) == (1240, 2000) and changing > 600, (width, height, changing)


@needs_browser
def test_the_console_is_heard(tmp_path):
    """The check above would see an error."""
    page = tmp_path / "page.html"
    page.write_text("<p>x<script>nothing.there()</script>")
    _, console = screenshot(page, "broken")
    assert any("nothing is not defined" in line for line in console), console
