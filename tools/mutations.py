"""The small changes that `tools/mutants.py` makes to a module: each must make a test fail.

Changed are comparisons (their limit, their sense), conditions (negated, or one part left out), numbers and truth
values, arithmetic, `min`/`max` and `any`/`all`, returned values, and statements that only have an effect (left out).

Unchanged are pictures (functions named ``draw…``), texts, messages of errors, logging, types, decorators, default
values and fields of classes.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

__all__ = ["Mutant", "find_mutants"]

#: Comparison -> the comparisons that replace it: the first has another limit, the second the opposite sense.
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Parts of the syntax tree that stay as they are.
_KEPT_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "type_comment"})
_KEPT_NODES: Final = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
_LOGGERS: Final = frozenset({"_LOG", "_log", "log", "logger", "warnings"})
#: Characters around a change that its description shows.
_AROUND: Final = 30


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module.

    Attributes:
        module: path of the module, relative to the root of the project.
        function: qualified name of the function that encloses the change, without functions in functions; empty where
            a constant of the module is changed.
        change: the change as text, such as ``a [< to <=] b``. No other change of the function has this text.
        lines: first and last line of the changed expression or statement.
        statement: first and last line of the statement around it.
        first_line: first line of the function with its decorators, or of the statement that sets the constant.
    """

    module: str
    function: str
    change: str
    lines: tuple[int, int]
    statement: tuple[int, int]
    first_line: int
    _tree: ast.Module
    _place: _Place
    _replacement: ast.AST

    @property
    def name(self) -> str:
        """Return the text that names the mutant among those of its module."""
        return f"{self.function or '(module)'}: {self.change}"

    def compile(self, file: str) -> CodeType:
        """Compile the changed code.

        Args:
            file: the file name that the code gets, that of the unchanged module.

        Returns:
            The code of the function, or, for a constant of the module, the code of the statement that sets it.
        """
        original = self._place.replace(self._replacement)
        try:
            if not self.function:
                body = [node for node in self._tree.body if node.lineno == self.first_line]
                return compile(ast.Module(body, []), file, "exec")
            found = _find_code(compile(self._tree, file, "exec"), self.function, self.first_line)
        finally:
            self._place.replace(original)
        if found is None:
            raise ValueError(f"{self.module} has no function {self.function}")
        return found


def find_mutants(module: str, text: str) -> list[Mutant]:
    """Return the mutants of a module in the order of its lines.

    Args:
        module: path of the module, relative to the root of the project.
        text: its source text.
    """
    tree = ast.parse(text)
    found: list[Mutant] = []
    seen: Counter[tuple[str, str]] = Counter()
    for scope in _scopes(tree.body, ""):
        for place, statement, above in _places(scope.node, scope.node, None):
            original = place.node
            for replacement in _replacements(original, place):
                change = _describe(place, replacement, above)
                seen[scope.name, change] += 1
                number = seen[scope.name, change]
                change = change if number == 1 else f"{change} #{number}"
                span, around = _span(original), _span(statement)
                found.append(Mutant(module, scope.name, change, span, around, scope.line, tree, place, replacement))
    return found


