"""Many images, a few processes, and one that is killed: who resizes what, and what of the dead one's shard is left?

    python examples/resize_images.py                   # a short demonstration, with images made for it
    python examples/resize_images.py PHOTOS THUMBNAILS  # the same with yours: every *.jpg

A pool of processes loses a worker's part when the kernel kills that worker, as it does when images are large and memory
is short. Here the images are dealt into shards, and each worker holds some. It commits how far it is; when it is gone,
the others get its shards and go on from there. Nobody but the coordinator, which runs in the parent, knows who is who.

An image that was resized but not yet committed is resized again, so writing must be repeatable: a new file, renamed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

import callboard

GROUP = "resize-images"
SHARES = 6  # some more than workers, so that what a dead one leaves can be spread
WORKERS = 3
WIDTH = 320
SESSION_MS = 1_000  # a worker that was not heard of for so long is dead; 10 s are kinder to a busy machine
LOOK_S = 0.05
DEAL_MS = 200  # workers that start together are dealt shards together


def main() -> None:
    match sys.argv[1:]:
        case ["worker", name, bootstrap, source, target]:
            work(name, bootstrap, Path(source), Path(target))
        case [source, target]:
            run(Path(source), Path(target))
        case _:
            with tempfile.TemporaryDirectory() as folder:
                run(make_images(Path(folder, "photos")), Path(folder, "thumbnails"))


# A worker ------------------------------------------------------------------------------------------------------------


def work(name: str, bootstrap: str, source: Path, target: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # leave the group on the way out
    images = images_in(source)
    with (
        callboard.connect_in_thread(bootstrap) as coordinator,
        coordinator.member(
            GROUP, resources={"images": SHARES}, client_id=name, session_timeout_ms=SESSION_MS
        ) as member,
    ):
        for assignment in member.assignments():  # a new one whenever the shards have changed
            with assignment:
                for shard in assignment.shards:
                    ours = images[int(shard.name) :: SHARES]
                    for number in range(shard.next_offset or 0, len(ours)):
                        if assignment.is_over:  # a rebalance: continue with the next assignment
                            break
                        resize(ours[number], target)
                        have_accident(ours[number])
                        print(f"{name} resized {ours[number].name}", flush=True)
                        shard.commit(number + 1, note=name)


def resize(image: Path, target: Path) -> None:
    unfinished = target / f".{image.name}.{os.getpid()}"
    with Image.open(image) as picture:
        picture.thumbnail((WIDTH, WIDTH))
        picture.save(unfinished, "JPEG")
    unfinished.replace(target / image.name)


def have_accident(image: Path) -> None:
    """For the demonstration: kill the first worker that gets here, after its work and before its commit."""
    fuse = image.with_suffix(".fuse")
    if fuse.exists():
        fuse.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


# Their parent --------------------------------------------------------------------------------------------------------


def run(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    total = len(images_in(source))
    with callboard.Coordinator.in_thread(
        listen="127.0.0.1:0",  # with data="state" besides, what is done outlives this process
        group_initial_rebalance_delay_ms=DEAL_MS,
        group_min_session_timeout_ms=SESSION_MS,
    ) as coordinator:
        own = [coordinator.bootstrap, str(source), str(target)]
        workers = [
            subprocess.Popen([sys.executable, __file__, "worker", f"worker-{number}", *own])
            for number in range(WORKERS)
        ]
        while (done := progress(coordinator)) < total:
            if all(worker.poll() is not None for worker in workers):
                sys.exit(f"no worker is left; {done} of {total} images are done")
            time.sleep(LOOK_S)
        for worker in workers:
            worker.terminate()
        for number, worker in enumerate(workers):
            how = "was killed" if worker.wait() == -signal.SIGKILL else "left"
            print(f"worker-{number} {how}")
        print(f"{done} of {total} images, {len(images_in(target))} thumbnails")


def progress(coordinator: callboard.ThreadCoordinator) -> int:
    return sum(committed.offset for committed in coordinator.offsets(GROUP).values())


def images_in(folder: Path) -> list[Path]:
    """Always in the same order: a shard is every sixth image, and offsets count images in this order."""
    return sorted(folder.glob("*.jpg"))


def make_images(folder: Path) -> Path:
    folder.mkdir()
    for number in range(48):
        Image.effect_noise((800, 600), number + 1).save(folder / f"photo-{number:02}.jpg")
    (folder / "photo-18.fuse").touch()
    return folder


if __name__ == "__main__":
    main()
