"""Start a chapter of the plan: its notebook and its solutions, with the metadata and the sections every chapter has.

python scripts/new_chapter.py 02 --module repair_mdp --question "What are a policy, a return and a value?"
"""

from __future__ import annotations

import argparse
import sys
from keyword import iskeyword
from pathlib import Path
from typing import Any

from bookkit.notebook import dump, load_book, normalise, write_atomic
from bookkit.plan import Planned, planned


def main(argv: list[str] | None = None) -> int:
    """Write the two notebooks; return 0, or 2 when the chapter is not planned or exists already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("key", help="the chapter's key in scripts/bookkit/plan.toml: 02, A")
    parser.add_argument("--module", required=True, help="the module of agentrl that its saved cells fill")
    parser.add_argument("--question", required=True, help="the one question it answers")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the book")
    args = parser.parse_args(argv)
    plan = planned()
    if args.key not in plan:
        print(f"new_chapter.py: no chapter {args.key!r} in scripts/bookkit/plan.toml; it has {', '.join(plan)}")
        return 2
    chapter = plan[args.key]
    files = {
        args.root / "chapters" / chapter.file: chapter_notebook(chapter, args.module, args.question),
        args.root / "chapters" / "solutions" / chapter.file: solutions_notebook(chapter),
    }
    there = [path for path in files if path.exists()]
    if there:
        print(f"new_chapter.py: {there[0].relative_to(args.root)} exists already; nothing was written")
        return 2
    if wrong := refusal(args.root, args.module, args.question):
        print(f"new_chapter.py: {wrong}; nothing was written")
        return 2
    for path, raw in files.items():
        write_atomic(path, dump(normalise(raw)))
        print(f"{path.relative_to(args.root)}: written")
    print("Next: write it, then `make library`, `make update` and `make lint`; see editorial-guide.md.")
    return 0


def refusal(root: Path, module: str, question: str) -> str:
    """Return why a chapter cannot be started like this, or ""."""
    if not (root / "chapters").is_dir():
        return f"{root} has no folder chapters/"
    if not question.strip():
        return "--question is empty: a chapter answers one question"
    if not module.isidentifier() or iskeyword(module) or module != module.lower():
        return f"--module {module!r} is no name of a module: lower case letters, digits and _"
    taken = {chapter.module: chapter.name for chapter in load_book(root).chapters}
    return f"--module {module!r} is taken by {taken[module]}" if module in taken else ""


def chapter_notebook(chapter: Planned, module: str, question: str) -> dict[str, Any]:
    """Return the notebook of a chapter: title, imports, and the headings of its last sections."""
    prefix = chapter.key.lstrip("0") or chapter.key[-1]
    cells = [
        _markdown("title", f"# {chapter.label} · {chapter.title}\n\n**Question.** {question}\n\n**You need.** "),
        _code("imports", "#@save\nimport torch"),
        _code("library", "import agentrl as arl"),
        _markdown("design", f"## {prefix}.1 Design questions in practice"),
        _markdown("summary", "## Summary"),
        _markdown("exercises", "## Exercises"),
        _markdown("sources", "## Sources"),
    ]
    book = {"chapter": chapter.key, "module": module, "title": chapter.title, "question": question}
    return {"cells": cells, "metadata": {"agentrl": book}}


def solutions_notebook(chapter: Planned) -> dict[str, Any]:
    """Return the notebook of a chapter's solutions: it starts by running the chapter."""
    title = f"Solutions to {chapter.label} · {chapter.title}"
    setup = f"%%capture\n%run ../{chapter.file}"
    cells = [_markdown("title", f"# {title}"), _code("setup", setup)]
    return {"cells": cells, "metadata": {"agentrl": {"chapter": chapter.key, "title": title}}}


def _markdown(cell_id: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def _code(cell_id: str, source: str) -> dict[str, Any]:
    return {**_markdown(cell_id, source), "cell_type": "code", "outputs": [], "execution_count": None}


if __name__ == "__main__":
    sys.exit(main())
