"""What of an audit fails, and what does not: what was accepted in a baseline, or is ignored for a stated reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depthlaw.auditing.text import title
from depthlaw.testing.baseline import Baseline, key_of

if TYPE_CHECKING:
    from depthlaw.auditing.audit import Audit
    from depthlaw.auditing.faults import Fault


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """faults: what fails. ignored: with the reason of each. accepted: faults of the baseline. changes: of the
    initialisation, since it was accepted. unused: kinds that are ignored and not there."""

    audit: Audit
    faults: Sequence[Fault]
    ignored: Sequence[tuple[Fault, str]] = ()
    accepted: Sequence[Fault] = ()
    changes: Sequence[str] = ()
    unused: Sequence[str] = ()

    @classmethod
    def of(cls, audit: Audit, *, ignore: Mapping[str, str] | None = None, baseline: Baseline | None = None) -> Outcome:
        """ignore: by the kind of a fault, why. ValueError, in one line, for a baseline of other depths."""
        ignore, known = ignore or {}, set() if baseline is None else {*baseline.faults}
        rest = [fault for fault in audit.faults if fault.kind not in ignore]
        return cls(
            audit=audit,
            faults=[fault for fault in rest if _key(fault) not in known],
            ignored=[(fault, ignore[fault.kind]) for fault in audit.faults if fault.kind in ignore],
            accepted=[fault for fault in rest if _key(fault) in known],
            changes=[] if baseline is None else baseline.changes(audit),
            unused=[kind for kind in ignore if kind not in {fault.kind for fault in audit.faults}],
        )

    @property
    def title(self) -> str:
        """The audit in one line, with what of it counts here."""
        return title(self.audit, len(self.faults), len(self.changes))

    @property
    def is_fine(self) -> bool:
        return not self.faults and not self.changes

    @property
    def baseline(self) -> Baseline:
        """What is there now, to be accepted; what is ignored stays so by its reason."""
        return Baseline.of(self.audit, [_key(fault) for fault in (*self.faults, *self.accepted)])

    @property
    def remarks(self) -> list[str]:
        """A sentence for each fault that does not count and why, and for what has changed."""
        lines = [f"Changed since it was accepted: {change}" for change in self.changes]
        lines += [f"Ignored ({fault.kind}): {fault.what} The reason: {reason}" for fault, reason in self.ignored]
        lines += [f"Accepted in the baseline ({fault.kind}): {fault.what}" for fault in self.accepted]
        kinds = ", ".join(dict.fromkeys(fault.kind for fault in self.audit.faults))
        there = f" (there are {kinds})" if kinds else ""
        return lines + [f"Nothing is ignored: no fault is of the kind {kind}{there}." for kind in self.unused]

    def document(self) -> dict[str, Any]:
        """That of the audit, with the faults that count."""
        return self.audit.document() | {
            "faults": [fault.document() for fault in self.faults],
            "ignored": [fault.document() | {"reason": reason} for fault, reason in self.ignored],
            "accepted": [fault.document() for fault in self.accepted],
            "changes": [*self.changes],
        }


def _key(fault: Fault) -> str:
    return key_of(fault.kind, fault.side, fault.roles)


def reasons(given: Sequence[str]) -> dict[str, str]:
    """Of KIND=reason. ValueError, in one line, where there is no reason.

    >>> from depthlaw.testing.outcome import reasons
    >>> reasons(["norms=the head has its own"])
    {'norms': 'the head has its own'}
    """
    by_kind = {}
    for text in given:
        kind, _, reason = text.partition("=")
        if not kind.strip() or not reason.strip():
            raise ValueError(f"--ignore is KIND=reason, such as norms='the head has its own', not {text!r}")
        by_kind[kind.strip()] = reason.strip()
    return by_kind
