"""Which names a top-level statement of a saved cell needs from its module, and when: Python's scoping rules on `ast`.

`read_statement` walks one statement and answers three things the library builder asks: the free names (with the moment
they are needed), the uses of `arl.name` (with the local name that would shadow them once `arl.` is gone), and what the
statement does to module names from inside functions (`global`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

LIBRARY = "arl"
# Names a Python session adds for a person at the prompt are no part of the language.
BUILTINS = frozenset(dir(builtins)) - {"_", "copyright", "credits", "display", "exit", "get_ipython", "license", "quit"}
MODULE_NAMES = frozenset({"__doc__", "__name__"})
CLASS_NAMES = frozenset({"__class__", "__module__", "__qualname__"})

When = Literal["now", "later", "never"]
ScopeKind = Literal["module", "class", "function", "comprehension", "type parameters"]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Use:
    """A name taken from the module: `now` on import, `later` in a function body, `never` in an annotation."""

    name: str
    line: int
    when: When


@dataclass(frozen=True)
class LibraryUse:
    """`arl.name`; `shadow` is the line of the local binding that takes over when it becomes `name`, if there is one."""

    name: str
    line: int
    when: When
    shadow: int | None


@dataclass
class Names:
    """What one top-level statement needs and does; lines count within the cell."""

    uses: list[Use] = field(default_factory=list)
    library: list[LibraryUse] = field(default_factory=list)
    misuses: list[tuple[int, str]] = field(default_factory=list)
    global_binds: dict[str, int] = field(default_factory=dict)
    leaks: dict[str, int] = field(default_factory=dict)


@dataclass
class Scope:
    """A scope of the statement, with the line where each of its names is first bound."""

    kind: ScopeKind
    parent: Scope | None
    name: str = ""
    bound: dict[str, int] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    def mangle(self, name: str) -> str:
        """Return the name as Python stores it: `__x` within a class is private to that class."""
        if not name.startswith("__") or name.endswith("__"):
            return name
        scope: Scope | None = self
        while scope is not None and scope.kind != "class":
            scope = scope.parent
        return f"_{scope.name.lstrip('_')}{name}" if scope is not None and scope.name.strip("_") else name


@dataclass(frozen=True)
class _Reference:
    name: str
    line: int
    when: When
    scope: Scope
    attribute: str | None
    bound_so_far: bool
    in_class: bool


def read_statement(node: ast.stmt, lazy_annotations: bool) -> Names:
    """Return what a top-level statement needs; `lazy_annotations` says that the module does not evaluate them."""
    walker = _Walker(lazy_annotations)
    walker.visit(node)
    return walker.resolve()


class _Walker(ast.NodeVisitor):
    def __init__(self, lazy_annotations: bool) -> None:
        self.scope = Scope("module", None)
        self.when: When = "now"
        self.lazy_annotations = lazy_annotations
        self.references: list[_Reference] = []
        self.names = Names()
        self.quoted: int | None = None

    # Results

    def resolve(self) -> Names:
        """Sort the references into free names and library uses, now that every scope is complete."""
        for ref in self.references:
            if ref.attribute is not None and self._binding(ref, LIBRARY) is None:
                shadow = self._binding(ref, ref.attribute, strict=True)
                self.names.library.append(LibraryUse(ref.attribute, ref.line, ref.when, shadow))
            elif ref.name == LIBRARY and ref.attribute is None and self._binding(ref, LIBRARY) is None:
                self.names.misuses.append((ref.line, f"`{LIBRARY}` is used as a value: write `{LIBRARY}.name`"))
            elif self._binding(ref, ref.name) is None and not (ref.in_class and ref.name in CLASS_NAMES):
                self.names.uses.append(Use(ref.name, ref.line, ref.when))
        return self.names

    def _binding(self, ref: _Reference, name: str, strict: bool = False) -> int | None:
        """Return the line of the local binding that `name` means at this reference; None when it is the module's.

        A class body looks a name up in the module until the body binds it; `strict` takes any binding of the body.
        """
        scope: Scope | None = ref.scope
        own = True
        while scope is not None and scope.kind != "module":
            if name in scope.globals:
                return None
            if scope.kind == "class":
                if own and name in scope.bound and (strict or ref.bound_so_far):
                    return scope.bound[name]
            elif name in scope.bound and name not in scope.nonlocals:
                return scope.bound[name]
            own = own and scope.kind == "type parameters"
            scope = scope.parent
        return None

    # Recording

    def _use(self, name: str, line: int, attribute: str | None = None) -> None:
        name = self.scope.mangle(name)
        line = self.quoted or line
        scope, in_class = self.scope, False
        parent: Scope | None = scope
        while parent is not None:
            in_class = in_class or parent.kind == "class"
            parent = parent.parent
        so_far = name in scope.bound
        self.references.append(_Reference(name, line, self.when, scope, attribute, so_far, in_class))
        if name == LIBRARY and self.quoted is not None:
            self.names.misuses.append((line, f"`{LIBRARY}` within a quoted annotation: take the quotes away"))

    def _bind(self, name: str, line: int) -> None:
        name = self.scope.mangle(name)
        if name == LIBRARY:
            self.names.misuses.append((line, f"`{LIBRARY}` is bound here: it is the library's name in the notebooks"))
        if name in self.scope.globals:
            self.names.global_binds.setdefault(name, line)
            self._use(name, line)
        self.scope.bound.setdefault(name, line)

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _within(self, kind: ScopeKind, name: str = "") -> Scope:
        self.scope = Scope(kind, self.scope, name)
        return self.scope

    def _leave(self) -> None:
        assert self.scope.parent is not None
        self.scope = self.scope.parent

    # Names

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node.id, node.lineno)
        else:
            self._bind(node.id, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id == LIBRARY):
            self.visit(node.value)
        elif isinstance(node.ctx, ast.Load):
            self._use(LIBRARY, node.lineno, node.attr)
        else:
            message = f"`{LIBRARY}.{node.attr}` is changed here: only its chapter changes a saved name"
            self.names.misuses.append((node.lineno, message))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        here = self.scope
        while self.scope.kind == "comprehension":
            self._leave()
        if self.scope.kind == "module":
            self.names.leaks.setdefault(node.target.id, node.lineno)
        self._bind(node.target.id, node.lineno)
        self.scope = here

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._use(node.target.id, node.lineno)
        self.visit(node.value)
        self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        self._visit_all(node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if self.scope.kind in ("module", "class"):
            self._annotation(node.annotation)
        else:
            self._annotation(node.annotation, "never")
        if node.value is not None:
            self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        self._visit_all(node.body)
        self._visit_all(node.orelse)

    visit_AsyncFor = visit_For

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(bound_by(alias), node.lineno)

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self._bind(node.name, node.lineno)
        self._visit_all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.pattern is not None:
            self.visit(node.pattern)
        if node.name is not None:
            self._bind(node.name, node.lineno)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self._bind(node.name, node.lineno)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest is not None:
            self._bind(node.rest, node.lineno)

    # Scopes

    def visit_FunctionDef(self, node: FunctionNode) -> None:
        self._visit_all(node.decorator_list)
        self._defaults(node.args)
        typed = self._type_parameters(node)
        for argument in _arguments(node.args):
            self._annotation(argument.annotation)
        self._annotation(node.returns)
        self._function(node.args, node.body)
        if typed:
            self._leave()
        self._bind(node.name, node.lineno)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        self._function(node.args, [node.body])

    def _defaults(self, args: ast.arguments) -> None:
        self._visit_all(args.defaults)
        self._visit_all([default for default in args.kw_defaults if default is not None])

    def _function(self, args: ast.arguments, body: Sequence[ast.AST]) -> None:
        when, self.when = self.when, "later"
        self._within("function")
        for argument in _arguments(args):
            self._bind(argument.arg, argument.lineno)
        self._visit_all(body)
        self._leave()
        self.when = when

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.decorator_list)
        typed = self._type_parameters(node)
        self._visit_all(node.bases)
        self._visit_all(node.keywords)
        self._within("class", node.name)
        self._visit_all(node.body)
        self._leave()
        if typed:
            self._leave()
        self._bind(node.name, node.lineno)

    def visit_TypeAlias(self, node: ast.AST) -> None:
        """`type X = ...` (Python 3.12): its value is evaluated when somebody asks for it."""
        typed = self._type_parameters(node)
        when, self.when = self.when, "later"
        self.visit(node.value)  # pyright: ignore[reportAttributeAccessIssue]
        self.when = when
        if typed:
            self._leave()
        self.visit(node.name)  # pyright: ignore[reportAttributeAccessIssue]

    def _type_parameters(self, node: ast.AST) -> bool:
        """Open the scope of `def f[T]` when the statement has one (Python 3.12)."""
        parameters = getattr(node, "type_params", [])
        if parameters:
            self._within("type parameters")
            for parameter in parameters:
                self._bind(parameter.name, parameter.lineno)
            when, self.when = self.when, "later"
            for parameter in parameters:
                self.generic_visit(parameter)
            self.when = when
        return bool(parameters)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self.visit(node.generators[0].iter)
        self._within("comprehension")
        for index, generator in enumerate(node.generators):
            if index:
                self.visit(generator.iter)
            self.visit(generator.target)
            self._visit_all(generator.ifs)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._visit_all(values)
        self._leave()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    # Annotations

    def _annotation(self, node: ast.expr | None, when: When | None = None) -> None:
        if node is None:
            return
        before = self.when
        self.when = when or ("never" if self.lazy_annotations else before)
        self._annotation_parts(node)
        self.when = before

    def _annotation_parts(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._quoted(node)
        elif isinstance(node, ast.Subscript) and _last_name(node.value) == "Literal":
            self.visit(node.value)
        elif isinstance(node, ast.Subscript) and _last_name(node.value) == "Annotated":
            self.visit(node.value)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            self._annotation_parts(parts[0])
            self._visit_all(parts[1:])
        elif isinstance(node, ast.Subscript | ast.BinOp | ast.Tuple | ast.List):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._annotation_parts(child)
        else:
            self.visit(node)

    def _quoted(self, node: ast.Constant) -> None:
        try:
            expression = ast.parse(str(node.value).strip(), mode="eval").body
        except SyntaxError:
            self.names.misuses.append((node.lineno, f"the quoted annotation {node.value!r} is not Python"))
            return
        before = self.when, self.quoted
        self.when, self.quoted = "never", node.lineno
        self._annotation_parts(expression)
        self.when, self.quoted = before


def _arguments(args: ast.arguments) -> list[ast.arg]:
    starred = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *starred]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def bound_by(alias: ast.alias) -> str:
    """Return the name an import binds: `a` for `import a.b`, `c` for `import a.b as c`."""
    return alias.asname or alias.name.split(".")[0]
