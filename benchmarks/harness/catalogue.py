"""Finds the scripts: every module of the `benchmarks` package that is neither private nor a package itself.

A script is imported only when its entry is called, so a broken one does not stop the others.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from benchmarks.harness.model import Benchmark

Catalogue = Mapping[str, Callable[[], Benchmark]]


def discover(package: str = "benchmarks") -> Catalogue:
    """The benchmarks of `package`, by name, in order of name."""
    modules = iter_modules(import_module(package).__path__)
    names = sorted(each.name for each in modules if not each.ispkg and not each.name.startswith("_"))
    return {name: partial(_load, package, name) for name in names}


def _load(package: str, name: str) -> Benchmark:
    module = import_module(f"{package}.{name}")
    benchmark = getattr(module, "BENCHMARK", None)
    if not isinstance(benchmark, Benchmark) or benchmark.name != name:
        raise TypeError(
            f"{module.__name__}: expected BENCHMARK = Benchmark(name={name!r}, ...), got {benchmark!r}; "
            "a module that is not a benchmark gets a name with a leading underscore"
        )
    return benchmark
