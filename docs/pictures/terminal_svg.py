"""Draws what a terminal shows, with its colours, as SVG. Reads lines with escape sequences, as of `tmux capture-pane -e`."""

import html
import re
import sys

COLOURS = {
    30: "#484f58", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341",
    34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd", 37: "#e6edf3", 90: "#8b949e",
}
TEXT, GROUND = "#e6edf3", "#0d1117"
WIDTH, HEIGHT, FONT, MARGIN = 8.4, 18, 14, 12


def main() -> None:
    columns, rows = int(sys.argv[1]), int(sys.argv[2])
    width, height = columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        'aria-label="brickscope top in a terminal">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>\n'
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT}" fill="{TEXT}">'
    )
    colour, bold, reverse = None, False, False
    for row, line in enumerate(sys.stdin.read().split("\n")[:rows]):
        column = 0
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                codes = [int(word or 0) for word in part[2:-1].split(";")]
                # A colour of the palette of 256, of which the first are those with numbers of their own.
                if codes[:2] == [38, 5]:
                    codes = [30 + codes[2]] if codes[2] < 8 else [90]
                for code in codes:
                    if code == 0:
                        colour, bold, reverse = None, False, False
                    elif code == 1:
                        bold = True
                    elif code == 7:
                        reverse = True
                    elif code == 22:
                        bold = False
                    elif code == 27:
                        reverse = False
                    elif code == 39:
                        colour = None
                    elif code in COLOURS:
                        colour = COLOURS[code]
                continue
            if part.strip() or reverse:
                draw(row, column, part, colour or TEXT, bold, reverse)
            column += len(part)
    print("</g>\n</svg>")


def draw(row: int, column: int, text: str, colour: str, bold: bool, reverse: bool) -> None:
    x, y = MARGIN + column * WIDTH, MARGIN + row * HEIGHT
    if reverse:
        print(f'<rect x="{x:.1f}" y="{y}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="{colour}"/>')
        colour = GROUND
    weight = ' font-weight="bold"' if bold else ""
    # The width is stated, since fonts differ.
    print(
        f'<text x="{x:.1f}" y="{y + 14}" textLength="{len(text) * WIDTH:.1f}" fill="{colour}"{weight} '
        f'xml:space="preserve">{html.escape(text)}</text>'
    )


main()
