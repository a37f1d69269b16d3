#!/usr/bin/env python3
"""A boot from a full CD: the hot region where the model of the drive says (the rim), and in front (the hub).

The disk holds, beside the system, 590 MB that nothing reads and nothing compresses, so that the image fills the disc of
700 MB. `optimize --medium cd-24x-cav` asks the model; `optimize` without a medium puts the hot region in front.
"""

from random import Random

from harness import alternate, arguments, boot, figure, finish, headstart, run, spread_of
from inputs import boot_profile, boot_root, folder, kept, optimized, program, stamp

MEDIUM = "cd-24x-cav"
FILLER_BYTES = 590_000_000


def full_image():
    """The image of the system with its filler."""
    root = boot_root()

    def make(draft):
        full = folder() / "unfinished-full-root"
        run("rm", "-rf", full)
        run("cp", "-a", root, full)
        with (full / "filler").open("wb") as file:
            random = Random(24)
            for _ in range(FILLER_BYTES // 1_000_000):
                file.write(random.randbytes(1_000_000))
        headstart("build", full, "-o", draft, "--free", "64M", "--codec", "zstd:9", "--scratch", folder())
        run("rm", "-rf", full)

    return kept("full.hsi", [stamp(root), program()], make)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = full_image()
    profile = boot_profile(image, "full")
    images = {
        "by the model": optimized(image, "full-model", profile, flags=["--medium", MEDIUM]),
        "in front": optimized(image, "full-front", profile),
        "unoptimised": image,
    }
    results = alternate(
        {name: (lambda path=path: boot(path, medium=MEDIUM)) for name, path in images.items()},
        args.repeats,
        lambda s: f"{s['ready_s']:.2f} s ready, {s['demand_wait_s']:.2f} s waited, {s['seeks']} seeks")
    keys = ("ready_s", "demand_wait_s", "prefetch_stream_s", "prefetch_stream_bytes", "store_requests", "seeks")
    detail = {
        "image_bytes": image.stat().st_size,
        **{name: {key: spread_of(runs, key) for key in keys if runs[0][key] is not None} for name, runs in results.items()},
    }
    streams = {name: spread_of(results[name], "prefetch_stream_s")["median"] for name in ("by the model", "in front")}
    rates = {name: detail[name]["prefetch_stream_bytes"]["median"] / streams[name] / 1e6 for name in streams}
    ready = {name: spread_of(runs, "ready_s")["median"] for name, runs in results.items()}
    finish("boot_rim", [
        figure("rate of the stream at the rim ÷ in front", rates["by the model"] / rates["in front"], at_least=1.5,
               detail={**detail, "rates_mb_per_s": rates}),
        figure("ready, hot region at the rim ÷ in front", ready["by the model"] / ready["in front"], at_most=1.0),
        figure("ready, hot region at the rim ÷ unoptimised", ready["by the model"] / ready["unoptimised"], at_most=1.0),
    ], args.repeats)


if __name__ == "__main__":
    main()
