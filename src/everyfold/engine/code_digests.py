"""Digests of values of any kind, and of the code that they run, equal in every process.

A checkpoint must not give the scores of code that has changed since. So functions, classes and the
globals that they read are followed and digested, each under a name that an error can show.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from copyreg import dispatch_table
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from threading import Lock, RLock
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, TypeAlias
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from everyfold._typing import AnyArray, Matrix, Params

# An object of any type; what is done depends on the type.
Value: TypeAlias = Any

# Of a module, what its globals are.
Names: TypeAlias = Params


class CheckpointError(ValueError):
    """A checkpoint that cannot be used: of another search, in use, or no checkpoint at all."""


# Numbers of an array that is not contiguous that are copied at a time: 128 MB.
_BLOCK = 2**24

_ATOMS = (type(None), bool, float, complex, str, EllipsisType, NotImplementedType)
_BUILT_IN = (
    *(BuiltinFunctionType, np.ufunc, MemberDescriptorType, GetSetDescriptorType),
    *(MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
)
_CACHING = type(cache(len))
# Types that cannot change a result: locks and caches.
_WITHOUT_MEANING = (type(Lock()), type(RLock()), WeakKeyDictionary, WeakValueDictionary, WeakSet)

# Those that are needed, wherever they are installed.
_PACKAGES = {"everyfold", "numpy", "scipy", "sklearn", "joblib", "numba"}

_OF_MODULES = {"__name__", "__file__", "__doc__", "__spec__", "__loader__", "__package__"}
_OF_MODULES |= {"__builtins__", "__cached__", "__path__"}
_OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"}
_OF_CLASSES |= {"__abstractmethods__", "_abc_impl", "__orig_bases__", "__parameters__"}
_OF_CLASSES |= {"__dataclass_fields__", "__dataclass_params__", "__firstlineno__"}
_OF_CLASSES |= {"__static_attributes__", "__annotate_func__", "__annotations_cache__"}
"""Attributes that Python sets itself; those of dataclasses are in the methods made from them."""


class Digests:
    """Digests of values, and of the code that is reached from them.

    Code of installed packages counts by its name. All other functions, classes and modules, and the
    globals that they read, are digested by what they consist of, each by a name of its own, so that
    one can say which of them differs. Comments, docstrings and line numbers do not count. What
    functions read from files, or find by names that are made while they run, is not seen.

    **Cost**: one reading of all arrays; of a function, a fraction of a millisecond.

    Examples
    --------
    >>> digests = Digests()
    >>> digests.of({"a": [1, 2.0]}) == digests.of({"a": [1, 2.0]}) != digests.of({"a": [1, 3.0]})
    True
    """

    def __init__(self) -> None:
        self.packages: dict[str, str] = {}
        """The versions of installed packages that code was found in."""
        self._known: dict[tuple[int, bool], tuple[object, bytes]] = {}
        self._entered: set[int] = set()
        self._is_whole = False
        """Whether estimators count with what they have learnt."""
        self._names: dict[int, tuple[object, str]] = {}
        self._globals: dict[tuple[int, str], Names] = {}
        self._taken: set[str] = set()
        self._waiting: deque[tuple[str, str, Callable[[], object]]] = deque()
        self._reader = ""

    def of(self, value: object, name: str = "value") -> str:
        """The digest of a value; code that it refers to counts by its name."""
        hasher = blake2b(digest_size=16)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                self._feed(hasher, value)
        except Exception as error:
            raise CheckpointError(
                f"a checkpoint cannot recognise {name}, a {type(value).__name__}, again in another "
                f"process ({_short(error)}); leave checkpoint out, or pass functions and objects "
                "that can be pickled"
            ) from error
        return hasher.hexdigest()

    def code(self) -> dict[str, str]:
        """By name, the digests of all code that was reached and is not in an installed package."""
        found = {}
        while self._waiting:
            name, reader, parts = self._waiting.popleft()
            self._reader = name
            try:
                found[name] = self.of(parts())
            except Exception as error:
                reason = _short(error.__cause__ or error)
                raise CheckpointError(
                    f"a checkpoint cannot tell whether {name} is the same in another process "
                    f"({reason}){f', but {reader} uses it' if reader else ''}; leave checkpoint "
                    "out, or create what cannot be pickled inside the function that uses it"
                ) from error
        return found

    # -- one value of any kind ---------------------------------------------------------------------

    def _feed(self, hasher: blake2b, value: Value) -> None:
        """Add a value to what is hashed: its kind, and then what it consists of."""
        kind = type(value)
        hasher.update(f"{kind.__module__}.{kind.__qualname__}:".encode())
        if kind in _ATOMS:
            hasher.update(f"{value!r};".encode())
        elif kind is int:
            hasher.update(b"%x;" % value)
        elif kind in (bytes, bytearray):
            hasher.update(b"%d;" % len(value) + value)
        elif kind is np.ndarray or isinstance(value, np.memmap):
            self._feed_array(hasher, value)
        elif id(value) in self._entered:  # a value that contains itself
            hasher.update(b"cycle;")
        else:
            if kind.__module__ != "builtins":
                self._referred(kind)
            # Subclasses of containers may do anything, and count as objects.
            is_plain = kind.__module__ in ("builtins", "collections")
            self._entered.add(id(value))
            try:
                if isinstance(value, Mapping | MappingProxyType) and is_plain:
                    items = {self._part(key): item for key, item in value.items()}
                    self._feed_all(hasher, [(key, items[key]) for key in sorted(items)])
                elif isinstance(value, Set) and is_plain:
                    self._feed_all(hasher, sorted(self._part(item) for item in value))
                elif isinstance(value, list | tuple | range | deque) and is_plain:
                    self._feed_all(hasher, value)
                else:
                    hasher.update(self._object(value))
            finally:
                self._entered.discard(id(value))

    def _feed_all(self, hasher: blake2b, items: Iterable[object]) -> None:
        found = list(items)
        hasher.update(f"{len(found)};".encode())
        for item in found:
            self._feed(hasher, item)

    def _feed_array(self, hasher: blake2b, array: AnyArray) -> None:
        hasher.update(f"{array.dtype.str}{array.dtype.names}{array.shape}".encode())
        # Not joblib.hash: it copies a whole array that is not contiguous, and pickles objects,
        # whose code would then not be followed.
        if array.dtype.hasobject:
            self._feed_all(hasher, array.ravel().tolist())
        elif array.flags.c_contiguous or array.ndim < 2:
            hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        else:
            step = max(1, _BLOCK // max(1, array[0].size)) if len(array) else 1
            for k in range(0, len(array), step):
                block = np.ascontiguousarray(array[k : k + step])
                hasher.update(block.reshape(-1).view(np.uint8).data)

    def _part(self, value: object) -> bytes:
        hasher = blake2b(digest_size=16)
        self._feed(hasher, value)
        return hasher.digest()

    def _object(self, value: Value) -> bytes:
        """The digest of an object, which is kept, as others may refer to it as well."""
        key = id(value), self._is_whole
        if key not in self._known:
            hasher = blake2b(digest_size=16)
            self._feed(hasher, self._contents(value))
            # The value is kept, too: while it is, no other can have its id.
            self._known[key] = value, hasher.digest()
        return self._known[key][1]

    def _contents(self, value: Value) -> object:
        """Simpler values that a value consists of."""
        if isinstance(value, FunctionType | type | ModuleType):
            return self._referred(value)
        if isinstance(value, _BUILT_IN):
            return self._built_in(value)
        if isinstance(value, _WITHOUT_MEANING) or value is sys.stdout or value is sys.stderr:
            return None
        for kind, parts in _PARTS:
            if isinstance(value, kind):
                return parts(value)
        if isinstance(getattr(value, "py_func", None), FunctionType):  # compiled by numba
            return value.py_func, getattr(value, "targetoptions", None)
        if sparse.issparse(value):
            table: Matrix = value
            rows = table.tocsr()
            return rows.shape, rows.data, rows.indices, rows.indptr
        if hasattr(value, "columns") and hasattr(value, "dtypes"):  # a data frame of any library
            return [(n, str(value[n].dtype), np.asarray(value[n])) for n in value.columns]
        if hasattr(value, "to_numpy"):
            return str(value.dtype), value.to_numpy()
        if isinstance(value, BaseEstimator):
            return self._estimator(value)
        if is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in fields(value)}
        return self._state(value)

    def _built_in(self, value: Value) -> object:
        """A function in C: by its name, and of whom where it is a method."""
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or ""
        if module in sys.modules and not _is_installed(module):
            self._referred(sys.modules[module])
        of = None if isinstance(owner, ModuleType) else owner
        return module, getattr(value, "__qualname__", value.__name__), of

    def _estimator(self, value: BaseEstimator) -> object:
        """The parameters; all it has learnt, too, where clones keep that, as FrozenEstimator's."""
        own, usual = (getattr(c, "__sklearn_clone__", None) for c in (type(value), BaseEstimator))
        was_whole, self._is_whole = self._is_whole, self._is_whole or own is not usual
        try:
            return self._part(vars(value) if self._is_whole else value.get_params(deep=False))
        finally:
            self._is_whole = was_whole

    def _state(self, value: Value) -> object:
        """What is pickled of an object, without what it has computed for later."""
        reduce = dispatch_table.get(type(value))
        found = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(found, str):
            return found
        make, arguments, state, items, pairs = (*found, None, None, None)[:5]
        if isinstance(state, dict):
            kind = type(value)
            state = {
                name: own
                for name, own in state.items()
                if not isinstance(getattr(kind, str(name), None), cached_property)
            }
        return make, arguments, state, list(items or ()), list(pairs or ())

    # -- code --------------------------------------------------------------------------------------

    def _referred(self, item: Value) -> object:
        """What a function, class or module is known by; its contents are digested in their turn."""
        if isinstance(item, ModuleType):
            home, own, kind = item.__name__, "", "module"
        else:
            home, own = str(item.__module__), item.__qualname__
            kind = "class" if isinstance(item, type) else "function"
        place = item.__globals__.get("__name__") if kind == "function" else home
        if _is_installed(place):
            package = str(place).partition(".")[0]
            version = getattr(sys.modules.get(package), "__version__", None)
            if isinstance(version, str) and package not in sys.stdlib_module_names:
                self.packages[package] = version
            # A function that was made at run time, by a decorator for example, cannot be found by
            # name.
            is_lasting = kind != "function" or (_is_installed(home) and _found(home, own) is item)
            return (home, own) if is_lasting else (home, own, self._function(item))
        if id(item) not in self._names:
            words = f"the {kind} `{own or home}`" + (f" of module {home}" if own else "")
            makers = {"module": self._module, "class": self._class, "function": self._function}
            parts: Callable[[Value], object] = makers[kind]  # type: ignore[assignment]
            self._names[id(item)] = item, self._register(words, partial(parts, item))
        return self._names[id(item)][1]

    def _register(self, words: str, parts: Callable[[], object]) -> str:
        """Have code digested under this name; numbered, as lambdas all have the same."""
        name, k = words, 1
        while name in self._taken:
            k += 1
            name = f"{words} ({k})"
        self._taken.add(name)
        self._waiting.append((name, self._reader, parts))
        return name

    def _function(self, function: FunctionType) -> object:
        """Its instructions, defaults, closure and attributes; globals have names of their own."""
        if not _is_installed(function.__globals__.get("__name__")):
            for read in _reads(function.__code__):
                self._follow(read, function.__globals__)
        defaults = function.__defaults__, function.__kwdefaults__
        return _instructions(function.__code__), defaults, function.__closure__, vars(function)

    def _class(self, item: type) -> object:
        """Its bases, its metaclass and its own attributes; methods have names of their own."""
        home = sys.modules.get(item.__module__)
        # The source of a compiled class cannot be read: hash the file of its module instead.
        if home is not None and _is_compiled(home):
            return self._referred(home)
        own = {name: part for name, part in vars(item).items() if name not in _OF_CLASSES}
        return item.__bases__, type(item), own

    def _module(self, module: ModuleType) -> object:
        """The code that made it, and the functions and classes that it has now."""
        path = Path(getattr(module, "__file__", None) or "")
        if _is_compiled(module):
            return path.read_bytes()
        for name in sorted(vars(module)):
            if isinstance(vars(module)[name], FunctionType | type):
                self._global(vars(module), name)
        return compile(path.read_bytes(), "", "exec", dont_inherit=True) if path.is_file() else ""

    def _follow(self, read: _Read, names: Names) -> None:
        """Have digested what a function reads: a global, or what it takes from a module."""
        if read.imported is not None:
            module = _imported(read.imported, str(names.get("__package__") or ""))
            if module is not None:
                for name in read.names or ("",):
                    self._attributes(module, (name,) if name else ())
            return
        first, *rest = read.names
        if first in names and first not in _OF_MODULES:
            self._global(names, first)
            self._attributes(names[first], rest)

    def _attributes(self, item: object, names: Sequence[str]) -> None:
        """What is taken from a module by names; all of it, if it is used in another way."""
        while isinstance(item, ModuleType) and not _is_installed(item.__name__):
            if not names or not hasattr(item, names[0]):
                self._referred(item)
                return
            if names[0] in vars(item):
                self._global(vars(item), names[0])
            item, names = getattr(item, names[0]), names[1:]

    def _global(self, names: Names, name: str) -> None:
        if (id(names), name) in self._globals:
            return
        self._globals[id(names), name] = names
        value = names[name]
        if isinstance(value, ModuleType) and not _is_installed(value.__name__):
            value = value.__name__  # what is taken from it has a name of its own
        home = names.get("__name__")
        self._register(f"the global `{name}` of module {home}", lambda: value)


