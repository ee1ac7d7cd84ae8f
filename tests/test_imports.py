"""What an import or a command may load: quick starts, and measurements that cannot see a prediction."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pandas", "networkx", "matplotlib", "pint", "torch", "pydantic", "simpy")
ENGINES = ("estimate", "simulate", "closed_form", "network", "engine")


def _loaded(code: str) -> set[str]:
    report = f"{code}\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


@pytest.mark.parametrize("package", ["simnet", "realrun", "studies"])
def test_help_loads_nothing_heavy(package: str) -> None:
    code = (
        f"import sys; sys.argv = ['{package}', '--help']\nfrom {package}.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code"
    )
    assert _loaded(code).isdisjoint(HEAVY)


def test_importing_simnet_is_lazy() -> None:
    assert _loaded("import simnet").isdisjoint(HEAVY)


def test_importing_realrun_loads_no_engine() -> None:
    assert _loaded("import realrun").isdisjoint({f"simnet.interpreters.{engine}" for engine in ENGINES})


def test_no_public_name_equals_a_module() -> None:
    import pkgutil

    import simnet

    assert {m.name for m in pkgutil.iter_modules(simnet.__path__)}.isdisjoint(simnet.__all__)
