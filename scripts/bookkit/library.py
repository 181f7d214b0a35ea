"""Build the book's library from the saved cells of its chapters: resolve every name, then write the package's text.

`build` is pure: chapters in, file texts out. A module imports only modules of earlier chapters, so the package built
from the chapters before any one of them is complete, and that is what the checker lets the chapter see.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .notebook import Book, Chapter
from .package import diff_package, polish, write_package
from .problems import BookError, Problem
from .render import Block, ModuleParts, render_init, render_module
from .saves import (
    PACKAGE,
    ChapterSaves,
    Definition,
    Import,
    NameKind,
    SavedCell,
    import_time_problems,
    read_chapter,
    saved_lines,
)
from .scopes import BUILTINS, LIBRARY, MODULE_NAMES, LibraryUse, Use

__all__ = ["SavedName", "build", "diff_package", "names", "write_package"]


@dataclass(frozen=True)
class SavedName:
    """A public name of the library: who saves it, where, and what it is in one line."""

    name: str
    chapter_key: str
    module: str
    cell_id: str
    line: int
    kind: NameKind
    summary: str


def build(book: Book, before: str | None = None, through: str | None = None) -> dict[str, str]:
    """Return the package as file name -> text, from all chapters, those before `before`, or those up to `through`.

    Raises BookError with every problem of the chapters it takes.
    """
    chapters = _select(book, before, through)
    library = _resolve(book, chapters)
    problems = list(library.problems)
    if before is None and through is None:
        problems += [problem for solutions in book.solutions for problem in _saves_nothing(solutions)]
    if problems:
        raise BookError(problems)
    version = _version(book)
    raw = _render(library, version)
    others = [] if before is None and through is None else _prefixes(book, version)
    return polish(raw, book, others)


def names(book: Book) -> dict[str, SavedName]:
    """Return every public name the book saves, in order; cells that cannot be read are passed over."""
    return {entry.name: _saved_name(entry) for entry in _resolve(book, book.chapters).public.values()}


# Selecting and reading


def _select(book: Book, before: str | None, through: str | None) -> tuple[Chapter, ...]:
    key = before if before is not None else through
    if key is None:
        return book.chapters
    try:
        chapter = book.chapter(key)
    except KeyError as error:
        raise BookError(Problem("chapters", None, None, str(error.args[0]))) from error
    earlier = book.before(key)
    return earlier if before is not None else (*earlier, chapter)


@dataclass(frozen=True)
class _Content:
    """A chapter as a cache key: equal when everything the reader looks at is equal."""

    key: tuple[object, ...]
    chapter: Chapter = field(compare=False)


def _read(chapter: Chapter) -> ChapterSaves:
    cells = tuple((cell.id, cell.source, cell.file_line) for cell in chapter.code_cells)
    return _read_once(_Content((chapter.name, str(chapter.root), chapter.module, chapter.kind, cells), chapter))


@functools.lru_cache(maxsize=256)
def _read_once(content: _Content) -> ChapterSaves:
    return read_chapter(content.chapter)


def _saves_nothing(solutions: Chapter) -> Iterator[Problem]:
    for cell in solutions.saved_cells:
        yield solutions.problem(cell, 1, "a solutions notebook saves nothing: leave #@save to its chapter")


def _version(book: Book) -> str:
    path = book.root / "pyproject.toml"
    if not path.exists():
        return "0"
    try:
        project = tomllib.loads(path.read_bytes().decode("utf-8").replace("\r\n", "\n")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(Problem("pyproject.toml", None, None, f"not readable: {error}")) from error
    return str(project.get("version", "0"))


# Resolving


@dataclass
class _Entry:
    """A saved name while the book is read from front to back."""

    name: str
    saves: ChapterSaves
    saved: SavedCell
    definitions: list[Definition]

    @property
    def definition(self) -> Definition:
        """The definition that counts: the last, after its overloads."""
        return self.definitions[-1]

    @property
    def line(self) -> int:
        """Where it is defined, in its cell."""
        return self.definition.names[self.name]

    @property
    def place(self) -> str:
        """Where it is saved, as messages say it."""
        return f"{self.saves.chapter.name} · cell {self.saved.cell.id} · line {self.line}"


@dataclass
class _Library:
    """The names of the chapters read so far."""

    book: Book
    chapters: list[ChapterSaves] = field(default_factory=list)
    public: dict[str, _Entry] = field(default_factory=dict)
    local: dict[str, dict[str, _Entry]] = field(default_factory=dict)
    removed: dict[int, set[str]] = field(default_factory=dict)
    replaced: dict[str, tuple[ChapterSaves, SavedCell]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def is_alive(self, definition: Definition) -> bool:
        """Whether no later cell replaces this definition."""
        return not self.removed.get(id(definition))

    def alive(self, saves: ChapterSaves) -> list[tuple[SavedCell, Definition]]:
        """Return the definitions of a chapter that its module keeps, in order."""
        return [(s, d) for s in saves.cells for d in s.definitions if self.is_alive(d)]

    def report(self, saves: ChapterSaves, saved: SavedCell, line: int | None, message: str) -> None:
        """Note a problem at a saved cell."""
        self.problems.append(saves.chapter.problem(saved.cell, line, message))


def _resolve(book: Book, chapters: Sequence[Chapter]) -> _Library:
    library = _Library(book)
    for chapter in chapters:
        saves = _read(chapter)
        library.chapters.append(saves)
        library.problems += saves.problems
        earlier = dict(library.public)
        _define(library, saves)
        _check_imports(library, saves)
        classes = frozenset(name for name, entry in earlier.items() if entry.definition.kind == "class")
        library.problems += import_time_problems(saves, classes)
        for saved, definition in library.alive(saves):
            for use in definition.needs.uses:
                _check_use(library, saves, saved, definition, use, earlier)
            for use in definition.needs.library:
                _check_library_use(library, saves, saved, use, earlier)
    return library


def _define(library: _Library, saves: ChapterSaves) -> None:
    local = library.local.setdefault(saves.chapter.key, {})
    for saved in saves.cells:
        _replace(library, saves, saved, local)
        for definition in saved.definitions:
            for name in definition.names:
                _define_name(library, saves, saved, definition, name, local)


def _define_name(
    library: _Library,
    saves: ChapterSaves,
    saved: SavedCell,
    definition: Definition,
    name: str,
    local: dict[str, _Entry],
) -> None:
    public = not name.startswith("_")
    other = local.get(name) or (library.public.get(name) if public else None)
    if other is not None and other.saved is saved and other.definition.is_overload:
        other.definitions.append(definition)
        return
    if other is not None:
        message = f"{name!r} is saved twice: already in {other.place}; rename it, or write `#@save replaces={name}`"
        library.report(saves, saved, definition.names[name], message)
        return
    modules = {chapter.module: chapter for chapter in library.book.chapters}
    # A function may carry the name of its own module: the package's attribute is then the function, and both
    # `arl.name` and `from agentrl.name import …` still mean one thing. Another chapter's module would be hidden.
    if name in modules and modules[name] is not saves.chapter:
        message = f"{name!r} is also the module of {modules[name].name}: `{LIBRARY}.{name}` would mean both"
        library.report(saves, saved, definition.names[name], message)
    entry = _Entry(name, saves, saved, [definition])
    local[name] = entry
    if public:
        library.public[name] = entry


def _replace(library: _Library, saves: ChapterSaves, saved: SavedCell, local: dict[str, _Entry]) -> None:
    gone: list[_Entry] = []
    for name in saved.replaces:
        entry = local.pop(name, None) or library.public.get(name)
        if entry is None:
            message = f"nothing to replace: no earlier saved cell defines {name!r}{_where_later(library, saves, name)}"
            library.report(saves, saved, 1, message)
            continue
        library.public.pop(name, None)
        library.local[entry.saves.chapter.key].pop(name, None)
        library.replaced[name] = (saves, saved)
        gone.append(entry)
        for definition in entry.definitions:
            library.removed.setdefault(id(definition), set()).add(name)
    for entry in gone:
        rest = set(entry.definition.names) - library.removed[id(entry.definition)]
        if rest:
            others = ", ".join(sorted(rest))
            message = f"{entry.name!r} is defined together with {others} in {entry.place}: replace them together"
            library.report(saves, saved, 1, message)
        if entry.saves is not saves:
            _check_no_users(library, saves, saved, entry)


def _check_no_users(library: _Library, saves: ChapterSaves, saved: SavedCell, entry: _Entry) -> None:
    """Report a module before this chapter that still needs the replaced definition: it cannot import a later one."""
    start = library.chapters.index(entry.saves)
    for between in library.chapters[start : library.chapters.index(saves)]:
        for user, definition in library.alive(between):
            uses: Sequence[Use | LibraryUse] = (
                definition.needs.uses if between is entry.saves else definition.needs.library
            )
            line = next((use.line for use in uses if use.name == entry.name), None)
            if line is not None:
                place = f"{between.chapter.name} · cell {user.cell.id} · line {line}"
                message = f"{entry.name!r} cannot be replaced here: {place} uses the definition in {entry.place}"
                library.report(saves, saved, 1, message)


def _check_imports(library: _Library, saves: ChapterSaves) -> None:
    first: dict[str, tuple[SavedCell, Import]] = {}
    local = library.local[saves.chapter.key]
    for saved in saves.cells:
        for imported in saved.imports:
            name = imported.binds
            cell, other = first.setdefault(name, (saved, imported))
            if other.target != imported.target:
                message = (
                    f"{name!r} is imported as {imported.target}, but as {other.target} in cell {cell.cell.id} "
                    f"line {other.line}: one module, one meaning"
                )
                library.report(saves, saved, imported.line, message)
            if name in local:
                message = f"{name!r} is imported here and also saved in {local[name].place}"
                library.report(saves, saved, imported.line, message)


def _check_use(
    library: _Library,
    saves: ChapterSaves,
    saved: SavedCell,
    definition: Definition,
    use: Use,
    earlier: dict[str, _Entry],
) -> None:
    name = use.name
    imports = [i for cell in saves.cells for i in cell.imports if i.binds == name]
    if any(not i.typing_only for i in imports) or (imports and use.when == "never"):
        return
    if imports:
        message = f"{name!r} is imported under `if TYPE_CHECKING:` only, but this code runs: import it in the open"
        library.report(saves, saved, use.line, message)
        return
    entry = library.local[saves.chapter.key].get(name)
    if entry is None:
        if name not in BUILTINS and name not in MODULE_NAMES:
            library.report(saves, saved, use.line, _undefined(library, saves, name, earlier))
    elif use.when == "now":
        order = [id(d) for _, d in library.alive(saves)]
        if order.index(id(definition)) <= order.index(id(entry.definitions[0])):
            message = (
                f"{name!r} is needed while the module is imported, but comes only in {entry.place}: define it above"
            )
            library.report(saves, saved, use.line, message)


def _undefined(library: _Library, saves: ChapterSaves, name: str, earlier: dict[str, _Entry]) -> str:
    """Say why a free name means nothing in the module, and what to do about it."""
    start = f"{name!r} is not defined in the library: "
    if name in saves.unsaved_imports:
        return start + f"`{saves.unsaved_imports[name]}` stands in an unsaved cell; put it in a saved cell"
    if name in earlier:
        return start + f"{earlier[name].saves.chapter.name} saves it: write {LIBRARY}.{name}"
    later = _later(library, saves, name)
    if later is not None:
        return start + f"chapter {later[0].chapter.key} saves it (cell {later[1].cell.id}), which comes later"
    if name in saves.unsaved_names:
        return start + f"it is defined in the unsaved cell {saves.unsaved_names[name]}: save that too"
    if name in library.replaced:
        by, cell = library.replaced[name]
        return start + f"{by.chapter.name} (cell {cell.cell.id}) replaced it"
    return start + "nothing defines it"


def _check_library_use(
    library: _Library, saves: ChapterSaves, saved: SavedCell, use: LibraryUse, earlier: dict[str, _Entry]
) -> None:
    name = use.name
    fault = _library_fault(library, saves, name, earlier)
    imported = next((i for cell in saves.cells for i in cell.imports if i.binds == name), None)
    if fault is not None:
        library.report(saves, saved, use.line, f"{LIBRARY}.{name}: {fault}")
    elif use.shadow is not None:
        message = f"{LIBRARY}.{name} becomes `{name}`, but line {use.shadow} binds a local `{name}`: rename the local"
        library.report(saves, saved, use.line, message)
    elif imported is not None:
        message = f"{LIBRARY}.{name} becomes `{name}`, but a saved cell imports another `{name}` ({imported.target})"
        library.report(saves, saved, use.line, message)


def _library_fault(library: _Library, saves: ChapterSaves, name: str, earlier: dict[str, _Entry]) -> str | None:
    replacing = library.replaced.get(name)
    if replacing is not None and replacing[0] is saves and name in earlier:
        return f"cell {replacing[1].cell.id} of this chapter replaces it, so the old one leaves the library"
    own = library.local[saves.chapter.key].get(name)
    if own is not None:
        return f"this chapter saves it (cell {own.saved.cell.id}): write {name}"
    if name in earlier:
        return None
    later = _later(library, saves, name)
    if later is not None:
        return f"chapter {later[0].chapter.key} saves it (cell {later[1].cell.id}), which comes later"
    if replacing is not None:
        return f"{replacing[0].chapter.name} (cell {replacing[1].cell.id}) replaced it"
    private = next((local[name] for local in library.local.values() if name in local), None)
    if private is not None:
        return f"it is private to {private.saves.chapter.name} (cell {private.saved.cell.id}): save it without the _"
    if any(chapter.module == name for chapter in library.book.chapters):
        return f"it is a module; every saved name is {LIBRARY}.name"
    if name in saves.unsaved_names:
        return f"no cell saves it; the unsaved cell {saves.unsaved_names[name]} defines {name}"
    return "no cell of the book saves it"


def _later(library: _Library, saves: ChapterSaves, name: str) -> tuple[ChapterSaves, SavedCell] | None:
    keys = [chapter.key for chapter in library.book.chapters]
    for chapter in library.book.chapters[keys.index(saves.chapter.key) + 1 :]:
        later = _read(chapter)
        for saved in later.cells:
            if any(name in definition.names for definition in saved.definitions):
                return later, saved
    return None


def _where_later(library: _Library, saves: ChapterSaves, name: str) -> str:
    later = _later(library, saves, name)
    return "" if later is None else f" (chapter {later[0].chapter.key} does, in cell {later[1].cell.id}, later)"


def _saved_name(entry: _Entry) -> SavedName:
    chapter, definition = entry.saves.chapter, entry.definition
    where = (chapter.key, chapter.module, entry.saved.cell.id, entry.line)
    return SavedName(entry.name, *where, definition.kind, definition.summary)


# Rendering


def _prefixes(book: Book, version: str) -> Iterator[dict[str, str]]:
    """Yield the raw texts of every prefix of the book without problems, so that one formatter run serves all."""
    for count in range(len(book.chapters) + 1):
        library = _resolve(book, book.chapters[:count])
        if library.problems:
            return
        yield _render(library, version)


def _render(library: _Library, version: str) -> dict[str, str]:
    parts = [p for p in (_module(library, saves) for saves in library.chapters) if p is not None]
    files = {"__init__.py": render_init(parts, version)}
    files |= {f"{part.chapter.module}.py": render_module(part) for part in parts}
    return files | {"py.typed": ""}


def _module(library: _Library, saves: ChapterSaves) -> ModuleParts | None:
    """Return what the module of a chapter consists of; None when the chapter leaves nothing."""
    alive = library.alive(saves)
    if not alive:
        return None
    entries = [e for e in library.local[saves.chapter.key].values() if library.is_alive(e.definition)]
    used = {use.name for _, definition in alive for use in definition.needs.uses}
    return ModuleParts(
        saves.chapter,
        saves.future,
        [i for cell in saves.cells for i in cell.imports if i.binds in used],
        _library_imports(library, alive),
        [(e.name, e.definition.summary) for e in entries if not e.name.startswith("_")],
        [_block(library, saves, saved) for saved in saves.cells if any(library.is_alive(d) for d in saved.definitions)],
    )


def _library_imports(library: _Library, alive: list[tuple[SavedCell, Definition]]) -> dict[str, list[str]]:
    wanted: dict[str, set[str]] = {}
    for _, definition in alive:
        for use in definition.needs.library:
            module = library.public[use.name].saves.chapter.module
            wanted.setdefault(f"{PACKAGE}.{module}", set()).add(use.name)
    return {module: sorted(found) for module, found in sorted(wanted.items())}


def _block(library: _Library, saves: ChapterSaves, saved: SavedCell) -> Block:
    dead = [d for d in saved.definitions if not library.is_alive(d)]
    without = {line for d in dead for line in range(d.first, d.last + 1)}
    lines = list(saved_lines(saved, without))
    return Block(saves.chapter.name, saved.cell.id, "\n".join(lines).strip("\n"))
