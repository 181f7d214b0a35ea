"""Figure 4.1: the agent and its environment, with the four tools and what each of them touches."""

from __future__ import annotations

import sys
from pathlib import Path

import drawsvg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from bookkit.figures import Box, arrow, box, card, finish, frame, save, text

DESC = (
    "On the left the policy sends a message to the parser. A call goes on to the environment, a frame with four "
    "tools: read and edit reach the source, test reaches the public tests, submit the public and the hidden tests. A "
    "message that is no call goes from the parser into the observation as an error. A dashed arrow takes the "
    "observation from the environment back to the policy. Below the environment are the two ends of an episode: after "
    "submit it is terminated, with reward 1 if every test passes and 0 otherwise; after the last turn without submit "
    "it is truncated, with reward 0."
)


def tools(drawing: drawsvg.Drawing) -> tuple[Box, Box]:
    """Draw the environment: its tools, and the source and tests they reach. Return the frame and the submit tool."""
    world = frame(drawing, 392, 14, 354, 304, "environment", fill="none")
    text(drawing, 569, 36, "environment", 16, bold=True)
    names = ["read", "edit OP", "test", "submit"]
    read, edit, test, submit = (
        box(drawing, 410, 56 + 66 * row, 116, 46, name, "environment", size=15, mono=True)
        for row, name in enumerate(names)
    )
    source = box(drawing, 610, 56, 120, 112, "source\nas edited", "plain", size=15, head=True)
    public = box(drawing, 610, 188, 120, 46, "public tests", "task", size=15)
    hidden = box(drawing, 610, 254, 120, 46, "hidden tests", "reward", size=15)
    arrow(drawing, (610, read.right[1]), read.right, border="dashed")
    arrow(drawing, edit.right, (source.x, edit.right[1]))
    arrow(drawing, test.right, public.left)
    arrow(drawing, submit.at("right", 0.25), public.at("left", 0.8))
    arrow(drawing, submit.right, hidden.left)
    return world, submit


def loop(drawing: drawsvg.Drawing, world: Box) -> None:
    """Draw policy and parser, and the way of a message and of an observation."""
    policy = box(drawing, 16, 96, 122, 66, "policy\nwrites tokens", "policy", size=15, head=True)
    parser = box(drawing, 228, 96, 108, 66, "parser\nstrict", "environment", size=15, head=True)
    middle = policy.right[1]
    arrow(drawing, policy.right, parser.left, label="message", size=15)
    arrow(drawing, parser.right, (world.x, middle), label="call", size=15)
    back = 282
    arrow(drawing, (world.x, back), policy.bottom, [(policy.bottom[0], back)], border="dashed")
    text(drawing, 100, back + 20, "observation: what the tool answers", 15, anchor="start")
    arrow(drawing, parser.bottom, (parser.bottom[0], back - 4), border="dashed")
    text(drawing, parser.bottom[0] - 10, 214, "no call:\nan error,\na turn spent", 14, anchor="end", italic=True)


def ends(drawing: drawsvg.Drawing, world: Box) -> None:
    """Draw the two ends of an episode below the environment."""
    terminated = box(
        drawing, 470, 378, 276, 66, "terminated: submit\nreward 1 if every test passes,\nelse 0", "reward", size=14
    )
    truncated = box(drawing, 168, 378, 270, 66, "truncated: no turn is left\nreward 0", "plain", size=14)
    arrow(drawing, world.at("bottom", 0.6), (world.at("bottom", 0.6)[0], terminated.y))
    corner = (world.at("bottom", 0.12)[0], 352)
    arrow(drawing, world.at("bottom", 0.12), truncated.at("top", 0.5), [corner, (truncated.top[0], 352)])


def draw() -> str:
    """Return the figure's SVG."""
    drawing = card(760, 458)
    world, _ = tools(drawing)
    loop(drawing, world)
    ends(drawing, world)
    return finish(drawing, "The agent and its environment", DESC)


if __name__ == "__main__":
    save(__file__, draw())
