"""The depth laws of Transformers, derived, verified and measured: every name that a person needs, in one import.

The names are those of ``theory`` (exact), ``sims`` (measured) and ``paper_checks`` (both); each is imported when
somebody asks for it.

>>> import depthlaw
>>> network = depthlaw.Network(scheme=depthlaw.scheme("deepnorm"), num_sublayers=8, d_model=64)
>>> round(network.theory("adam").update, 3)
1.27
"""

from typing import Any

from depthlaw import paper_checks, sims, theory


def __dir__() -> list[str]:
    return ["__version__", *theory.__all__, *sims.__all__, *paper_checks.__all__, "audit"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("depthlaw")
    if name == "audit":  # a room of paper_checks has that name, too
        from depthlaw.paper_checks.audit.audit import audit

        return audit
    for package in (theory, sims, paper_checks):
        if name in package.__all__:
            return getattr(package, name)
    raise AttributeError(f"depthlaw has no {name!r}; it has {', '.join(sorted(__dir__()))}")