@dataclass(frozen=True, slots=True)
class _Scope:
    """A function outside other functions, or a statement that sets a constant of the module (without a name)."""

    name: str
    node: ast.stmt
    line: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A field of a node of the syntax tree, and the position in it if it holds a list."""

    parent: ast.AST
    field: str
    position: int | None

    @property
    def node(self) -> ast.AST:
        """Return what is there now."""
        value = getattr(self.parent, self.field)
        found: ast.AST = value if self.position is None else value[self.position]
        return found

    def replace(self, node: ast.AST) -> ast.AST:
        """Put another node there, and return the former one."""
        former = self.node
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node
        return former


def _scopes(body: list[ast.stmt], prefix: str) -> Iterator[_Scope]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.lstrip("_").startswith("draw"):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if not any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list):
                yield _Scope(prefix + node.name, node, line)
        elif isinstance(node, ast.ClassDef):
            yield from _scopes(node.body, f"{prefix}{node.name}.")
        elif not prefix and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield _Scope("", node, node.lineno)


def _places(node: ast.AST, statement: ast.stmt, above: ast.AST | None) -> Iterator[tuple[_Place, ast.stmt, ast.AST]]:
    """Yield each place below a node with its statement and the expression or statement that describes it best."""
    for field, value in ast.iter_fields(node):
        if field in _KEPT_FIELDS or (isinstance(node, ast.keyword) and node.arg == "strict"):
            continue
        for position, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, _KEPT_NODES) or _is_kept(child):
                continue
            own = child if isinstance(child, ast.stmt) else statement
            yield _Place(node, field, position if isinstance(value, list) else None), own, node
            yield from _places(child, own, node)


def _is_kept(node: ast.AST) -> bool:
    """Tell whether a node is a docstring or a call that logs."""
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if not isinstance(call, ast.Call):
        return isinstance(call, ast.Constant)
    return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in _LOGGERS


def _replacements(node: ast.AST, place: _Place) -> Iterator[ast.AST]:
    """Yield what replaces a node, one after the other."""
    yield from _other_statement(node)
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                ops = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                yield ast.copy_location(ast.Compare(node.left, ops, node.comparators), node)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and not _is_text(node) and type(node.op) in _ARITHMETIC:
        yield ast.copy_location(ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right), node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield ast.copy_location(ast.Constant(value), node)
    elif isinstance(node, ast.Name) and place.field == "func" and node.id in _CALLS:
        yield ast.copy_location(ast.Name(_CALLS[node.id], node.ctx), node)
    elif place.field == "test" and not isinstance(node, ast.Constant):
        yield ast.copy_location(ast.UnaryOp(ast.Not(), node), node)  # type: ignore[arg-type]
    if place.field == "ifs":
        yield ast.copy_location(ast.Constant(True), node)


def _other_statement(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return):
        if node.value is not None and not isinstance(node.value, ast.Constant):
            yield ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), node)), node)
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in _ARITHMETIC:
            yield ast.copy_location(ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value), node)
    elif isinstance(node, ast.Expr | ast.Continue | ast.Break | ast.Delete) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    ):
        yield ast.copy_location(ast.Pass(), node)


def _is_text(node: ast.BinOp) -> bool:
    """Tell whether an operand is a literal text: another operator would only raise an error of types."""
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )


def _describe(place: _Place, replacement: ast.AST, above: ast.AST) -> str:
    """Return the change as text: the words before it, ``[old to new]``, the words after it."""
    if isinstance(place.node, ast.BoolOp):
        return f"[{_short(ast.unparse(place.node))} to {_short(ast.unparse(replacement))}]"
    shown = above if isinstance(above, ast.expr) else place.node
    old = _words(shown)
    if shown is above:
        former = place.replace(replacement)
        new = _words(above)
        place.replace(former)
    else:
        new = _words(replacement)
    least = min(len(old), len(new))
    start = next((at for at in range(least) if old[at] != new[at]), least)
    end = next((at for at in range(least - start) if old[-1 - at] != new[-1 - at]), least - start)
    before, after = "".join(old[:start]), "".join(old[len(old) - end :])
    middle = f"[{_short(''.join(old[start : len(old) - end]))} to {_short(''.join(new[start : len(new) - end]))}]"
    before = before if len(before) <= _AROUND else f"…{before[-_AROUND:].lstrip()}"
    after = after if len(after) <= _AROUND else f"{after[:_AROUND].rstrip()}…"
    return before + middle + after


def _words(node: ast.AST) -> list[str]:
    return re.findall(r"\w+|\s+|[<>=!]+|[^\w\s]", " ".join(ast.unparse(node).split()))


def _short(text: str) -> str:
    return text if len(text) <= 2 * _AROUND else f"{text[:_AROUND]}…{text[-_AROUND:]}"


def _span(node: ast.AST) -> tuple[int, int]:
    """Return the first and the last line of a node, without the statements that it holds."""
    first = getattr(node, "lineno", 0)
    body = getattr(node, "body", None)
    if isinstance(node, ast.stmt) and isinstance(body, list):
        return first, max(first, body[0].lineno - 1)
    return first, getattr(node, "end_lineno", None) or first


def _find_code(code: CodeType, function: str, first_line: int) -> CodeType | None:
    if code.co_qualname == function and code.co_firstlineno == first_line:
        return code
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return next((found for each in inner if (found := _find_code(each, function, first_line))), None)
