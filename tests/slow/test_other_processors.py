"""What can be told here of other machines: compiled code builds for ARM, nothing needs /proc."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.trainings import REPOSITORY

# All that these fits compile, as it is before LLVM makes it code of this machine.
PROGRAM = """
import re, sys
import llvmlite.binding as llvm
import numpy as np
from numba.core import codegen

kept = {}

def keep(library):  # instead of optimising: these small fits need no fast code
    kept[library.name] = str(library._final_module)

codegen.CPUCodeLibrary._optimize_final_module = keep
from bigsvm import BigSVC

x = np.random.default_rng(0).standard_normal((200, 140)).astype(np.float32)
y = np.arange(200) % 2
for schedule in ("exact", "block"):
    BigSVC(schedule=schedule, max_iter=50).fit(x, y).predict(x)

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
for triple in ("aarch64-unknown-linux-gnu", "arm64-apple-macosx13.0"):
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=1, reloc="pic")
    for name, text in kept.items():
        # numba's own reference counting, which it emits for the machine that it compiles on.
        text = text.replace("llvm.x86.atomic.sub.cc.i64", "release_reference")
        text = text.replace(" immarg", "")  # that function is no intrinsic any more
        assert not re.search("llvm[.]x86|asm sideeffect|x86_fp80", text), name
        module = llvm.parse_assembly(re.sub("(?m)^target (datalayout|triple) = .*$", "", text))
        module.triple, module.data_layout = triple, str(machine.target_data)
        module.verify()
        code = machine.emit_assembly(module)
        # A fused multiply-add is one instruction there, too, and not a call.
        assert not re.search(r"bl[ \\t]+_?fmaf?\\b", code), name
        print(name, "fmla" in code or "fmadd" in code)
"""


def test_all_that_is_compiled_builds_for_arm(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    built = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    for name in ("_columns", "_products", "conjugate_steps", "steps"):
        assert name in built
    assert built["_columns"] == built["_products"] == "True"


def test_nothing_but_memory_is_read_from_proc() -> None:
    """And that only where it is there: it is not on macOS."""
    found = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "bigsvm").rglob("*.py")
        if re.search(r"[\"']/(proc|sys)\b", path.read_text())
    }
    assert found == {"bigsvm/backends/memory.py"}
