"""Counts of runs, attacks and deviations, kept in a file that later runs add to."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from bigsvm.files.atomic import atomic_write
from scripts.reliability.trial import KINDS, Trial


class Tally:
    """Counts of attacks and their outcomes, kept in a file if one is given."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        saved = json.loads(file.read_text()) if file and file.exists() else {}
        self.counts = Counter(saved.get("counts"))
        self.attacks = Counter(saved.get("attacks"))
        self.deviating = Counter(saved.get("deviating"))  # by attack
        self.deviations: list[list[str]] = saved.get("deviations", [])  # kind, words

    def add(
        self,
        number: int,
        problem: str,
        ways: tuple[str, ...],
        attacks: list[str],
        trial: Trial,
    ) -> None:
        """Count a run that has ended; `ways` are its cluster, schedule and threads."""
        with self._lock:
            self.counts.update({"runs": 1, "attacks": len(attacks), **dict.fromkeys(ways, 1)})
            self.counts.update(starts=trial.starts, resumes=trial.resumes)
            self.counts["last"] = max(number, self.counts["last"])
            self.attacks.update(attacks)
            if trial.deviations:
                self.deviating.update(attacks)
                about = f"run {number} ({problem}; {', '.join(ways)}; {', '.join(attacks)})"
                self.deviations += [[kind, f"{about}: {what}"] for kind, what in trial.deviations]
                print(
                    *map(": ".join, self.deviations[-len(trial.deviations) :]), sep="\n", flush=True
                )
            if self._file:
                with atomic_write(self._file) as temporary:
                    temporary.write_text(json.dumps(self._content()))

    def _content(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}

    def __str__(self) -> str:
        lines = [f"{'attack':<30}{'times':>8}{'in runs that deviated':>24}"]
        for name, times in sorted(self.attacks.items()):
            lines.append(f"{name:<30}{times:>8,}{self.deviating[name]:>24,}")
        lines += ["", f"{'deviation':<30}{'times':>8}"]
        kinds = Counter(kind for kind, _ in self.deviations)
        lines += [f"{kind:<30}{kinds[kind]:>8,}" for kind in KINDS]
        lines += ["", *(f"  {kind}: {what}" for kind, what in self.deviations)]
        counts = self.counts
        lines.append(
            f"{counts['runs']:,} attacked runs ({counts['none']:,} by themselves, "
            f"{counts['local']:,} with workers of their own, {counts['outside']:,} on a cluster; "
            f"{counts['exact']:,} exact, {counts['block']:,} block; "
            f"{counts['2 threads']:,} with two threads), "
            f"{counts['attacks']:,} attacks, {counts['starts']:,} starts, {counts['resumes']:,} "
            f"resumes, {len(self.deviations)} deviations"
        )
        return "\n".join(lines)
