#!/usr/bin/env python3
"""A boot from a full CD: the hot region where the model of the drive says (the rim), and in front (the hub).

The disk holds, beside the system, 590 MB that nothing reads and nothing compresses, so that the image fills the disc
of 700 MB. `optimize --for cd-24x-cav` asks the model; `optimize` without a medium puts the hot region in front.
"""

from random import Random

from harness import benchmark, boot, headstart, run
from inputs import boot_profile, boot_root, folder, kept, optimized, program, remove, stamp

MEDIUM = "cd-24x-cav"
FILLER_MB = 590

def full_image():
    """The image of the system with its filler."""
    root = boot_root()

    def make(draft):
        full = folder() / "unfinished-full-root"
        remove(full)
        run("cp", "-a", root, full)
        with (full / "filler").open("wb") as file:
            random = Random(24)
            for _ in range(FILLER_MB):
                file.write(random.randbytes(1_000_000))
        headstart("build", full, "-o", draft, "--free", "64M", "--codec", "zstd:9")
        remove(full)

    return kept("full.hsi", [stamp(root), program()], make)

@benchmark(repeats=3)
def measure(bench):
    image = full_image()
    profile = boot_profile(image, "full")
    images = {"by the model": optimized(image, "full-model", profile, flags=["--medium", MEDIUM]),
              "in front": optimized(image, "full-front", profile), "unoptimized": image}
    runs = bench.turns({name: lambda path=path: boot(path, medium=MEDIUM) for name, path in images.items()},
                       say="{ready_s:.2f} s ready, {demand_wait_s:.2f} s waited, {seeks} seeks")
    rate = lambda name: runs.median(name, "prefetch_stream_bytes") / runs.median(name, "prefetch_stream_s") / 1e6
    rates = {name: rate(name) for name in ("by the model", "in front")}
    bench.figure("rate of the stream at the rim ÷ in front", rates["by the model"] / rates["in front"], at_least=1.5,
                 detail={"rates_mb_per_s": rates, "image_bytes": image.stat().st_size})
    for other in ("in front", "unoptimized"):
        bench.figure(f"ready, hot region at the rim ÷ {other}", runs.ratio("by the model", other), at_most=1.0)
