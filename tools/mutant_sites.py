"""Where errors can be planted in a source file, and which: the operators of tools/mutants.py.

A mutant replaces one expression or one statement. It keeps the text of everything else, so the difference that a
report shows is the error and nothing more. Texts, annotations, decorators, raised errors and warnings are left alone.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

LAYERS = ("core", "models", "geometry", "landscape", "recurrent", "probes", "dynamics", "exact")
LEFT_OUT = {
    "core/_describe.py": "texts only",
    "core/_machine.py": "memory and processors, no numbers of the theory",
}
BINARY: dict[type, tuple[str, ...]] = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mult: ("/",),
    ast.Div: ("*",),
    ast.FloorDiv: ("*",),
    ast.Mod: ("*",),
    ast.Pow: ("*",),
    ast.BitOr: ("&",),
    ast.BitAnd: ("|",),
}
DROPPED = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
COMPARED: dict[type, tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
COMPARISONS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("sin", "cos"),
    ("sinh", "cosh"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("tril", "triu"),
    ("exp", "expm1"),
    ("log", "log1p"),
    ("real", "imag"),
    ("cumsum", "cumprod"),
    ("sum", "prod"),
    ("less", "greater"),
)
EXCHANGED = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
UNWRAPPED = {"sqrt", "abs", "sorted", "conj", "square", "negative", "diag", "flip", "symmetric", "sign", "reversed"}
COMMUTATIVE = {
    "min",
    "max",
    "minimum",
    "maximum",
    "hypot",
    "logaddexp",
    "add",
    "multiply",
    "isclose",
    "allclose",
    "array_equal",
    "zip",
    "logical_and",
    "logical_or",
    "equal",
    "vdot",
    "isinstance",
    "issubclass",
    "getattr",
    "hasattr",
    "broadcast_shapes",
    "gcd",
    "result_type",
    "promote_types",
}
SILENT_CALLS = {"warn", "field", "TypeVar", "NewType", "ParamSpec", "cast", "StaticField"}
TYPE_NAMES = {
    "Float",
    "Int",
    "Bool",
    "Shaped",
    "Complex",
    "Num",
    "Real",
    "Inexact",
    "Callable",
    "tuple",
    "list",
    "dict",
    "set",
    "frozenset",
    "Literal",
    "Sequence",
    "Mapping",
    "Iterator",
    "Iterable",
    "Annotated",
    "ClassVar",
    "Generic",
    "Protocol",
    "type",
}
SILENT_FUNCTIONS = {"__repr__", "__str__", "_repr_html_", "rows"}
ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.ListComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LARGE, SMALL = 1e4, 1e-4
"""Numbers beyond these are tolerances and guards: changed a thousandfold, where others are doubled."""


@dataclass(frozen=True)
class Mutant:
    """One planted error: `before`, the bytes from `start` to `end` of the file, becomes `after`."""

    path: str
    scope: str
    line: int  # where the innermost statement of a function begins that holds it; 0 outside functions
    operator: str
    start: int
    end: int
    before: str
    after: str
    names: tuple[str, ...] = ()  # what the statement binds, where it stands outside functions
    occurrence: int = 0

    @property
    def name(self) -> str:
        """What stays the same when other parts of the file change."""
        where = f"{self.path}::{self.scope}::{' '.join(self.before.split())} -> {' '.join(self.after.split())}"
        return f"{where} ({self.occurrence})"

    def plant(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


@dataclass(frozen=True)
class Place:
    """Where a walk through a file stands."""

    scope: tuple[str, ...] = ()
    line: int = 0
    inside: bool = False
    names: tuple[str, ...] = ()


def call_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def silent(node: ast.AST) -> bool:
    """Whether nothing is planted in this node and below."""
    match node:
        case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Global() | ast.Nonlocal():
            return True
        case ast.Constant(value=str()) | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.dump(test)
        case ast.Call(func=func):
            return call_name(func) in SILENT_CALLS
        case ast.Subscript(value=value):
            return call_name(value) in TYPE_NAMES
        case ast.FunctionDef(name=name):
            return name in SILENT_FUNCTIONS
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name == "__all__"
    return False


def texts(node: ast.BinOp) -> bool:
    """Whether an operation joins or fills texts, or unites types."""
    ends = (node.left, node.right)
    none = isinstance(node.op, ast.BitOr) and any(isinstance(e, ast.Constant) and e.value is None for e in ends)
    return none or any(
        isinstance(e, ast.JoinedStr) or (isinstance(e, ast.Constant) and isinstance(e.value, str)) for e in ends
    )


class Sites:
    """All sites of one file, each with the errors that can be planted there."""

    def __init__(self, path: str, source: str):
        self.path, self.data, self.sites = path, source.encode(), []
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        tree = ast.parse(source)
        for node in tree.body:
            self.visit(node, Place())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        text = self.data[start:end].decode()
        return text if isinstance(node, (*ATOMS, ast.stmt)) else f"({text})"

    def visit(self, node: ast.AST, place: Place) -> None:
        if silent(node):
            return
        if isinstance(node, ast.stmt):
            if place.inside:
                place = replace(place, line=node.lineno)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                place = replace(
                    place, names=tuple(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
                )
        self.record(node, place, list(self.errors(node)))
        if isinstance(node, (ast.If, ast.While)) and isinstance(node.test, (ast.Name, ast.Attribute, ast.Call)):
            self.record(node.test, place, [("planted not", f"(not {self.text(node.test)})")])
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            place = replace(place, scope=(*place.scope, node.name))
        if isinstance(node, FUNCTIONS):
            first = node.body[min(len(node.body) - 1, ast.get_docstring(node, clean=False) is not None)]
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self.visit(default, replace(place, line=first.lineno, inside=True))
            for child in node.body:
                self.visit(child, replace(place, inside=True))
        elif isinstance(node, ast.ClassDef):
            for child in node.body:
                self.visit(child, replace(place, inside=False, line=0, names=(node.name,)))
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value, place)
        elif isinstance(node, ast.Lambda):
            self.visit(node.body, place)
        else:
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.arguments):
                    self.visit(child, place)

    def record(self, node: ast.AST, place: Place, errors: list[tuple[str, str]]) -> None:
        if errors:
            start, end = self.span(node)
            before, scope = self.data[start:end].decode(), ".".join(place.scope) or "module"
            self.sites.append(
                [Mutant(self.path, scope, place.line, operator, start, end, before, after, place.names)
                 for operator, after in errors if after != before]
            )  # fmt: skip

    def errors(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Every error that can be planted at a node itself, as operator and new text."""
        text = self.text
        match node:
            case ast.BinOp(left=left, op=op, right=right) if not texts(node):
                for sign in BINARY.get(type(op), ()):
                    yield "operator", f"({text(left)} {sign} {text(right)})"
                if isinstance(op, DROPPED):
                    yield "dropped term", text(left)
                    if not isinstance(op, ast.Pow):
                        yield "dropped term", text(right)
                if isinstance(op, ast.MatMult):
                    yield "swapped operands", f"({text(right)} @ {text(left)})"
                if isinstance(op, ast.Sub):
                    yield "swapped operands", f"({text(right)} - {text(left)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield "sign", text(operand)
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                yield "removed not", text(operand)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                parts = [text(left), *map(text, comparators)]
                for i, op in enumerate(ops):
                    for sign in COMPARED[type(op)]:
                        signs = [sign if j == i else COMPARISONS[type(o)] for j, o in enumerate(ops)]
                        yield (
                            "comparison",
                            f"({parts[0]} {' '.join(f'{s} {p}' for s, p in zip(signs, parts[1:], strict=True))})",
                        )
            case ast.BoolOp(op=op, values=values):
                word, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield "operator", f"({f' {other} '.join(map(text, values))})"
                for k in range(len(values)):
                    yield "dropped term", f"({f' {word} '.join(text(v) for j, v in enumerate(values) if j != k)})"
            case ast.Constant(value=value):
                yield from (("constant", str(new)) for new in numbers(value))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield "swapped branches", f"({text(orelse)} if {text(test)} else {text(body)})"
            case ast.Call(func=func, args=args):
                yield from self.calls(node, call_name(func), args)
            case ast.Attribute(value=value, attr="T" | "mT"):
                yield "dropped transpose", text(value)
            case ast.AugAssign(target=target, op=op, value=value) if not texts(ast.BinOp(target, op, value)):
                sign = {ast.Add: "-=", ast.Sub: "+=", ast.Mult: "/=", ast.Div: "*="}.get(type(op))
                if sign:
                    start, end = self.span(value)
                    yield "operator", f"{text(target)} {sign} {self.data[start:end].decode()}"
            case ast.Expr(value=ast.Call(func=func)) if call_name(func) not in SILENT_CALLS:
                yield "dropped statement", "pass"

    def calls(self, node: ast.Call, name: str, args: list[ast.expr]) -> Iterator[tuple[str, str]]:
        start, end = self.span(node)
        whole = self.data[start:end].decode()
        if name in EXCHANGED:
            tail = self.span(node.func)[1] - start
            yield "exchanged function", whole[: tail - len(name)] + EXCHANGED[name] + whole[tail:]
        if any(isinstance(a, ast.Starred) for a in args):
            return
        if name in UNWRAPPED and len(args) == 1 and not node.keywords:
            yield "dropped function", self.text(args[0])
        if len(args) > 1 and name not in COMMUTATIVE and ast.dump(args[0]) != ast.dump(args[1]):
            first, second = args[:2]
            if call_name(first) != "where" and not any(silent(a) for a in (first, second)):
                (a, b), (c, d) = self.span(first), self.span(second)
                parts = self.data[start:a], self.data[c:d], self.data[b:c], self.data[a:b], self.data[d:end]
                yield "swapped arguments", b"".join(parts).decode()


