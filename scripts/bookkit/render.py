"""The text of the library's files, before the formatter: docstrings, imports, `__all__`, blocks under their cells."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from .notebook import Chapter
from .saves import PACKAGE, Import

WIDTH = 120
TITLE = "Agentic Reinforcement Learning: From Policy Gradients to Coding Agents"
DO_NOT_EDIT = "Do not edit: change the chapter and run `make library`."


@dataclass(frozen=True)
class Block:
    """The kept text of one saved cell."""

    notebook: str
    cell_id: str
    text: str


@dataclass(frozen=True)
class ModuleParts:
    """What a module consists of; `names` are its public names in order, each with its summary."""

    chapter: Chapter
    future: tuple[str, ...]
    imports: list[Import]
    library: dict[str, list[str]]
    names: list[tuple[str, str]]
    blocks: list[Block]


def block_heading(notebook: str, cell_id: str) -> str:
    """Return the comment that says which cell a block comes from."""
    return f"# {notebook} · cell {cell_id}"


def is_generated(text: str) -> bool:
    """Whether a file's text says that it was built from the book (an empty file, as py.typed, says nothing else)."""
    return not text.strip() or DO_NOT_EDIT in text


def chapter_heading(chapter: Chapter) -> str:
    """Return how a chapter is called: `Chapter 6 · Title`, `Appendix A · Title`."""
    number = f"Chapter {int(chapter.key)}" if chapter.key.isdigit() else f"Appendix {chapter.key}"
    return f"{number} · {_line(chapter.title)}"


def render_module(parts: ModuleParts) -> str:
    """Return a module's text: docstring, imports, `__all__`, then each saved cell under a comment that names it."""
    chapter = parts.chapter
    sections = [docstring([_sentence(chapter_heading(chapter)), _line(chapter.question), _origin(chapter.name)])]
    if parts.future:
        sections.append(f"from __future__ import {', '.join(parts.future)}")
    sections.append(_imports(parts))
    sections.append(_all([name for name, _ in parts.names]))
    for block in parts.blocks:
        gap = "\n\n" if block.text.startswith("#") else "\n"
        sections.append(f"{block_heading(block.notebook, block.cell_id)}{gap}{block.text}")
    return "\n\n".join(section for section in sections if section) + "\n"


def render_init(modules: list[ModuleParts], version: str) -> str:
    """Return the text of `__init__.py`: what the package is, what each chapter adds, and every public name."""
    overview = [_overview(parts) for parts in modules if parts.names]
    sections = [docstring([*_introduction(), *overview, _origin("the saved cells of chapters/")])]
    sections.append("# The imports follow the book, not the alphabet.\n# isort: skip_file")
    sections.append("\n".join(_reexport(parts) for parts in modules if parts.names))
    sections.append(f"__version__ = {quoted(version)}")
    sections.append(_all([name for parts in modules for name, _ in parts.names]))
    return "\n\n".join(section for section in sections if section) + "\n"


def _reexport(parts: ModuleParts) -> str:
    return f"from {PACKAGE}.{parts.chapter.module} import ({', '.join(name for name, _ in parts.names)})"


def _introduction() -> list[str]:
    return [
        f"The library that grows out of the book *{TITLE}*.",
        "Every chapter derives its functions, checks them in front of the reader and saves the ones that later "
        "chapters call; this package is all that the chapters saved, in their order. In a chapter, `import agentrl as "
        "arl` gives what the chapters before it saved; outside the book it gives everything. The derivation of each "
        "name is in the chapter it is listed under.",
    ]


def _overview(parts: ModuleParts) -> str:
    """Return the chapter's heading and its names, one a line with their summaries, already wrapped."""
    width = max(len(name) for name, _ in parts.names)
    lines = [f"{chapter_heading(parts.chapter)} ({PACKAGE}.{parts.chapter.module})"]
    for name, summary in parts.names:
        start = f"    {name:<{width}}  "
        filled = textwrap.fill(_line(summary), WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
        lines.append(filled.rstrip() or start.rstrip())
    return "\n".join(lines)


def _origin(source: str) -> str:
    return f"Built from {source} by scripts/build_library.py.\n{DO_NOT_EDIT}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def docstring(paragraphs: Iterable[str]) -> str:
    """Return a docstring of these paragraphs, whatever characters they hold; those without line breaks are wrapped."""
    filled = [p if "\n" in p else textwrap.fill(p, WIDTH - 3, break_on_hyphens=False) for p in paragraphs if p]
    text = "\n\n".join(filled).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{text}\n"""'


def quoted(text: str) -> str:
    """Return a string literal in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _line(text: str) -> str:
    return " ".join(text.split())


def _all(names: list[str]) -> str:
    if not names:
        return "__all__: list[str] = []"
    return f"__all__ = [{', '.join(quoted(name) for name in names)}]"


def _imports(parts: ModuleParts) -> str:
    """Return the import section, one name a statement: the formatter merges and sorts it."""
    plain = _unique(i for i in parts.imports if not i.typing_only)
    open_names = {i.binds for i in plain}
    typing_only = _unique(i for i in parts.imports if i.typing_only and i.binds not in open_names)
    lines = [line for imported in plain for line in _import_lines(imported)]
    if typing_only and not any(i.text == "from typing import TYPE_CHECKING" for i in plain):
        lines.append("from typing import TYPE_CHECKING")
    lines += [f"from {module} import {', '.join(found)}" for module, found in parts.library.items()]
    if typing_only:
        inner = [line for imported in typing_only for line in _import_lines(imported)]
        lines += ["", "if TYPE_CHECKING:", *(f"    {line}" for line in inner)]
    return "\n".join(lines)


def _import_lines(imported: Import) -> list[str]:
    trailing = f"  {imported.trailing}" if imported.trailing else ""
    return [*imported.above, imported.text + trailing]


def _unique(imports: Iterable[Import]) -> list[Import]:
    """Return each import once, in a fixed order; of equal ones the first that has comments."""
    chosen: dict[str, Import] = {}
    for imported in imports:
        if imported.text not in chosen or not (chosen[imported.text].above or chosen[imported.text].trailing):
            chosen[imported.text] = imported
    return [chosen[text] for text in sorted(chosen)]
