"""What a saved statement would do when its module is imported: the calls and class-body statements that may not stand.

Importing the library must define things and nothing else. Constants may be computed from literals with the pure calls
listed here; a function body is not looked at, since it runs when somebody calls it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .scopes import LIBRARY

# fmt: off
BUILTIN_CALLS = frozenset({
    "abs", "bool", "bytes", "classmethod", "complex", "dict", "dict.fromkeys", "enumerate", "float", "frozenset", "int",
    "len", "list", "max", "min", "property", "range", "reversed", "round", "set", "slice", "sorted", "staticmethod",
    "str", "str.maketrans", "sum", "tuple", "zip",
})
# fmt: on
CALLS = frozenset(
    {
        "collections.namedtuple",
        "dataclasses.field",
        "dataclasses.make_dataclass",
        "enum.auto",
        "functools.partial",
        "re.compile",
        "textwrap.dedent",
        "types.MappingProxyType",
    }
)
MODULES = ("math", "typing")
# Methods that read a constant the module has already made.
READERS = frozenset({"get", "items", "keys", "values"})


@dataclass(frozen=True)
class Callees:
    """What a call at import time may name: imports by bound name, the module's names and classes, the library's."""

    imports: dict[str, str]
    own: frozenset[str]
    classes: frozenset[str]
    library_classes: frozenset[str]


def import_time_faults(node: ast.stmt, callees: Callees) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for everything in a top-level statement that runs more than a definition on import."""
    visitor = _Visitor(callees)
    visitor.visit(node)
    yield from visitor.faults


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for such an expression, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


class _Visitor(ast.NodeVisitor):
    def __init__(self, callees: Callees) -> None:
        self.callees = callees
        self.faults: list[tuple[int, str]] = []

    def visit_Call(self, node: ast.Call) -> None:
        if not self._allowed(node):
            name = ast.unparse(node.func)
            self.faults.append((node.lineno, f"`{name}(…)` runs code on import: wrap it in a function"))
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._decorators(node.decorator_list)
        self._defaults(node.args)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._decorators(node.decorator_list)
        for base in [*node.bases, *node.keywords]:
            self.visit(base)
        for index, child in enumerate(node.body):
            if _belongs_in_class(child, index == 0):
                self.visit(child)
            else:
                message = f"a statement in the body of class {node.name} runs code on import: wrap it in a method"
                self.faults.append((child.lineno, message))

    def _decorators(self, decorators: list[ast.expr]) -> None:
        for decorator in decorators:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not dotted(called):
                message = f"decorator `{ast.unparse(decorator)}` runs code on import: use a name or a call of one"
                self.faults.append((decorator.lineno, message))
            if isinstance(decorator, ast.Call):
                for argument in [*decorator.args, *decorator.keywords]:
                    self.visit(argument)

    def _defaults(self, args: ast.arguments) -> None:
        for default in [*args.defaults, *args.kw_defaults]:
            if default is not None:
                self.visit(default)

    def _allowed(self, node: ast.Call) -> bool:
        if _is_text_method(node.func):
            return True
        name = dotted(node.func)
        root, _, rest = name.partition(".")
        if root == LIBRARY:
            return rest in self.callees.library_classes or self._reads_constant(node.func)
        if root in self.callees.imports:
            target = self.callees.imports[root] + (f".{rest}" if rest else "")
            return (
                target in CALLS or target.split(".")[0] in MODULES or (target == "torch.tensor" and _is_literal(node))
            )
        if root in self.callees.own:
            return name in self.callees.classes or self._reads_constant(node.func)
        return name in BUILTIN_CALLS

    def _reads_constant(self, function: ast.expr) -> bool:
        """Whether this is `CONSTANT.items` or `arl.CONSTANT.items`, on a name that is no class."""
        if not isinstance(function, ast.Attribute) or function.attr not in READERS:
            return False
        base = dotted(function.value)
        name = base.removeprefix(f"{LIBRARY}.")
        known = self.callees.library_classes if base != name else self.callees.classes
        return "." not in name and name not in known


def _is_text_method(function: ast.expr) -> bool:
    """Whether this is a method of a string literal, or of what such a method returned."""
    while isinstance(function, ast.Attribute):
        value = function.value
        if isinstance(value, ast.JoinedStr) or (
            isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)
        ):
            return True
        if not isinstance(value, ast.Call):
            return False
        function = value.func
    return False


def _is_literal(node: ast.Call) -> bool:
    try:
        for argument in node.args:
            ast.literal_eval(argument)
    except (ValueError, TypeError):
        return False
    return not any(isinstance(child, ast.Call) for keyword in node.keywords for child in ast.walk(keyword.value))


def _belongs_in_class(node: ast.stmt, is_first: bool) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Pass):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and (is_first or node.value.value is Ellipsis)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
