"""Every public name says what it is; what takes arguments, fails or has fields says that too.

The names are those of the root and of each public room. An overriding method may leave it to the method that
it overrides.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from types import FunctionType
from typing import Any

import pytest

import tl_integrations

ROOMS = ("language", "schedule", "storage", "reporting", "callbacks", "launch", "errors", "options")
SECTIONS = r"(?:Args|Attributes|Returns|Yields|Raises|Example|Source):"
FURTHER = (
    # Not listed by name, but what the listed ones give.
    "tl_integrations.capture.events:Event",
    "tl_integrations.capture.events:Moment",
    "tl_integrations.capture.events:Record",
    "tl_integrations.capture.modules:Module",
    "tl_integrations.capture.modules:ModuleCall",
    "tl_integrations.capture.protocols:CapturedStep",
    "tl_integrations.capture.protocols:Outcome",
    "tl_integrations.capture.protocols:Sink",
    "tl_integrations.capture.protocols:SinkContext",
    "tl_integrations.capture.protocols:SinkFactory",
    "tl_integrations.capture.protocols:SinkNeeds",
    "tl_integrations.capture.captures:CaptureSummary",
    "tl_integrations.storage.recovery:RecoveredRecording",
    "tl_integrations.storage.runs:Runs",
)


def public() -> dict[str, Any]:
    """Every public object once, by its shortest name."""
    found: dict[str, Any] = {f"tl.{name}": getattr(tl_integrations, name) for name in tl_integrations.__all__}
    for room in ROOMS:
        module = importlib.import_module(f"tl_integrations.{room}")
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        for name in getattr(module, "__all__", own):
            found.setdefault(f"{room}.{name}", getattr(module, name))
    for path in FURTHER:
        module_name, _, name = path.partition(":")
        found[name] = getattr(importlib.import_module(module_name), name)
    once = {id(value): (name, value) for name, value in reversed(found.items()) if not name.startswith("_")}
    return dict(once.values())


def parameters(function: Callable[..., Any]) -> set[str]:
    """What the function itself names, whatever signature it shows."""
    code = inspect.unwrap(function).__code__
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]) - {"self", "cls"}


def members(name: str, cls: type) -> Iterator[tuple[str, Any]]:
    """A class's own public methods and properties, and its `__init__`."""
    for attribute, value in vars(cls).items():
        if attribute.startswith("_"):
            continue
        if isinstance(value, FunctionType | classmethod | staticmethod | property | cached_property):
            yield f"{name}.{attribute}", getattr(value, "__func__", value)


def described() -> Iterator[tuple[str, Any, str]]:
    """Name, object and docstring of everything that must have one; inherited docstrings count."""
    for name, value in public().items():
        if inspect.isclass(value):
            yield name, value, value.__doc__ or ""
            for member, found in members(name, value):
                yield (
                    member,
                    found,
                    inspect.getdoc(getattr(value, member.rpartition(".")[2])) or inherited(value, member),
                )
        elif callable(value) or inspect.ismodule(value):
            yield name, value, value.__doc__ or ""


def inherited(cls: type, member: str) -> str:
    attribute = member.rpartition(".")[2]
    docs = (inspect.getdoc(vars(base)[attribute]) for base in cls.__mro__ if attribute in vars(base))
    return next((doc for doc in docs if doc), "")


def functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Name, function and docstring of what can be called; a class answers for its `__init__`."""
    for name, value, doc in described():
        if isinstance(value, FunctionType) and (value.__doc__ or not doc):
            yield name, value, doc
        elif inspect.isclass(value) and isinstance(vars(value).get("__init__"), FunctionType):
            if getattr(value, "_is_protocol", False):
                continue
            if not dataclasses.is_dataclass(value):
                yield name, vars(value)["__init__"], doc


def section(doc: str, title: str) -> str:
    """The text of one section, up to the next one; empty where there is none."""
    found = re.search(rf"^ *{title}:(.*?)(?=^ *{SECTIONS}|\Z)", doc, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def raised_names(function: Callable[..., Any]) -> set[str]:
    """What a function's own text raises, by the names of the classes."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None)
    named = (call.func for call in calls if isinstance(call, ast.Call))
    return {name.id for name in named if isinstance(name, ast.Name) and name.id.endswith("Error")}


def field_names(cls: type) -> Iterator[tuple[str, bool]]:
    """Each public field of a dataclass, and whether a docstring stands under it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    for statement, after in zip(body.body, [*body.body[1:], ast.Pass()]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if not statement.target.id.startswith("_"):
                told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                yield statement.target.id, told


PUBLIC = public()
DESCRIBED = list(described())
FUNCTIONS = list(functions())
RECORDS = [(name, value) for name, value in PUBLIC.items() if dataclasses.is_dataclass(value)]


def test_the_names_that_are_looked_at_are_many() -> None:
    # A test over nothing would pass.
    assert len(DESCRIBED) > 250
    assert len(FUNCTIONS) > 100
    assert len(RECORDS) > 20


@pytest.mark.parametrize(("name", "doc"), [(name, doc) for name, _, doc in DESCRIBED], ids=lambda v: v[:40])
def test_a_public_name_has_a_docstring(name: str, doc: str) -> None:
    assert doc.strip(), f"{name} has no docstring"


@pytest.mark.parametrize(("name", "function", "doc"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_every_parameter_stands_under_args(name: str, function: Callable[..., Any], doc: str) -> None:
    # "The options are those of `Recorder`" is said once.
    elsewhere = [PUBLIC[f"tl.{other}"].__doc__ for other in re.findall(r"those\s+of `(\w+)`", doc)]
    text = "".join(section(each, "Args") for each in (doc, *elsewhere))
    missing = parameters(function) - set(re.findall(r"^ *\*{0,2}(\w+):", text, re.MULTILINE))
    assert not missing, f"{name} does not say what {missing} are"


@pytest.mark.parametrize(("name", "function", "doc"), FUNCTIONS, ids=[name for name, _, _ in FUNCTIONS])
def test_every_error_that_a_function_raises_is_named(
    name: str, function: Callable[..., Any], doc: str
) -> None:
    missing = {error for error in raised_names(function) if error not in section(doc, "Raises")}
    assert not missing, f"{name} raises {missing} and does not say so"


@pytest.mark.parametrize(("name", "cls"), RECORDS, ids=[name for name, _ in RECORDS])
def test_every_field_of_a_record_is_described(name: str, cls: type) -> None:
    told = section(cls.__doc__ or "", "Args") + section(cls.__doc__ or "", "Attributes")
    missing = [field for field, below in field_names(cls) if not below and f"{field}:" not in told]
    assert not missing, f"{name} does not say what {missing} are"
