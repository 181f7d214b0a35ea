"""Figure 0.1: how chapters become the library that later chapters import, and what the checker compares."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import arrow, box, card, finish, save

DESC = (
    "Three boxes in a row: chapter k, the package agentrl, chapter k + 1. The saved cells of chapter k go into the "
    "package. The modules that come from chapters up to k are what chapter k + 1 imports, and its own saved cells go "
    "back into the package. Below, the checker takes the cells and the recorded output of a chapter and the part of "
    "the package that precedes it, runs the cells in a fresh process and compares the text: equal, or a difference "
    "reported by chapter, cell and character."
)


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 400)
    content = "prose, code cells,\nrecorded outputs"
    here = box(drawing, 24, 36, 160, 92, f"Chapter k\n{content}", head=True)
    library = box(drawing, 300, 36, 160, 92, "agentrl\none module\na chapter", role="library", head=True)
    later = box(drawing, 576, 36, 160, 92, f"Chapter k + 1\n{content}", head=True)
    arrow(drawing, here.right, library.left, label="#@save cells", label_at=(242, 68))
    arrow(drawing, library.at("right", 0.3), later.at("left", 0.3), label="import agentrl", label_at=(518, 48))
    arrow(drawing, later.at("left", 0.75), library.at("right", 0.75), label="#@save cells", label_at=(518, 120))
    runs = (
        "runs the cells in order in a fresh process that can import only what\n"
        "earlier chapters saved, and compares what each cell prints"
    )
    checker = box(drawing, 120, 216, 520, 84, f"Checker\n{runs}", role="reward", head=True)
    arrow(
        drawing,
        (150, 128),
        (150, 216),
        label="cells, outputs",
        label_at=(158, 172),
        label_anchor="start",
        border="dashed",
    )
    arrow(
        drawing,
        library.bottom,
        checker.top,
        label="earlier modules",
        label_at=(388, 172),
        label_anchor="start",
        border="dashed",
    )
    arrow(
        drawing,
        (610, 128),
        (610, 216),
        label="cells, outputs",
        label_at=(602, 172),
        label_anchor="end",
        border="dashed",
    )
    same = box(drawing, 120, 340, 150, 40, "same text: passed")
    differs = box(drawing, 330, 340, 310, 40, "difference: chapter, cell, character", role="fault")
    arrow(drawing, (195, 300), same.top)
    arrow(drawing, (485, 300), differs.top)
    return finish(drawing, "How the book is built and checked", DESC)


if __name__ == "__main__":
    save(__file__, draw())
