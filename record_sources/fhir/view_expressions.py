"""FHIRPath expressions of SQL on FHIR ViewDefinitions: parsed once, checked, and evaluated with FHIR R4's types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any, cast

from antlr4 import CommonTokenStream, InputStream, ParseTreeWalker, Token
from antlr4.error.ErrorListener import ErrorListener
from fhirpathpy.parser.ASTPathListener import ASTPathListener
from fhirpathpy.parser.generated.FHIRPathLexer import FHIRPathLexer
from fhirpathpy.parser.generated.FHIRPathParser import FHIRPathParser

from record_sources.errors import SourceError
from record_sources.fhir.view_boundaries import boundary

# The library has no types, and pyright takes the members of a module imported so for Any.
_engine = import_module("fhirpathpy.engine")
_invocations = import_module("fhirpathpy.engine.invocations")
_clock = import_module("fhirpathpy.engine.invocations.constants").constants
_nodes = import_module("fhirpathpy.engine.nodes")
_content: Callable[[Any], Any] = import_module("fhirpathpy.engine.util").get_data
_R4: dict[str, Any] = import_module("fhirpathpy.models").models["r4"]
# An instant is a dateTime of full precision. The library would compare it as text, without its zone.
_TEMPORAL: dict[str, Any] = _nodes.TypeInfo.type_to_class_with_check_string
_TEMPORAL["instant"] = _nodes.FP_DateTime

# Names that FHIRPath and the specification of views define. A view adds its constants.
_VARIABLES: Mapping[str, Any] = {
    "context": None,
    "resource": None,
    "rootResource": None,
    "rowIndex": 0,
    "ucum": "http://unitsofmeasure.org",
    "sct": "http://snomed.info/sct",
    "loinc": "http://loinc.org",
}
VARIABLES = frozenset(_VARIABLES)
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_TIMES = "which gives other rows at another time. Write the day into the view as a constant"
_REFUSED = {"now": _TIMES, "today": _TIMES, "timeOfDay": _TIMES, "trace": "which prints values of patients. Remove it"}


def constant_node(kind: str, content: Any) -> Any:
    """Return a constant of a view. Days and times become elements of their FHIR type, so that they compare as such."""
    return _nodes.ResourceNode(content, kind) if kind in _TEMPORAL else content


def plain(element: Any) -> Any:
    """Return an element as FHIR's JSON has it. Numbers with a decimal point are Decimal."""
    content = _content(element)
    return str(content) if isinstance(content, _nodes.FP_Type) else content


@dataclass(frozen=True, repr=False)
class Expression:
    """One parsed expression."""

    text: str
    _tree: dict[str, Any]

    def elements(self, focus: Any, resource: Mapping[str, Any], variables: Mapping[str, Any]) -> list[Any]:
        """Return the elements that the expression selects, seen from `focus`, an element of `resource`.

        Raises:
            SourceError: the expression does not fit this resource. The text has no value of it.
        """
        # The library keeps the model of types in a class.
        _nodes.TypeInfo.model = _R4
        _clock.reset()
        names = {**_VARIABLES, "context": focus, "resource": resource, "rootResource": resource, **variables}
        context = {
            "dataRoot": [focus],
            "$this": [focus],
            "vars": names,
            "model": _R4,
            "userInvocationTable": _FUNCTIONS,
        }
        try:
            selected: list[Any] = _engine.do_eval(context, [focus], self._tree)
        # The library raises plain exceptions, and their texts may show values.
        except Exception:  # noqa: BLE001
            raise SourceError(
                f"the FHIRPath expression {self.text} cannot be evaluated. A part of it has several values where one "
                "is needed, or another type than its functions take"
            ) from None
        return [element for element in selected if not _is_extension_only(element)]


def parse_expression(text: str, variables: frozenset[str]) -> Expression:
    """Return a parsed expression.

    Args:
        text: in FHIRPath.
        variables: names that may follow `%`.

    Raises:
        SourceError: it is no FHIRPath, or it uses a function or a name after `%` that does not exist.
    """
    lexer = FHIRPathLexer(InputStream(text))
    parser = FHIRPathParser(CommonTokenStream(lexer))
    for part in (lexer, parser):
        part.removeErrorListeners()
        part.addErrorListener(_Refusal(text))
    listener = ASTPathListener()
    try:
        tree = parser.expression()
        # The rule stops at the first token that does not continue an expression.
        if cast("Any", parser.getTokenStream()).LA(1) != Token.EOF:
            raise SourceError(f"{text} is no FHIRPath expression. Its end is not understood")
        ParseTreeWalker().walk(listener, tree)
    except RecursionError:
        raise SourceError("a FHIRPath expression is nested too deeply") from None
    root: dict[str, Any] = cast("Any", listener).parentStack[0]["children"][0]
    for node in _walk(root):
        _check_names(node, text, variables)
        if node["type"] == "StringLiteral":
            # The library would leave out escapes with letters among their digits.
            node["text"] = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), node["text"])
    return Expression(text, root)


class _Refusal(ErrorListener):
    def __init__(self, text: str) -> None:
        self._text = text

    def syntaxError(  # noqa: N802
        self, recognizer: Any, offendingSymbol: Any, line: int, column: int, msg: str, e: Any
    ) -> None:
        raise SourceError(f"{self._text} is no FHIRPath expression. See its character {column + 1}")


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.get("children", ()))


