"""accuracy.svg: the error against N and against the spread, written as text."""
import math
from xml.sax.saxutils import escape

# Colours that the colour-blind can tell apart (Okabe and Ito).
COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
WIDTH, HEIGHT = 560, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 48


class Panel:
    """A panel with a vertical axis of powers of ten; x is a function of the horizontal value to 0..1."""

    def __init__(self, place, title, xlabel, x, ticks, low, high):
        self.place, self.x, self.low, self.high, self.parts, self.legend = place, x, low, high, [], []
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        self.text((LEFT + right) / 2, 20, title, size=14)
        self.text((LEFT + right) / 2, HEIGHT - 10, xlabel)
        self.parts.append(f'<text transform="translate(16 {(TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle" font-size="12">'
                          'largest error / (u |A||B|)</text>')
        for value in ticks:
            at = self.horizontal(value)
            self.line([(at, TOP), (at, bottom)], "#e4e4e4")
            self.text(at, bottom + 16, str(value))
        step = max(1, round((high - low) / 8))
        for power in range(low, high + 1, step):
            at = self.vertical(10.0**power)
            self.line([(LEFT, at), (right, at)], "#e4e4e4")
            label = {-2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100"}.get(power, f"1e{power}")
            self.text(LEFT - 6, at + 4, label, anchor="end")
        self.parts.append(f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" fill="none" stroke="#777"/>')

    def horizontal(self, value):
        return LEFT + 8 + (WIDTH - RIGHT - LEFT - 16) * self.x(value)

    def vertical(self, value):
        """Values beyond the axis stand on its ends."""
        power = math.log10(value) if 0 < value < math.inf else (self.low if value <= 0 else self.high)
        power = min(max(power, self.low), self.high)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (power - self.low) / (self.high - self.low)

    def text(self, x, y, text, anchor="middle", size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>')

    def line(self, points, colour, width=1.0, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"' + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def curve(self, points, colour, width=1.6, dash=""):
        self.line([(self.horizontal(x), self.vertical(y)) for x, y in points], colour, width, dash)

    def dot(self, x, y, colour, filled=True, radius=4):
        fill = colour if filled else "#fff"
        self.parts.append(f'<circle cx="{self.horizontal(x):.1f}" cy="{self.vertical(y):.1f}" r="{radius}" fill="{fill}" stroke="{colour}" stroke-width="1.4"/>')

    def level(self, value, text):
        at = self.vertical(value)
        self.line([(LEFT, at), (WIDTH - RIGHT, at)], "#777", 1.2, "7 4")
        self.text(LEFT + 6, at - 5, text, anchor="start", size=11)

    def entry(self, text, colour=None, width=1.6, dash=""):
        self.legend.append((text, colour, width, dash))

    def close(self):
        """The legend in the upper right corner, then the panel as text."""
        wide = 34 + 6.3 * max(len(text) for text, *_ in self.legend)
        x, y = WIDTH - RIGHT - wide - 6, TOP + 6
        self.parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{16 * len(self.legend) + 6}" fill="#fff" fill-opacity="0.9" stroke="#bbb"/>')
        for index, (text, colour, width, dash) in enumerate(self.legend):
            at = y + 15 + 16 * index
            if colour:
                self.line([(x + 5, at - 4), (x + 27, at - 4)], colour, width, dash)
            self.text(x + (32 if colour else 5), at, text, anchor="start", size=11)
        return f'<g transform="translate({self.place} 0)">' + "\n".join(self.parts) + "</g>"


def against_moduli(curves):
    counts = [count for one in curves for count, _ in one["curve"]]
    low, high = min(counts), max(counts)
    panel = Panel(0, f"error against the number of moduli, k = {curves[0]['k']}", "N, fixed (mode accurate); dots: N and error of mode auto",
                  lambda x: (x - low) / max(1, high - low), range(low + low % 2, high + 1, 2), -2, 12)
    panel.level(curves[0]["promise"], "promise of auto, T + 1")
    for one, colour in zip(curves, COLOURS):
        panel.curve(one["curve"], colour)
        panel.entry(one["name"], colour)
    for index, (one, colour) in enumerate(zip(curves, COLOURS)):
        if one["auto"]:                             # smaller and smaller, so that none covers another
            panel.dot(*one["auto"], colour, radius=max(3, 6.5 - index))
    return panel.close()


def against_spread(rows):
    families = {}
    for row in rows:
        if row["bits"] >= 4:                        # the axis begins there
            families.setdefault(row["family"], []).append(row)
    families = {name: sorted(some, key=lambda row: row["bits"]) for name, some in families.items() if len({row["bits"] for row in some}) > 1}
    if not families:
        return None
    k = rows[0]["k"]
    x = lambda bits: (math.log2(bits) - 2) / 8
    panel = Panel(WIDTH, f"mode auto against the spread of the exponents, k = {k}", "spread in bits (dots: filled emulated, hollow computed natively)",
                  x, [4, 8, 16, 32, 64, 128, 256, 512, 1024], -2, 6)
    panel.level(max(row["promise"] for row in rows), "promise, T + 1")
    for (name, some), colour in zip(families.items(), COLOURS):
        panel.curve([(row["bits"], row["error_native"]) for row in some], colour, 1.0, "2 3")
        panel.curve([(row["bits"], row["shown"]) for row in some], colour)
        for row in some:
            panel.dot(row["bits"], row["shown"], colour, row["route"] == "emulated")
        panel.entry(name, colour)
    panel.entry("dotted: the native BLAS alone", "#555", 1.0, "2 3")
    return panel.close()


def svg(curves, rows):
    """The picture, or None if a panel has nothing to draw. rows: those of the table with a family and one k."""
    panels = [against_moduli(curves) if curves else None, against_spread(rows) if rows else None]
    if not all(panels):
        return None
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" width="{2 * WIDTH}" height="{HEIGHT}" font-family="sans-serif">\n'
            f'<rect width="{2 * WIDTH}" height="{HEIGHT}" fill="#fff"/>\n' + "\n".join(panels) + "\n</svg>\n")
