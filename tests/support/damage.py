"""Ways in which a data file of an instance, or its manifest, is lost or damaged."""

from collections.abc import Callable
from pathlib import Path


def _manifest(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        manifest = file.with_name("manifest.json")
        manifest.write_bytes(change(manifest.read_bytes()))

    return damage


def _zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _lose_manifest(file: Path) -> None:
    file.with_name("manifest.json").unlink()


#: By name, each damages an instance of which the path of one data file is given.
DAMAGES: dict[str, Callable[[Path], None]] = {
    "lost file": Path.unlink,
    "zeroed file": _zero,
    "truncated manifest": _manifest(lambda text: text[:100]),
    "manifest that is not UTF-8": _manifest(lambda text: text.replace(b"orders", b"\xff\xfers")),
    "lost manifest": _lose_manifest,
}
