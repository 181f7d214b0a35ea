"""The fonts that travel with the books, so that a book looks the same wherever it is built.

They are installed from site/books/package-lock.json and embedded: in the PDF the glyphs that it uses, in the EPUB one
font, for mathematics, which reading systems may lack.
"""

from __future__ import annotations

from pathlib import Path

from .lacking import Lacking

FOLDER = Path(__file__).resolve().parents[3] / "site" / "books" / "node_modules" / "@fontsource"
# Style sheets of each package: weights, and their italics.
PAPER = {
    "stix-two-text": ("400", "400-italic", "700", "700-italic"),
    "source-code-pro": ("400", "700"),
    "noto-serif-sc": ("400", "700"),
    "noto-emoji": ("400",),
}
MATHS = FOLDER / "noto-sans-math" / "files" / "noto-sans-math-latin-400-normal.woff2"


def paper_css() -> str:
    """Return the rules that make the fonts of the PDF known; Lacking where one is not installed."""
    sheets = [FOLDER / package / f"{name}.css" for package, names in PAPER.items() for name in names]
    for sheet in sheets:
        _require(sheet)
    return "".join(
        sheet.read_text(encoding="utf-8").replace("url(./", f"url({sheet.parent.as_uri()}/") for sheet in sheets
    )


def maths() -> bytes:
    """Return the font for formulas; Lacking where it is not installed."""
    _require(MATHS)
    return MATHS.read_bytes()


def _require(file: Path) -> None:
    if not file.is_file():
        message = f"the font {file.name} is missing: npm ci in site/books (make books does it)"
        raise Lacking("site/books", message)