# -- what code consists of, and where it is --------------------------------------------------------


class _Read(NamedTuple):
    """Names one after the other, as in ``helpers.rules.score``; or what is imported by them."""

    names: Sequence[str]
    imported: tuple[int, str] | None = None


def _reads(code: CodeType) -> Iterator[_Read]:
    """The globals that code reads, with the attributes taken from them, and what it imports."""
    chain: list[str] = []
    before: list[Value] = [None, None]
    for step in dis.get_instructions(code):
        if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(step.argval)
            continue
        if chain:
            yield _Read(chain)
            chain = []
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = [step.argval]
        elif step.opname == "IMPORT_NAME":
            yield _Read(before[1] or (), (before[0], step.argval))
        before = [before[1], step.argval]
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _reads(part)


def _instructions(code: CodeType) -> object:
    """What code does, without names of files, lines and docstrings."""
    steps = [
        (step.opname, step.argval if step.opcode in dis.hasconst else step.argrepr or step.arg)
        for step in dis.get_instructions(code)
    ]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_varnames, code.co_freevars, code.co_cellvars
    return steps, counts, names, getattr(code, "co_exceptiontable", b"")


def _imported(what: tuple[int, str], package: str) -> ModuleType | None:
    """A module that a function imports when it runs; None if there is none, or it is installed."""
    level, name = what
    with suppress(Exception):  # the function may do without
        name = importlib.util.resolve_name("." * level + name, package)
        top = name.partition(".")[0]
        if top not in sys.modules:
            spec = importlib.util.find_spec(top)
            if spec is None or _is_installed_file(spec.origin or ""):
                return None
        return None if _is_installed(top) else importlib.import_module(name)
    return None


