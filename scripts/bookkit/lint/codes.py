"""Every finding of the linter: its code, level, whether `--fix` mends it, and what it means."""

from __future__ import annotations

from typing import NamedTuple

from ..problems import Level


class Code(NamedTuple):
    """What a code stands for."""

    level: Level
    fixable: bool
    meaning: str


def _error(meaning: str, fixable: bool = False) -> Code:
    return Code("error", fixable, meaning)


def _warning(meaning: str, fixable: bool = False) -> Code:
    return Code("warning", fixable, meaning)


CODES: dict[str, Code] = {
    # Hygiene: what a notebook may hold.
    "L101": _error("the file is not in canonical form", fixable=True),
    "L102": _error("a cell id is not a lower-case slug"),
    "L103": _error("a code cell was never run"),
    "L104": _error("execution counts are not 1 to n in order: not run top to bottom"),
    "L105": _error("an output other than one stdout stream"),
    "L106": _error("recorded output holds an address, path, date, colour code or control character"),
    "L107": _error("recorded output holds a tensor or numpy repr"),
    "L108": _error("recorded output holds a negative zero"),
    "L109": _error("recorded output is larger than 64 KiB"),
    "L110": _error("an empty cell, or a raw one"),
    "L111": _error("unknown cell metadata, tag, output class or role"),
    "L112": _error("a magic or shell line"),
    "L113": _error("a cell waits for input()"),
    "L114": _error("a star import"),
    "L115": _error("lab or sandbox cells and pyproject's [tool.bookkit] lists of them disagree"),
    "L116": _error("global or unstable randomness, so the numbers are not reproducible"),
    "L117": _error("notebook metadata agentrl holds an unknown key or kind"),
    # Structure: what a chapter and its solutions consist of.
    "L201": _error("the title cell does not match the metadata"),
    "L202": _error("the question or the prerequisites are missing"),
    "L203": _error("sections are not numbered k.1, k.2, …"),
    "L204": _error("a required last section is missing or out of place"),
    "L205": _error("too few design questions, or one lacks a part"),
    "L206": _error("exercises are not numbered consecutively or not graded"),
    "L207": _error("too few exercises, or too few with a planted fault"),
    "L208": _error("exercises and solutions do not match"),
    "L209": _error("the stub in an exercise's text is not the stub cell"),
    "L210": _error("stub, solution and test cells of an exercise are incomplete or out of order"),
    "L211": _warning("three or more code cells in a row without prose"),
    "L212": _warning("the chapter's length in words is outside its range"),
    "L213": _error("the solutions do not start with the cell that runs the chapter or imports the library"),
    # Code.
    "L301": _warning("a cell of more than 15 lines"),
    "L302": _error("a cell of more than 30 lines"),
    "L303": _warning("a function of more than 25 lines"),
    "L304": _error("a function of more than 40 lines"),
    "L305": _error("a code cell does not parse"),
    "L306": _error("a code cell is not formatted as ruff format does", fixable=True),
    "L307": _error("ruff check has a finding"),
    "L308": _error("a name of the library is used before the chapter that saves it"),
    # Figures.
    "L401": _error("an image's alternative text is too short or a file name"),
    "L402": _error("an image's file is missing or outside figures/"),
    "L403": _error("an image without a caption **Figure k.n.** after it"),
    "L404": _error("figure numbers are not consecutive"),
    "L405": _error("a figure that nothing shows"),
    "L406": _error("a figure is not well-formed SVG"),
    "L407": _error("a figure lacks role, title or desc"),
    "L408": _error("a figure holds a script or an external reference"),
    # References and mathematics.
    "L501": _error("a link's target does not exist"),
    "L502": _error("a link's heading does not exist"),
    "L503": _error("no such chapter in the plan"),
    "L504": _error("no such section"),
    "L505": _error("no such figure"),
    "L506": _error("no such equation"),
    "L507": _error("no such table"),
    "L508": _error("no such exercise"),
    "L509": _error("equation or table numbers are not unique and consecutive"),
    "L510": _error("unbalanced dollars or braces in mathematics"),
    "L511": _error("a LaTeX command that not both renderers set"),
    "L512": _error("a bare | in mathematics inside a table row"),
    "L513": _error("\\begin and \\end do not match"),
    "L514": _warning("a web link outside sources and README"),
    "L515": _error("a table row has more or fewer cells than its header"),
    # Citations.
    "L601": _error("a cited key is not in sources.md"),
    "L602": _warning("a source that nothing cites"),
    "L603": _error("an entry of sources.md is malformed"),
    "L604": _error("a **Reported** statement without a citation"),
    "L605": _error("the Sources section does not list exactly what the chapter cites", fixable=True),
    # Number provenance.
    "L701": _error("a number in prose has no origin"),
    "L702": _error("an entry of the cell's agentrl.numbers is unused or gives no reason"),
    "L703": _error("an equation between numbers does not hold"),
    # Language.
    "L801": _error("a misspelling"),
    "L802": _error("a doubled word"),
    "L803": _warning("British and American spelling of one word in one chapter"),
    "L804": _warning("a filler or hype word"),
}
