"""Check the project's own style rules: ``python tools/house.py`` prints violations and exits with 1 if there are any.

The rules:

- Modules and functions do not exceed a number of lines.
- Each module has a literal list ``__all__`` of its public names.
- No loop searches the list of a schema's names.
- No test assigns to a constant of the project.
- The number of look-ups of options outside `lakeformat.config` never rises, nor do the counts of `RATCHETS`.
- The number of variables and parameters with a name of `VAGUE_NAMES` never rises, nor that of long signatures.
- Docstrings and comments do not contain the phrases of `PHRASES`.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("lakeformat", "pyspark_lakehouse", "tools")
#: Maximum number of lines of a module.
MODULE_LINES: Final = 600
#: Maximum number of lines of a test module.
TEST_LINES: Final = 600
#: Maximum number of lines of a function, including its signature and docstring.
FUNCTION_LINES: Final = 60
#: Maximum number of places outside `lakeformat.config` that look up an option by its key. When such a place is removed,
#: lower this number; never raise it.
OPTIONS_BY_TEXT: Final = 123
#: Names that do not say what a variable holds, and how many variables and parameters of the package have one. When some
#: get a noun, lower this number; never raise it.
VAGUE_NAMES: Final = frozenset({"at", "each", "found", "known", "left", "one", "wanted"})
VAGUE: Final = 202
#: Most parameters of a function, and the number of functions of `lakeformat` that have more. Commands and public verbs
#: are among them. Lower it when one is split; never raise it.
PARAMETERS: Final = 7
LONG_SIGNATURES: Final = 32
#: Matches phrases that are unclear or hide the subject of a sentence. ``there is no X`` is allowed.
PHRASES: Final = re.compile(
    r"\b(told|tells of|stands|whoever|nobody|of what|but for|as far as|goes by)\b"
    r"|(?<!\bthere )\b(is|are|was|were) no\b(?! (longer|more|later|earlier|greater|smaller|less)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Ratchet:
    """A limit that may only fall: how many places know a fact that one place should know.

    Attributes:
        fact: what the places know.
        pattern: matches a place in a source text.
        rooms: the folders and modules in which the fact belongs. Their places do not count.
        most: number of places in all other modules of the package. When one is removed, lower this number; never
            raise it.
        cure: what to write instead.
    """

    fact: str
    pattern: str
    rooms: tuple[str, ...]
    most: int
    cure: str


_COMPARED: Final = r"(?:==|!=|<=?|>=?)"
#: The facts that too many places know.
RATCHETS: Final = (
    Ratchet(
        "whether the storage has locks",
        r"\bhas_lock\b",
        (
            "lakeformat/storage/",
            "lakeformat/locks/",
            "lakeformat/transaction/order/decisions",
            "lakeformat/transaction/order/claims",
            "lakeformat/transaction/order/commit_order",
        ),
        5,
        "ask the room that orders commits",
    ),
    Ratchet(
        "the kind of an Arrow type",
        r"\btypes\.is_\w",
        ("lakeformat/arrow/",),
        7,
        "ask `kind_of` in lakeformat.arrow.kinds",
    ),
    Ratchet(
        "what a table version means",
        rf"\bconfig(?:\(\))?\.(?:layout_)?version {_COMPARED} |{_COMPARED} [\w.]*\bconfig(?:\(\))?\.version\b"
        rf"|\bversion {_COMPARED} (?:[6-9]|\w*[A-Z]\w*)\b",
        (
            "lakeformat/model/",
            # They compare versions of their own formats.
            *("lakeformat/codec/", "lakeformat/files/", "lakeformat/locks/"),
            # They move tables from a version to a later or earlier one.
            *("lakeformat/services/upgrade/", "lakeformat/cli/services"),
        ),
        0,
        "ask for a trait of the version",
    ),
    Ratchet(
        "what an index type means",
        r"""startswith\(["']GLOBAL_|[!=]= ["'](?:GLOBAL_\w+|BUCKET|INMEMORY)\b""",
        (),
        0,
        "ask for a trait of the index type",
    ),
    Ratchet(
        "that a write deletes its stage",
        r"\.delete_stage\(",
        ("lakeformat/transaction/",),
        3,
        "end the write where all writes end",
    ),
    Ratchet(
        "how a trace of an action is taken back",
        r"\b(?:remove_markers|take_back_deltacommit|take_back_rings)\(",
        (
            "lakeformat/transaction/undo/traces",
            # They define the functions.
            *("lakeformat/transaction/undo/markers", "lakeformat/transaction/upkeep/metadata_commits"),
        ),
        0,
        "go through the rows of TRACES",
    ),
    Ratchet(
        "that services run after a write",
        r"\brun_services_after_write\(",
        ("lakeformat/services/",),
        1,
        "end the write by the verb's class",
    ),
)


