"""The README's figure: the agent a reader trains on top, the book that builds it below."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import drawsvg

from bookkit.figures import MUTED, Box, arrow, box, card, finish, frame, legend, save, text

TITLE = "What the book builds, and how it is kept true"
DESC = (
    "Above, one episode of a coding agent: an issue says that clamp(3, 0, 5) returns 0 instead of 3; the policy calls"
    " read, test, edit swap_minmax, test and submit; the environment answers with the source, 1 of 3 tests passing,"
    " edited, 3 of 3 passing; hidden tests decide the reward, 1, and the reward updates the policy. Below, the book:"
    " cells of a chapter marked #@save become the library agentrl, which the next chapter imports and which trains the"
    " agent; the checker runs every chapter again and compares each printed output with the recorded one."
)
# The episode is the scripted solver's of Section 1.2; its answers are what that chapter prints.
TURNS = (
    ("read", "source", 74),
    ("test", "1 of 3\npass", 74),
    ("edit\nswap_minmax", "edited", 104),
    ("test", "3 of 3\npass", 74),
    ("submit", "done", 74),
)
GAP = 19


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 506)
    update = episode(drawing)
    library = chain(drawing)
    corner = (update.centre[0], update.y + update.height + 46)
    arrow(drawing, library.top, update.bottom, via=[(library.centre[0], corner[1]), corner])
    text(drawing, corner[0] - 12, corner[1] - 12, "its code trains the agent", 13, anchor="end", fill=MUTED)
    return finish(drawing, TITLE, DESC)


def episode(drawing: drawsvg.Drawing) -> Box:
    """Draw one episode, from the issue to the update, and return the update's box."""
    text(drawing, 24, 28, "The agent you train: one episode", 15, anchor="start", bold=True)
    legend(drawing, 520, 28, [("policy", "policy"), ("environment", "environment")])
    issue = box(drawing, 24, 54, 106, 112, "issue\nclamp(3, 0, 5)\nreturns 0,\nnot 3", role="task", size=13, head=True)
    x = issue.x + issue.width + 30
    calls: list[Box] = []
    for call, answer, width in TURNS:
        calls.append(box(drawing, x, 54, width, 46, call, role="policy", mono=True, size=13))
        reply = box(drawing, x, 120, width, 46, answer, role="environment", size=13)
        arrow(drawing, calls[-1].bottom, reply.top, gap=2)
        if len(calls) > 1:
            # The answer of the turn before is what the next call is sampled from.
            turn = x - GAP + 6
            arrow(drawing, (x - GAP, 143), (x, 77), via=[(turn, 143), (turn, 77)], gap=1)
        x += width + GAP
    arrow(drawing, issue.at("right", 0.15), calls[0].at("left", 0.365), gap=2)
    judge = box(drawing, x, 54, 736 - x, 112, "hidden\ntests ✓\nreward 1", role="reward")
    arrow(drawing, (x - GAP, 143), (judge.x, 143), gap=1)
    update = box(drawing, judge.x - 60, 196, judge.width + 60, 36, "policy update", role="learner")
    arrow(drawing, (judge.centre[0], 166), (judge.centre[0], 196))
    back = (issue.x + issue.width + 12, update.centre[1])
    arrow(drawing, update.left, (calls[0].x, 90), via=[back, (back[0], 90)], gap=2)
    text(drawing, (back[0] + update.x) / 2, back[1] - 12, "makes the calls that earned it more likely", 13, fill=MUTED)
    return update


def chain(drawing: drawsvg.Drawing) -> Box:
    """Draw chapter, library, next chapter and the checker below them, and return the library's box."""
    top = 312
    text(drawing, 24, top - 22, "The book that builds it", 15, anchor="start", bold=True)
    first = chapter(drawing, 24, top, "chapter k", "#@save\ndef advantages(…):")
    library = box(drawing, 302, top + 25, 152, 60, "agentrl\nthe library so far", role="library", head=True)
    second = chapter(drawing, 526, top, "chapter k + 1", "import agentrl as arl\narl.advantages(…)")
    arrow(drawing, first.at("right", 55 / first.height), library.left, label="#@save", size=13)
    arrow(drawing, library.right, second.at("left", 55 / second.height), label="import", size=13)
    words = "checker: runs every chapter in a fresh process, compares each printed output, byte for byte"
    check = box(drawing, 24, 460, 712, 30, words, size=13)
    for notebook in (first, second):
        arrow(drawing, (notebook.centre[0], check.y), notebook.bottom, gap=2)
    return library


def chapter(drawing: drawsvg.Drawing, x: float, y: float, name: str, code: str) -> Box:
    """Draw a notebook page with one code cell and its printed output, and return its box."""
    page = frame(drawing, x, y, 210, 126)
    text(drawing, x + 12, y + 16, name, 13, anchor="start", bold=True)
    frame(drawing, x + 10, y + 30, 190, 50, fill="#f3f3ef", radius=3, stroke_width=1)
    text(drawing, x + 18, y + 55, code, 13, anchor="start", mono=True)
    frame(drawing, x + 10, y + 88, 190, 28, border="dotted", radius=3, stroke_width=1)
    text(drawing, x + 18, y + 102, "printed = recorded ✓", 13, anchor="start")
    return page


if __name__ == "__main__":
    save(__file__, draw())
