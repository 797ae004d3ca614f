from .claims.claim import Claim, Evidence, Verdict, judge
from .papers.registry import claim

__all__ = ["Claim", "Evidence", "Verdict", "claim", "judge"]
