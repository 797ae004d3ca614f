"""How many of the gallery's faults the audit finds and names, and how many right models it accuses.

python -m tests.depthlaw.auditing.score
"""

from __future__ import annotations

from collections.abc import Sequence

from depthlaw.auditing.audit import audit
from depthlaw.auditing.faults import Fault
from tests.depthlaw.auditing import gallery, gallery_field, gallery_kinds, gallery_parts, gallery_streams
from tests.depthlaw.auditing.gallery import Planted, Twin
from tests.depthlaw.auditing.transformer import Build, renamed

GALLERIES = (gallery, gallery_field, gallery_streams, gallery_kinds, gallery_parts)
PLANTED = tuple(planted for own in GALLERIES for planted in own.PLANTED)
TWINS = {name: twin for own in GALLERIES for name, twin in own.TWINS.items()}
RENAMED = tuple(name for own in GALLERIES for name in own.RENAMED)
BY_NAME = {planted.name: planted for planted in PLANTED}


def faults_of(build: Build, twin: Twin) -> Sequence[Fault]:
    """What the audit says of a builder, by the claim of a twin and of each role by itself."""
    told = audit(
        build,
        twin.layers,
        scheme=twin.scheme,
        recipe=twin.recipe,
        inputs=twin.inputs,
        measures=False,
        has_nearest=False,
    )
    return told.findings.faults


def missed(planted: Planted, *, is_renamed: bool = False) -> str:
    """What the audit does not say of a planted fault, or says besides; empty where it finds and names it."""
    found = faults_of(renamed(planted.build) if is_renamed else planted.build, planted.twin)
    of_kind = [fault for fault in found if fault.kind == planted.kind]
    if planted.side and (others := {fault.side for fault in of_kind} - {planted.side}):
        return f"{planted.kind} is said of {', '.join(map(str, others))}, and not of {planted.side} alone"
    roles = {fault.role for fault in of_kind}
    if not of_kind or not set(planted.roles) <= roles:
        wanted = f"{planted.kind} of {', '.join(planted.roles) or 'any role'}"
        return f"{wanted} is asked for, and found is: {_text(found)}"
    if planted.roles and (others := roles - set(planted.roles)):
        return f"{planted.kind} is said of {', '.join(map(str, others))}, too"
    return ""


def accused(twin: Twin) -> str:
    """What the audit holds against a right model; empty where it is silent."""
    found = faults_of(twin.build, twin)
    return _text(found) if found else ""


def _text(faults: Sequence[Fault]) -> str:
    return "; ".join(f"{fault.kind} of {fault.role}: {fault.what}" for fault in faults) or "nothing"


def main() -> None:
    lines = [(planted.name, missed(planted)) for planted in PLANTED]
    others = [(f"{name}, renamed", missed(BY_NAME[name], is_renamed=True)) for name in RENAMED]
    twins = [(name, accused(twin)) for name, twin in TWINS.items()]
    for name, text in (*lines, *others, *twins):
        if text:
            print(f"{name}: {text}")
    found, also, silent = (sum(not text for _, text in group) for group in (lines, others, twins))
    print(f"{found} of {len(lines)} faults found and named, {also} of {len(others)} under other names, ", end="")
    print(f"{len(twins) - silent} of {len(twins)} right models accused")


if __name__ == "__main__":
    main()
