"""Several processes resize images. One of them is killed, and the others continue its work.

    python examples/resize_images.py                    # a short demonstration with generated images
    python examples/resize_images.py PHOTOS THUMBNAILS  # the same with your images: every *.jpg

If the kernel kills a worker of a process pool, for example because memory is short, its work is lost. Here the images
are divided into shards, and each worker owns some of them. It commits its progress. When it dies, the other workers get
its shards and continue at the committed offsets. The coordinator runs in the parent process.

An image that was resized but not committed is resized again, so writing must be repeatable: a new file is renamed.
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
SHARDS = 6  # more than workers, so that the shards of a dead one can be distributed
WORKERS = 3
WIDTH = 320
SESSION_MS = 1_000  # without heartbeats for this long a worker counts as dead; in production use 10 s
POLL_S = 0.05
INITIAL_DELAY_MS = 200  # workers that start together get their shards in one rebalance


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
            GROUP, resources={"images": SHARDS}, client_id=name, session_timeout_ms=SESSION_MS
        ) as member,
    ):
        member.run(lambda shard: resize_shard(name, shard, images[int(shard.name) :: SHARDS], target))


def resize_shard(name: str, shard: callboard.BlockingShard, images: list[Path], target: Path) -> None:
    """Runs in a thread for each shard. Other workers get the shard when this returns."""
    for number in range(shard.next_offset or 0, len(images)):
        if shard.is_revoked:
            return
        resize(images[number], target)
        kill_once(images[number])
        print(f"{name} resized {images[number].name}", flush=True)
        shard.commit(number + 1, note=name)


def resize(image: Path, target: Path) -> None:
    temporary_file = target / f".{image.name}.{os.getpid()}"
    with Image.open(image) as picture:
        picture.thumbnail((WIDTH, WIDTH))
        picture.save(temporary_file, "JPEG")
    temporary_file.replace(target / image.name)


def kill_once(image: Path) -> None:
    """For the demonstration: kill the first worker that gets here, after its work and before its commit."""
    kill_marker = image.with_suffix(".kill")
    if kill_marker.exists():
        kill_marker.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


# The parent process --------------------------------------------------------------------------------------------------


def run(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    total = len(images_in(source))
    with callboard.Coordinator.in_thread(
        listen="127.0.0.1:0",  # add data="state" to keep the progress over a restart
        group_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
        group_min_session_timeout_ms=SESSION_MS,
    ) as coordinator:
        arguments = [coordinator.bootstrap, str(source), str(target)]
        workers = [
            subprocess.Popen([sys.executable, __file__, "worker", f"worker-{number}", *arguments])
            for number in range(WORKERS)
        ]
        while (done := progress(coordinator)) < total:
            if all(worker.poll() is not None for worker in workers):
                sys.exit(f"all workers have ended; {done} of {total} images are done")
            time.sleep(POLL_S)
        for worker in workers:
            worker.terminate()
        for number, worker in enumerate(workers):
            end = "was killed" if worker.wait() == -signal.SIGKILL else "left"
            print(f"worker-{number} {end}")
        print(f"{done} of {total} images, {len(images_in(target))} thumbnails")


def progress(coordinator: callboard.ThreadCoordinator) -> int:
    return sum(committed.offset for committed in coordinator.offsets(GROUP).values())


def images_in(folder: Path) -> list[Path]:
    """All images, sorted. A shard is every sixth image, and an offset counts its images in this order."""
    return sorted(folder.glob("*.jpg"))


def make_images(folder: Path) -> Path:
    folder.mkdir()
    for number in range(48):
        Image.effect_noise((800, 600), number + 1).save(folder / f"photo-{number:02}.jpg")
    (folder / "photo-18.kill").touch()
    return folder


if __name__ == "__main__":
    main()