@dataclass(frozen=True)
class Module:
    """A Python module of the project.

    Attributes:
        path: its path relative to the project's root.
        text: its source text.
        tree: its syntax tree.
    """

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the syntax tree. Most rules look at them, and a walk costs more than a rule."""
        found: list[ast.AST] = [self.tree]
        for node in found:
            found.extend(ast.iter_child_nodes(node))
        return found

    @property
    def lines(self) -> int:
        """Return the number of lines of the source text."""
        return self.text.count("\n")

    @property
    def name(self) -> str:
        """Return the name in import statements, such as ``lakeformat.table``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules(root: Path, *folders: str) -> list[Module]:
    """Read and parse all modules below these folders of ``root``."""
    found = []
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(str(path.relative_to(root)), text, ast.parse(text)))
    return found


def too_long(module: Module, most: int) -> Iterator[str]:
    """Yield a message if the module has more than ``most`` lines, and one for each function that is too long."""
    if module.lines > most:
        yield f"{module.path} has {module.lines} lines, more than {most}: split it"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines, more than {FUNCTION_LINES}"


def exported(module: Module) -> list[str] | None:
    """Return the names in the module's ``__all__``; None if it is missing or is not a literal list."""
    for node in module.tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            if isinstance(value, ast.List | ast.Tuple) and all(isinstance(each, ast.Constant) for each in value.elts):
                return [str(ast.literal_eval(each)) for each in value.elts]
    return None


def wrong_exports(module: Module, used: frozenset[str]) -> Iterator[str]:
    """Yield a message for each problem of the module's ``__all__``: names that are not defined, or names it lacks.

    Args:
        used: names that other modules import from this one.
    """
    names = exported(module)
    if names is None:
        # Programs and almost empty `__init__` modules need no ``__all__``.
        if module.path.startswith("tools/") or module.path.endswith("__main__.py") or len(module.tree.body) <= 1:
            return
        yield f"{module.path} has no __all__ that is a list of texts"
        return
    defined = set(_defined_names(module))
    for name in names:
        if name not in defined and "__getattr__" not in defined:
            yield f"{module.path}: __all__ names {name}, which is not defined"
    public = {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    offered = {name for name in public if not name.startswith("_")} | (used & defined)
    for name in sorted(offered - set(names)):
        yield (
            f"{module.path}: __all__ lacks {name}"
            if name[0] != "_"
            else f"{module.path}: {name} is private, yet imported"
        )


def _defined_names(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)


def imports(everywhere: list[Module]) -> dict[str, frozenset[str]]:
    """Return a mapping of module name to the names that other modules import from it."""
    names = {module.name for module in everywhere}
    found: dict[str, set[str]] = {}
    for module in everywhere:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module in names:
                own = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in names}
                found.setdefault(node.module, set()).update(own)
    return {name: frozenset(used) for name, used in found.items()}


#: Tests that switch guarantees of the protocol off, to show that a run without them goes wrong.
SWITCHES_OFF: Final = frozenset({"tests/simulation/test_walls.py"})


def set_constants(module: Module) -> Iterator[str]:
    """Yield a message for each ``setattr`` of a test that sets an attribute of a project module.

    Its first argument is a text such as ``"lakeformat.x.Y"``, or an expression that starts with an imported name.
    """
    if "setattr" not in module.text or module.path in SWITCHES_OFF:
        return
    imported = set()
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PROJECT:
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.asname for alias in node.names if alias.asname and alias.name.split(".")[0] in PROJECT}
            imported |= {name for alias in node.names if (name := alias.name.split(".")[0]) in PROJECT}
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
            and node.args
        ):
            first: ast.expr = node.args[0]
            if isinstance(first, ast.Constant) and str(first.value).split(".")[0] in PROJECT:
                yield f"{module.path}:{node.lineno} sets a constant of the project: make it an argument or a setting"
            while isinstance(first, ast.Attribute):
                first = first.value
            if isinstance(first, ast.Name) and first.id in imported:
                yield f"{module.path}:{node.lineno} sets a constant of the project: make it an argument or a setting"


#: Names of the top-level packages of the project.
PROJECT: Final = frozenset({*PACKAGES, "benchmarks"})


def options_by_text(module: Module) -> int:
    """Count the option look-ups in a module: ``options[...]`` or ``x.options[...]`` for any ``x``."""
    found = [
        node
        for node in module.nodes
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "options"
    ]
    return len(found)