def numbers(value: object) -> tuple[object, ...]:
    """What a number of a source may become."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1) if value else (1,)
    if isinstance(value, float):
        if value == 0.0:
            return (1.0,)
        if abs(value) >= LARGE or abs(value) <= SMALL:
            return (value * 1e3, value / 1e3)
        return (2 * value, value / 2)
    return ()


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def mutants(sources: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """Draw `count` mutants, no two of them at one site: the same ones for a seed while their statements stay."""
    drawn = []
    for path, source in sources.items():
        same: Counter[tuple[str, str]] = Counter()
        for site in Sites(path, source).sites:
            if not site:
                continue
            key = (site[0].scope, " ".join(site[0].before.split()))
            occurrence, same[key] = same[key], same[key] + 1
            rank = digest(seed, path, *key, occurrence)
            chosen = site[int(rank[:8], 16) % len(site)]
            drawn.append((rank, replace(chosen, occurrence=occurrence)))
    drawn.sort(key=lambda pair: pair[0])
    kept, trees = [], {path: ast.dump(ast.parse(source)) for path, source in sources.items()}
    for _, mutant in drawn:
        try:
            planted = ast.parse(mutant.plant(sources[mutant.path]))
        except SyntaxError:  # a replacement that is no Python where it stands, such as a pattern of `match`
            continue
        if ast.dump(planted) != trees[mutant.path]:
            kept.append(mutant)
        if len(kept) == count:
            break
    return kept


class Counted(ast.NodeTransformer):
    """Makes every statement of a function count itself when it runs."""

    def __init__(self, number: Callable[[int], int]):
        self.number, self.depth = number, 0

    def generic_visit(self, node: ast.AST) -> ast.AST:
        function = isinstance(node, FUNCTIONS)
        self.depth += function
        super().generic_visit(node)
        for part in ("body", "orelse", "finalbody"):
            block = getattr(node, part, None)
            if self.depth and isinstance(block, list) and not isinstance(node, ast.ClassDef):
                setattr(node, part, self.counted(node, part, block))
        self.depth -= function
        return node

    def counted(self, node: ast.AST, part: str, block: list[ast.stmt]) -> list[ast.stmt]:
        lines: list[ast.stmt] = []
        for i, statement in enumerate(block):
            text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (text and i == 0 and part == "body" and isinstance(node, FUNCTIONS)):
                lines.append(ast.parse(f"_hit_({self.number(statement.lineno)})").body[0])
            lines.append(statement)
        return lines


def counted(source: str, number: Callable[[int], int]) -> str:
    """The same program, which hands `number(line)` to `_hit_` before each statement of a function."""
    tree = Counted(number).visit(ast.parse(source))
    first = 0
    while first < len(tree.body):
        node = tree.body[first]
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
            break
        first += 1
    tree.body.insert(first, ast.parse("from deeplinear_hits import hit as _hit_").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def lines_with(source: str, names: set[str]) -> set[int]:
    """First lines of the statements of functions in which one of the names occurs."""
    found = set()

    def walk(node: ast.AST, line: int, inside: bool) -> None:
        if isinstance(node, ast.stmt) and inside:
            line = node.lineno
        if inside and isinstance(node, (ast.Name, ast.Attribute)) and call_name(node) in names:
            found.add(line)
        for child in ast.iter_child_nodes(node):
            walk(child, line, inside or isinstance(node, FUNCTIONS))

    walk(ast.parse(source), 0, False)
    return found
