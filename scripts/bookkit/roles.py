"""The stub, solution and test cells of exercises: whether they are in order, and which test belongs to which stub."""

from __future__ import annotations

from collections.abc import Iterator

from .notebook import ROLES, Cell, Chapter
from .runner import Failure

Placed = list[tuple[int, Cell]]


def by_exercise(chapter: Chapter) -> dict[str, Placed]:
    """Return the cells that play a role, with their place among the code cells, by exercise."""
    groups: dict[str, Placed] = {}
    for index, cell in enumerate(chapter.code_cells):
        if cell.book.get("role"):
            groups.setdefault(str(cell.book.get("exercise", "")), []).append((index, cell))
    return groups


def probes(chapter: Chapter) -> dict[int, str]:
    """Return, for each stub's place, the source of the test that must raise on it."""
    found: dict[int, str] = {}
    for group in by_exercise(chapter).values():
        stubs = [index for index, cell in group if cell.book["role"] == "stub"]
        tests = [cell.source for _, cell in group if cell.book["role"] == "test"]
        if len(stubs) == len(tests) == 1:
            found[stubs[0]] = tests[0]
    return found


def role_failures(chapter: Chapter) -> Iterator[tuple[int, Failure]]:
    """Yield what is wrong with the roles: a missing, doubled, misplaced or unknown one, with the cell's place."""
    for exercise, group in by_exercise(chapter).items():
        roles = [str(cell.book["role"]) for _, cell in group]
        first = group[0][0]
        for index, cell in group:
            if cell.book["role"] not in ROLES:
                yield index, Failure("role", f"role {cell.book['role']!r} is none of {', '.join(ROLES)}")
        if not exercise:
            yield first, Failure("role", "the cell has a role but no exercise")
            continue
        missing = [role for role in ROLES if role not in roles]
        if missing:
            yield first, Failure("role", f"exercise {exercise} has no {' and no '.join(missing)} cell")
        elif roles.count("stub") > 1 or roles.count("test") > 1:
            yield first, Failure("role", f"exercise {exercise} has more than one stub or test cell")
        elif [ROLES.index(r) for r in roles if r in ROLES] != sorted(ROLES.index(r) for r in roles if r in ROLES):
            yield (
                first,
                Failure("role", f"exercise {exercise}: the order is {', '.join(roles)}, not stub, solution, test"),
            )