def _found(module: str, name: str) -> object:
    """What a module has by a name with dots."""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _is_compiled(module: ModuleType) -> bool:
    return str(getattr(module, "__file__", None)).endswith(tuple(EXTENSION_SUFFIXES))


def _is_installed(name: object) -> bool:
    """Whether a module is of Python or of an installed package, whose version says what it does."""
    top = str(name).partition(".")[0]
    if top in _PACKAGES or top == "builtins":
        return True
    module = sys.modules.get(str(name), sys.modules.get(top))
    if module is None or top in ("__main__", "__mp_main__"):
        return False
    paths = getattr(module, "__file__", None), *getattr(module, "__path__", ())
    path = next((str(path) for path in paths if path), None)
    if path is None:  # made by an extension module, as those of Cython for all its functions
        return top in sys.stdlib_module_names or top.startswith("_cython")
    return _is_installed_file(path)


@cache
def _is_installed_file(path: str) -> bool:
    if {"site-packages", "dist-packages"} & set(Path(path).parts):
        return True
    places = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    real = Path(path).resolve()
    return path in ("built-in", "frozen") or any(
        real.is_relative_to(Path(place).resolve()) for place in places if place
    )


def _short(error: BaseException) -> str:
    words = str(error).splitlines()
    return f"{type(error).__name__}: {words[0]}" if words else type(error).__name__


def _cell_contents(cell: CellType) -> object:
    with suppress(ValueError):  # an empty cell
        return cell.cell_contents
    return None


# What values of some types consist of.
_PARTS: tuple[tuple[Any, Callable[[Value], object]], ...] = (
    (CodeType, _instructions),
    (MethodType, lambda method: (method.__func__, method.__self__)),
    (partial, lambda made: (made.func, made.args, made.keywords)),
    (staticmethod | classmethod | _CACHING, lambda wrapper: wrapper.__wrapped__),
    (property, lambda own: (own.fget, own.fset, own.fdel)),
    (CellType, _cell_contents),
    (ReferenceType, lambda reference: reference()),
    (np.generic, np.asarray),
)