def _check_names(node: dict[str, Any], text: str, variables: frozenset[str]) -> None:
    if node["type"] == "Functn":
        name = node["children"][0]["text"]
        if name in _REFUSED:
            raise SourceError(f"{text} uses the function {name}, {_REFUSED[name]}")
        if name not in _invocations.invocation_registry and name not in _FUNCTIONS:
            raise SourceError(f"{text} uses the function {name}, which is not known")
    elif node["type"] == "ExternalConstantTerm":
        name = node["children"][0]["children"][0]["text"].strip("`'\"")
        if name not in variables:
            raise SourceError(f"{text} uses %{name}, but the view has no constant of that name")


def _is_extension_only(element: Any) -> bool:
    """Return whether an element has extensions in place of a value, as a date of birth that is not known."""
    content = _content(element)
    return isinstance(content, dict) and list(cast("dict[str, Any]", content)) == ["extension"]


def _filtered(context: dict[str, Any], elements: list[Any], criterion: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the elements for which the criterion is true. The library would take each false element for true."""
    matches: list[Any] = []
    for place, element in enumerate(elements):
        context["$index"] = place
        answer = [_content(part) for part in criterion(element)]
        if len(answer) > 1:
            raise ValueError("several values")
        # One value that is no Boolean stands for true, as the language has it.
        if answer and answer[0] is not False:
            matches.append(element)
    return matches


def _exists(context: dict[str, Any], elements: list[Any], criterion: Callable[[Any], list[Any]] | None = None) -> bool:
    return bool(elements if criterion is None else _filtered(context, elements, criterion))


def _extension(_context: Any, elements: list[Any], address: str) -> list[Any]:
    """Return all extensions with an address. The library would return the first."""
    return [
        _nodes.ResourceNode(extension, "Extension")
        for element in elements
        if isinstance(content := _content(element), dict)
        for extension in cast("dict[str, Any]", content).get("extension", ())
        if extension.get("url") == address
    ]


def _aggregated(function: Callable[[list[Any]], Any]) -> Callable[[Any, list[Any]], Any]:
    """Return a function over the values of elements, which the library would not unpack. Of none, there is none."""

    def aggregate(_context: Any, elements: list[Any]) -> Any:
        return function([_content(element) for element in elements]) if elements else []

    return aggregate


def _mean(numbers: list[Any]) -> Decimal:
    return Decimal(sum(numbers)) / len(numbers)


def _resource_keys(_context: Any, elements: list[Any]) -> list[Any]:
    return [content["id"] for element in elements if "id" in (content := _content(element))]


def _reference_keys(_context: Any, elements: list[Any], resource: Any = None) -> list[str]:
    """Return the identifiers that relative references name. References of another form give none."""
    keys: list[str] = []
    for element in elements:
        content = _content(element)
        reference: Any = cast("dict[str, Any]", content).get("reference") if isinstance(content, dict) else None
        parts = reference.split("/_history/")[0].split("/") if isinstance(reference, str) else []
        if len(parts) >= 2 and (resource is None or resource.name == parts[-2]):
            keys.append(parts[-1])
    return keys


def _single(_context: Any, elements: list[Any]) -> list[Any]:
    if len(elements) > 1:
        raise ValueError("several elements")
    return elements


def _join(_context: Any, elements: list[Any], separator: str = "") -> str:
    """Return texts joined. No element gives an empty text, as the specification's tests have it."""
    return separator.join([_text(element) for element in elements])


def _text(element: Any) -> str:
    content = _content(element)
    if not isinstance(content, str):
        raise TypeError("join takes texts")
    return content


def _bound(high: bool) -> Callable[[Any, list[Any]], list[Any]]:
    def bound(_context: Any, elements: list[Any]) -> list[Any]:
        kinds = [getattr(_nodes.TypeInfo.from_value(element), "name", "") for element in elements]
        found = (boundary(_content(element), kind, high) for element, kind in zip(elements, kinds, strict=True))
        return [limit for limit in found if limit is not None]

    return bound


# The two functions of the specification of views, and what the library lacks or does otherwise than FHIRPath.
_FUNCTIONS: dict[str, dict[str, Any]] = {
    "getResourceKey": {"fn": _resource_keys},
    "getReferenceKey": {"fn": _reference_keys, "arity": {0: [], 1: ["TypeSpecifier"]}},
    "where": {"fn": _filtered, "arity": {1: ["Expr"]}},
    "exists": {"fn": _exists, "arity": {0: [], 1: ["Expr"]}},
    "extension": {"fn": _extension, "arity": {1: ["String"]}},
    "sum": {"fn": _aggregated(sum)},
    "min": {"fn": _aggregated(min)},
    "max": {"fn": _aggregated(max)},
    "avg": {"fn": _aggregated(_mean)},
    "join": {"fn": _join, "arity": {0: [], 1: ["String"]}},
    "single": {"fn": _single},
    "lowBoundary": {"fn": _bound(high=False)},
    "highBoundary": {"fn": _bound(high=True)},
}