def vague_names(module: Module) -> int:
    """Count the variables and parameters of a module whose name is one of `VAGUE_NAMES`."""
    stored = (node.id for node in module.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    named = (node.arg for node in module.nodes if isinstance(node, ast.arg))
    return sum(name in VAGUE_NAMES for name in (*stored, *named))


def long_signatures(module: Module) -> int:
    """Count the functions of a module with more than `PARAMETERS` parameters, without ``self`` and ``cls``."""
    signatures = (node.args for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    listed = ([arg.arg for arg in (*of.posonlyargs, *of.args, *of.kwonlyargs)] for of in signatures)
    return sum(len(names) - (names[:1] in (["self"], ["cls"])) > PARAMETERS for names in listed)


def places(ratchet: Ratchet, everywhere: list[Module]) -> int:
    """Count the places of the package that know the fact of a ratchet and do not belong to its rooms."""
    outside = (m for m in everywhere if m.path.startswith("lakeformat/") and not m.path.startswith(ratchet.rooms))
    return sum(len(re.findall(ratchet.pattern, module.text)) for module in outside)


def _loop_parts(module: Module) -> Iterator[ast.AST]:
    """Yield the expressions and statements that a loop or comprehension evaluates in each iteration."""
    for node in module.nodes:
        if isinstance(node, ast.For):
            yield from node.body
        elif isinstance(node, ast.While):
            yield from (node.test, *node.body)
        elif isinstance(node, ast.DictComp):
            yield from (node.key, node.value, *(test for each in node.generators for test in each.ifs))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield from (node.elt, *(test for each in node.generators for test in each.ifs))


def listed_names(module: Module) -> Iterator[str]:
    """Yield a message for each loop that tests ``x in schema.names`` in its body.

    Such a loop is slow: Arrow creates the list of names each time, and ``in`` searches it from its start.
    """
    found = {
        node.lineno
        for part in _loop_parts(module)
        for node in ast.walk(part)
        if isinstance(node, ast.Compare)
        and not isinstance(node.left, ast.Constant)
        and not ast.unparse(node.left).isupper()
        and any(isinstance(of, ast.In | ast.NotIn) for of in node.ops)
        and any(isinstance(of, ast.Attribute) and of.attr in ("names", "column_names") for of in node.comparators)
    }
    for line in sorted(found):
        yield f"{module.path}:{line} looks a name up in a list in a loop: make a set of the names before it"


def unclear_phrases(module: Module) -> Iterator[str]:
    """Yield a message for each phrase of `PHRASES` in a docstring or a comment."""
    if not PHRASES.search(module.text):  # Spares most modules their tokens.
        return
    prose = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                prose.append((node.body[0].lineno, docstring))
    for line, text in prose:
        for match in PHRASES.finditer(text):
            yield f"{module.path}:{line}: write plainly instead of {match.group()!r}"


def problems(root: Path) -> Iterator[str]:
    """Check all modules, and yield a one-line message for each violation."""
    project_modules, tests, benchmarks = (modules(root, *names) for names in (PACKAGES, ("tests",), ("benchmarks",)))
    used = imports(project_modules)
    for module in project_modules:
        yield from too_long(module, MODULE_LINES)
        yield from wrong_exports(module, used.get(module.name, frozenset()))
        yield from listed_names(module)
    for module in tests:
        yield from too_long(module, TEST_LINES)
        yield from set_constants(module)
    for module in (*project_modules, *tests, *benchmarks):
        yield from unclear_phrases(module)
    outside = (module for module in project_modules if not module.name.startswith("lakeformat.config"))
    looked_up = sum(options_by_text(module) for module in outside)
    if looked_up > OPTIONS_BY_TEXT:
        yield f"{looked_up} places look options up, more than {OPTIONS_BY_TEXT}: parse them into a value of config"
    package = [module for module in project_modules if module.path.startswith("lakeformat/")]
    if (vague := sum(map(vague_names, package))) > VAGUE:
        yield f"{vague} variables have a name that says nothing, more than {VAGUE}: say what they hold"
    if (many := sum(map(long_signatures, package))) > LONG_SIGNATURES:
        yield f"{many} functions have more than {PARAMETERS} parameters, more than {LONG_SIGNATURES}: pass one value"
    for ratchet in RATCHETS:
        if (found := places(ratchet, project_modules)) > ratchet.most:
            yield f"{found} places know {ratchet.fact}, more than {ratchet.most}: {ratchet.cure}"


def main() -> int:
    """Print the violations. Return 1 if there are any."""
    gc.disable()  # The trees live until the end, and each collection would walk all of them.
    found = list(problems(ROOT))
    print("\n".join(found) or "no violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
